/*
 * v1  Blelloch's two sweeps over padded banks.
 * Was:   v0 adds n log2(BLOCK) times.
 * Now:   totals go up a tree and prefixes down it: 2 n additions.  Lanes are 2 * d
 *        elements apart, a bank conflict without one element of padding after every 32.
 * Cost:  memory as v0; two elements per thread, twice the barriers.
 * Left:  the local scan goes to memory and back, and each step has a barrier -> v2.
 */
#ifndef GPO_SCAN_V1_BLELLOCH_CUH
#define GPO_SCAN_V1_BLELLOCH_CUH

#include "../three_kernels.cuh"

__device__ __forceinline__ unsigned
padded(unsigned i)
{
    return i + i / 32;
}

template <typename Op>
__global__ void
scan_v1_blelloch(Op op, scan_view<typename Op::Out> a, typename Op::Acc *local,
                 typename Op::Part *part, int64_t tiles, int64_t first)
{
    using Acc = typename Op::Acc;
    using Fold = typename Op::Fold;
    constexpr unsigned TILE = 2 * BLOCK;
    GPO_SHARED(Acc, s, [TILE + TILE / 32]);
    const unsigned tid = threadIdx.x;
    const int64_t id = first + blockIdx.x;
    const int64_t row = id / tiles, begin = id % tiles * TILE;
    const int64_t x = offset_of(a, row).x;

    Acc own[2];
#pragma unroll
    for (unsigned h = 0; h < 2; h++) {
        const int64_t k = begin + h * BLOCK + tid;
        own[h] =
            k < a.cols ? op.lift(op.read(a.x, x + k * a.stride)) : Fold::identity();
        s[padded(h * BLOCK + tid)] = own[h];
    }
    unsigned width = 1;
    for (unsigned d = BLOCK; d > 0; d /= 2) {
        __syncthreads();
        if (tid < d) {
            Acc &right = s[padded(width * (2 * tid + 2) - 1)];
            right = Fold::combine(s[padded(width * (2 * tid + 1) - 1)], right);
        }
        width *= 2;
    }
    __syncthreads();
    if (tid == 0) {
        part[id] = Op::widen(s[padded(TILE - 1)]);
        s[padded(TILE - 1)] = Fold::identity();
    }
    for (unsigned d = 1; d <= BLOCK; d *= 2) {
        width /= 2;
        __syncthreads();
        if (tid < d) {
            Acc &left = s[padded(width * (2 * tid + 1) - 1)];
            Acc &right = s[padded(width * (2 * tid + 2) - 1)];
            const Acc before = right;
            right = Fold::combine(before, left);
            left = before;
        }
    }
    __syncthreads();
#pragma unroll
    for (unsigned h = 0; h < 2; h++) {
        const int64_t k = begin + h * BLOCK + tid;
        if (k < a.cols) {
            local[row * a.cols + k] = Fold::combine(s[padded(h * BLOCK + tid)], own[h]);
        }
    }
}

struct scan_v1 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        const auto launch = [=](dim3 grid, const scan_view<typename Op::Out> &a,
                                typename Op::Acc *local, typename Op::Part *part,
                                int64_t tiles, int64_t first) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (scan_v1_blelloch<Op>), op, a,
                              local, part, tiles, first);
        };
        return scan_in_three(call, op, 2 * BLOCK, launch);
    }
};

#endif
