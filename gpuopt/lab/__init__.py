"""Experiments: timing, ceilings, rooflines, comparisons with what else is installed.

`gpuopt.lab.bench.compare("reduce")` is the way in from a notebook.  Nothing here is
imported by `import gpuopt`, and only this package imports torch, cupy or matplotlib.
"""
