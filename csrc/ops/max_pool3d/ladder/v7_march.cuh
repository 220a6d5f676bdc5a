/*
 * v7  Marching along T.
 * Was:   v6 loads a whole tile, transposes it, and loads nothing while it computes.
 * Now:   a warp has 8 rows of 32 columns and marches from slice to slice, with two or
 *        four slices in flight.  Along T it keeps earlier maxima in registers, made by
 *        doubling; along H each warp gets the rows it lacks from the next warp of a
 *        small block; along W lanes shuffle.  Kernel and stride are compile-time
 *        constants.
 * Cost:  each element is loaded once where a plane has up to 64 rows of 32 columns; 16
 *        or 32 loads in flight per thread; one barrier of four warps per slice of y,
 *        none where a plane has 8 rows.  Indices, dilation, other windows and dtypes
 *        run v6.
 * Left:  windows of two slices of y share their maxima along H and W, too.
 */
#ifndef GPO_MAX_POOL3D_V7_MARCH_CUH
#define GPO_MAX_POOL3D_V7_MARCH_CUH

#include "../march.cuh"
#include "v6_separable.cuh"

/* What later windows of K slices need of past slices: by doubling, as in pool_array. */
template <int K, typename V>
struct trail {
    V past[K > 1 ? K - 1 : 1][ROWS];

    __device__ __forceinline__ trail()
    {
#pragma unroll
        for (int i = 0; i < K - 1; i++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                past[i][r] = least_value<V>();
            }
        }
    }

    /* The next slice becomes the maximum of it and the K - 1 slices before it. */
    template <int MADE = 1>
    __device__ __forceinline__ void take(V (&a)[ROWS])
    {
        if constexpr (MADE < K) {
            constexpr int MORE = more_of(K, MADE);
            constexpr int FIRST = MADE - 1, LAST = FIRST + MORE - 1; /* of this step */
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const V now = a[r];
                a[r] = largest(now, past[LAST][r]);
#pragma unroll
                for (int i = LAST; i > FIRST; i--) {
                    past[i][r] = past[i - 1][r];
                }
                past[FIRST][r] = now;
            }
            take<MADE + MORE>(a);
        }
    }
};

/* Windows of K elements along each axis, S apart. */
template <typename T, int K, int S>
__global__ void
__launch_bounds__(MOST_ROWS / ROWS * WARP, 2)
    max_pool3d_v7_march(pool_view<T> v, march_plan s)
{
    using V = value_type<T>;
    constexpr int BEYOND = K > S ? K - S : 1; /* rows that a warp lacks, or none */
    constexpr int STEPS = S > 4 ? S : 4;      /* unrolled: saves moving what is kept */
    constexpr int AHEAD = K <= 3 && K > S ? 4 : 2; /* slices in flight */
    GPO_SHARED(V, edge, [2][MOST_ROWS / ROWS][BEYOND][WARP]);
    const int lane = threadIdx.x % WARP;
    const bool is_alone = s.warps == 1;
    const int64_t items = is_alone ? ALONE : 1, own = threadIdx.x / WARP;
    const int64_t item = blockIdx.x * items + (is_alone ? own : 0);
    const int warp = is_alone ? 0 : static_cast<int>(own);
    if (item >= s.count) { /* only where warps share nothing: no barrier waits */
        return;
    }
    const march_place<T> at = place_of_march<S>(v, s, item, warp);
    const int64_t by_row = v.axis[POOL_W].out, by_slice = by_row * v.axis[POOL_H].out;
    T *y = at.y;
    trail<(K > S ? K : 1), V> behind;
    T next[AHEAD][ROWS];
    V most[ROWS], beyond[BEYOND];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        most[r] = least_value<V>();
    }
#pragma unroll
    for (int i = 0; i < BEYOND; i++) {
        beyond[i] = least_value<V>();
    }
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        load_slice(next[k], v, at, k);
    }
    for (int k0 = 0; k0 < at.slices; k0 += STEPS) {
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            const int k = k0 + j;
            V a[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                a[r] = value_of(next[j % AHEAD][r]);
            }
            load_slice(next[j % AHEAD], v, at, k + AHEAD);
            if constexpr (K > S) {
                behind.take(a);
            }
            else { /* windows that share no slice */
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    a[r] = j % S == 0 ? a[r] : largest(most[r], a[r]);
                    most[r] = a[r];
                }
            }
            if ((j - (K - 1)) % S != 0 || k < K - 1 || k >= at.slices) {
                continue;
            }
            if (K > S && !is_alone) {
                const int turn = (k / S) % 2;
#pragma unroll
                for (int i = 0; i < BEYOND; i++) {
                    edge[turn][warp][i][lane] = a[i];
                }
                __syncthreads();
                if (warp + 1 < s.warps) {
#pragma unroll
                    for (int i = 0; i < BEYOND; i++) {
                        beyond[i] = edge[turn][warp + 1][i][lane];
                    }
                }
            }
            store_slice<K, S>(a, beyond, y, by_row, at.outputs, s.lanes);
            y += by_slice;
        }
    }
}

template <typename T, int K, int S>
gpo_status
run_march(gpo_call *call)
{
    const march_plan s = plan_march(call);
    const int64_t items = s.warps == 1 ? ALONE : 1;
    const int warps = s.warps == 1 ? ALONE : s.warps;
    return GPO_LAUNCH(call, grid_of(ceil_div(s.count, items)),
                      dim3(static_cast<unsigned>(warps * WARP)), 0,
                      (max_pool3d_v7_march<T, K, S>), view_of<T>(call), s);
}

template <typename T>
gpo_status
max_pool3d_v7(gpo_call *call)
{
    if constexpr (sizeof(T) <= 4 && IS_FLOAT<T>) {
        switch (march_of(call)) {
            case 0x21:
                return run_march<T, 2, 1>(call);
            case 0x22:
                return run_march<T, 2, 2>(call);
            case 0x31:
                return run_march<T, 3, 1>(call);
            case 0x32:
                return run_march<T, 3, 2>(call);
            case 0x81:
                return run_march<T, 8, 1>(call);
            case 0x88:
                return run_march<T, 8, 8>(call);
            default:
                break;
        }
    }
    return max_pool3d_v6(call);
}

#endif
