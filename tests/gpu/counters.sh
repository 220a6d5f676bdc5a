#!/bin/sh
# The hardware's counts of the reduce ladder, to compare with gpuopt.profile's: float32,
# 16,384 elements.  Usage: counters.sh PYTHON OUTPUT.csv    needs ncu and its permissions
set -eu
metrics=smsp__inst_executed_op_shared_ld.sum,smsp__inst_executed_op_shared_st.sum
metrics=$metrics,l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
metrics=$metrics,l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum
metrics=$metrics,l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum
metrics=$metrics,l1tex__t_requests_pipe_lsu_mem_global_op_st.sum
metrics=$metrics,l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum
metrics=$metrics,l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum
ncu --clock-control none --csv --page raw --metrics "$metrics" "$1" -c '
import numpy as np, gpuopt
x = np.random.default_rng(0).standard_normal(16384).astype(np.float32)
for rung in range(10):
    gpuopt.reduce(x, variant=f"v{rung}", backend="cuda")
' >"$2"
