/*
 * buckets.cu  Many places, few elements for each, in any order.  long_result moves 20 bytes
 * for each place of float32 (a cleared and a rounded float64 sum), and an atomic whose sum
 * is not in L2 waits for memory.  Here the pairs of place and value are ordered by buckets
 * of up to 16,384 places, each tile of elements for itself, so that no pass counts them
 * first; a block then collects its bucket's elements from all tiles, adds them up in
 * shared memory and writes each result once.  Several blocks share a bucket that has many
 * elements; the last of them adds up their tables.
 * Cost:  index and values once; place (2 bytes) and value written and read; the result
 *        once.  A tile has some 8 elements of a bucket and more, a few sectors.
 */
#include "../buckets.cuh"

template <typename T>
gpo_status
scatter_add_by_buckets(gpo_call *call)
{
    return scatter_add_split<false, T>(call);
}

template gpo_status scatter_add_by_buckets<uint32_t>(gpo_call *call);
template gpo_status scatter_add_by_buckets<uint64_t>(gpo_call *call);
template gpo_status scatter_add_by_buckets<f16>(gpo_call *call);
template gpo_status scatter_add_by_buckets<bf16>(gpo_call *call);
template gpo_status scatter_add_by_buckets<float>(gpo_call *call);
template gpo_status scatter_add_by_buckets<double>(gpo_call *call);
