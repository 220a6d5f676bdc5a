"""Benchmarks of gpuopt: workloads, peers, results.

`python -m benchmarks` measures and writes JSON into results/; `python -m benchmarks.readme`
and `python -m benchmarks.pictures` rewrite the tables and pictures of the documents from
it.  The package sees this folder as gpuopt.benchmarks.
"""
