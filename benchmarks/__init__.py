"""Benchmarks of gpuopt: workloads, peers, results.

`python -m benchmarks` measures and writes JSON; `python -m benchmarks.readme` and
`python -m benchmarks.pictures` rewrite the tables and pictures of the documents from the
files in results/.  In the package this folder is gpuopt.benchmarks.
"""
