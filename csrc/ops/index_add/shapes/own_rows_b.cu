/*
 * own_rows_b.cu  own_rows with fewer blocks, to be timed beside it: 64 rows and more for
 * each, where own_rows gives it 16.  One of the two is to be deleted.
 */
#include "../frame.cuh"

template <typename T>
gpo_status
index_add_own_rows_b(gpo_call *call)
{
    return index_add_ranked_rows<T>(call, 64);
}

template gpo_status index_add_own_rows_b<f16>(gpo_call *call);
template gpo_status index_add_own_rows_b<bf16>(gpo_call *call);
template gpo_status index_add_own_rows_b<float>(gpo_call *call);
template gpo_status index_add_own_rows_b<double>(gpo_call *call);
