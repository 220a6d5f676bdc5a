"""Benchmarks of gpuopt: workloads, peers, results.

`python -m benchmarks` measures and writes JSON into results/, `python -m
benchmarks.readme` rewrites the tables of the README from it.  The package sees this
folder as gpuopt.benchmarks.
"""
