/*
 * ordered_buckets.cu  As buckets, with the same bits each run.  A tile keeps the order of a
 * bucket's elements, by __match_any_sync in place of atomics, and one warp takes a bucket,
 * or a part of one that has many elements: tile by tile, lanes of one place add up, and the
 * warp alone writes to its table.  Tables of one bucket are summed in order.  Where v4 makes
 * three passes of a sort and gathers the values, each pair moves once.
 * Cost:  as buckets, and a match for each 32 elements in both kernels.
 */
#include "../buckets.cuh"

template <typename T>
gpo_status
scatter_add_ordered_buckets(gpo_call *call)
{
    return scatter_add_split<true, T>(call);
}

template gpo_status scatter_add_ordered_buckets<f16>(gpo_call *call);
template gpo_status scatter_add_ordered_buckets<bf16>(gpo_call *call);
template gpo_status scatter_add_ordered_buckets<float>(gpo_call *call);
template gpo_status scatter_add_ordered_buckets<double>(gpo_call *call);
