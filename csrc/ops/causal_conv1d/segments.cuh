/*
 * segments.cuh  Segments on CUDA: a bit for each step at which a segment begins.
 * See segment_marks.cu for the kernel that makes them, shapes/ for what reads them.
 */
#ifndef GPO_CAUSAL_CONV1D_SEGMENTS_CUH
#define GPO_CAUSAL_CONV1D_SEGMENTS_CUH

#include "rows.cuh"

/* The bits of one row. */
struct row_marks {
    const uint32_t *words;

    /*
     * Bit k: whether a segment begins at step t + k, for t from -32 to T.  From T on there
     * is one at each step, and none before step 0.
     */
    __device__ __forceinline__ unsigned from(int t) const
    {
        const unsigned at = static_cast<unsigned>(t + 32);
        const uint32_t *const w = words + at / 32;
        return __funnelshift_r(w[0], w[1], at % 32);
    }
};

/* Of the rows of a call; step -32 has bit 0 of a row's first word. */
struct segment_marks {
    const uint32_t *words; /* NULL: each row is one segment */
    int64_t pitch;         /* words from a batch to the next; 0: one row */

    __device__ __forceinline__ row_marks row(int64_t b) const
    {
        return {words + b * pitch};
    }
};

/*
 * The marks of the call's segments; ValueError for wrong ones.  It waits for the stream,
 * so that it comes before any launch that writes a result.
 */
gpo_status mark_segments(gpo_call *call, segment_marks *marks);

#endif
