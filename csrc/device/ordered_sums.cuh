/*
 * ordered_sums.cuh  Sums by place without atomics, whose bits do not depend on the order
 * in which warps run: a warp that alone writes to a table, and copies of a result that are
 * added up in order.
 */
#ifndef GPO_ORDERED_SUMS_CUH
#define GPO_ORDERED_SUMS_CUH

#include "follow.cuh"
#include "grid.cuh"
#include "warp.cuh"

/* table[b] += v for the lanes with a place b >= 0, equal places in pairs, as lanes tell. */
template <typename Sum>
__device__ __forceinline__ void
add_in_order(Sum *table, int b, Sum v, int lane)
{
    const unsigned alone = 0x80000000u | static_cast<unsigned>(lane);
    const unsigned key = b >= 0 ? static_cast<unsigned>(b) : alone;
    const unsigned peers = __match_any_sync(ALL_LANES, key);
    const bool first = lane == __ffs(static_cast<int>(peers)) - 1;
    Sum sum = v;
    add_up(peers, &sum);
    if (first && b >= 0) {
        table[b] = table[b] + sum;
    }
    __syncwarp();
}

/* ---- total[b] = copies[0][b] + copies[1][b] + ..., in order ---- */

constexpr int COPIES_BLOCK = 256, ACROSS = 32, DEEP = COPIES_BLOCK / ACROSS;

template <typename Sum>
__global__ void
sum_copies_kernel(const Sum *copies, int64_t count, int64_t size, Sum *total)
{
    GPO_SHARED(Sum, part, [DEEP][ACROSS]);
    const int across = threadIdx.x % ACROSS, deep = threadIdx.x / ACROSS;
    let_next_start();
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * ACROSS; first < size;
         first += static_cast<int64_t>(gridDim.x) * ACROSS) {
        const int64_t b = first + across;
        Sum sum{};
#pragma unroll 4
        for (int64_t p = deep; p < count; p += DEEP) {
            if (b < size) {
                sum = sum + copies[p * size + b];
            }
        }
        part[deep][across] = sum;
        __syncthreads();
        if (deep == 0 && b < size) {
            for (int d = 1; d < DEEP; d++) {
                sum = sum + part[d][across];
            }
            total[b] = sum;
        }
        __syncthreads();
    }
}

template <typename Sum>
static gpo_status
sum_copies(gpo_call *call, const Sum *copies, int64_t count, int64_t size, Sum *total)
{
    const int64_t blocks = ceil_div(size, ACROSS);
    return GPO_LAUNCH(call, dim3(grid_extent(blocks, 1 << 20)), COPIES_BLOCK, 0,
                      (sum_copies_kernel<Sum>), copies, count, size, total);
}

#endif
