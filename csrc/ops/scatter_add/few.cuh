/*
 * few.cuh  What the kernels of few elements share (shapes/one_launch.cu, one_table.cu):
 * each checks the indices and writes out itself, without another launch.
 */
#ifndef GPO_SCATTER_ADD_FEW_CUH
#define GPO_SCATTER_ADD_FEW_CUH

#include "../../device/few_sums.cuh"
#include "frame.cuh"

/* Blocks that take `places` places each; one where there are none. */
inline dim3
blocks_of_places(int64_t size, int64_t places)
{
    const int64_t blocks = ceil_div(size, places);
    return dim3(static_cast<unsigned>(blocks > 0 ? blocks : 1));
}

/* Kernel::run<T>(call, frame, verdict) launches; IndexError if an index was bad. */
template <typename Kernel, typename T>
gpo_status
run_few(gpo_call *call)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const bool raises = plan.mode == GPO_INDEX_RAISE;
    scatter_add_frame f = {};
    verdict_word verdict = {};
    uint64_t place = NONE_BAD;
    gpo_status status = check_order(call, Kernel::DETERMINISTIC);
    if (!status && raises) {
        status = open_verdict(call, plan.size, &verdict);
    }
    if (!status) {
        status = make_lines(call, &f);
    }
    if (!status) {
        status = Kernel::template run<T>(call, f, verdict);
    }
    if (!status && raises) {
        status = close_verdict(call, plan.size, verdict, &place);
    }
    return status || place == NONE_BAD ? status : refuse(call, f, place);
}

#endif
