"""Experiments: timing, ceilings, rooflines, comparisons with what else is installed.

In a notebook, start with `gpuopt.lab.bench.compare("reduce")`.  `import gpuopt` imports
nothing from here, and only this package imports torch, cupy or matplotlib.
"""
