/*
 * v0  Hillis and Steele.
 * Was:   nothing; the first parallel scan one would write.
 * Now:   every thread adds the elements 1, 2, 4, ... places before it, in shared
 *        memory.  Three kernels scan the tiles, scan their totals and add each tile's
 *        prefix.
 * Cost:  reads x, writes and reads a local scan as wide as the accumulator, writes out:
 *        16 bytes per 4-byte element; n log2(BLOCK) additions instead of n.
 * Left:  seven of eight additions are redundant -> v1.
 */
#ifndef GPO_SCAN_V0_HILLIS_STEELE_CUH
#define GPO_SCAN_V0_HILLIS_STEELE_CUH

#include "../three_kernels.cuh"

template <typename Op>
__global__ void
scan_v0_hillis_steele(Op op, scan_view<typename Op::Out> a, typename Op::Acc *local,
                      typename Op::Part *part, int64_t tiles, int64_t first)
{
    using Fold = typename Op::Fold;
    GPO_SHARED(typename Op::Acc, s, [2][BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t id = first + blockIdx.x;
    const int64_t row = id / tiles, k = id % tiles * BLOCK + tid;

    s[0][tid] = k < a.cols ? op.lift(op.read(a.x, offset_of(a, row).x + k * a.stride))
                           : Fold::identity();
    __syncthreads();
    int from = 0;
    for (unsigned d = 1; d < BLOCK; d *= 2) {
        const typename Op::Acc v = s[from][tid];
        s[1 - from][tid] = tid >= d ? Fold::combine(s[from][tid - d], v) : v;
        from = 1 - from;
        __syncthreads();
    }
    if (k < a.cols) {
        local[row * a.cols + k] = s[from][tid];
    }
    if (tid == BLOCK - 1) {
        part[id] = Op::widen(s[from][tid]);
    }
}

struct scan_v0 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        const auto launch = [=](dim3 grid, const scan_view<typename Op::Out> &a,
                                typename Op::Acc *local, typename Op::Part *part,
                                int64_t tiles, int64_t first) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (scan_v0_hillis_steele<Op>), op, a,
                              local, part, tiles, first);
        };
        return scan_in_three(call, op, BLOCK, launch);
    }
};

#endif
