/*
 * sorted.cuh  The source rows in the order of their destinations (v4, one_element):
 * their keys, sorted stably, with the number of each row or the bits of its only
 * element.
 */
#ifndef GPO_INDEX_ADD_SORTED_CUH
#define GPO_INDEX_ADD_SORTED_CUH

#include "../../device/sort.cuh"
#include "frame.cuh"

/* The entries of a destination after the sort are [begin, end). */
template <typename Payload>
struct alignas(2 * sizeof(Payload)) index_add_run {
    Payload begin, end;
};

/* n / d, in 32 bits where they are enough. */
__device__ __forceinline__ int64_t
quotient(int64_t n, int64_t d)
{
    if ((n | d) >> 32 == 0) {
        return static_cast<uint32_t>(n) / static_cast<uint32_t>(d);
    }
    return n / d;
}

/* `bytes` rounded up, so that what follows is aligned. */
inline size_t
aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Memory of a sort of n entries. */
template <typename Payload>
size_t
sort_bytes(int64_t n)
{
    return 2 * aligned(n * sizeof(uint32_t)) + 2 * aligned(n * sizeof(Payload));
}

/* Keys are 32-bit positions: GPO_EUNSUPPORTED if the axis is longer. */
gpo_status index_add_check_length(gpo_call *call);

/*
 * Sorts the rows by destination, in sort_bytes<Payload>(count) bytes of `memory`.  The
 * payload of row s is carried[s * by_row], or s if `carried` is NULL.  Sets
 * runs[0..length) to {0, 0} unless `runs` is NULL.
 */
template <typename Payload>
gpo_status index_add_sort(gpo_call *call, const index_reader &index, void *memory,
                          const Payload *carried, int64_t by_row,
                          index_add_run<Payload> *runs, sort_pairs<Payload> *pairs);

#endif
