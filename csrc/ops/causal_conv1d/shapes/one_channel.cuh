/*
 * one_channel.cuh  Shared by one_block and one_cluster: the rows of a channel, element by
 * element and with any strides, in shared memory.
 */
#ifndef GPO_CAUSAL_CONV1D_ONE_CHANNEL_CUH
#define GPO_CAUSAL_CONV1D_ONE_CHANNEL_CUH

#include "few_taps.cuh"

/* Strides of rows, which fit into 32 bits with all steps. */
struct block_strides {
    int b, t;
};

struct channel_work {
    divider steps; /* of a row */
    int elements;  /* of a channel */
    int share;     /* of a block of one_cluster */
    block_strides x, dy, out;
};

/* Elements `first` to first + count - 1 of a channel, several of a thread at once. */
template <typename T, typename V>
__device__ __forceinline__ void
stage_channel(V *x, V *g, const conv_view<T> &v, int64_t c, const channel_work &work,
              int first, int count)
{
    constexpr int AT_ONCE = 4;
    const int block = static_cast<int>(blockDim.x), steps = static_cast<int>(v.steps);
    const T *const from_x = v.x.row(0, c), *const from_dy = v.dy.row(0, c);
    for (int begin = threadIdx.x; begin < count; begin += AT_ONCE * block) {
        T got[2][AT_ONCE] = {};
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = begin + k * block;
            if (i < count) {
                const int b = work.steps.narrow(first + i), t = first + i - b * steps;
                got[0][k] = from_x[b * work.x.b + t * work.x.t];
                got[1][k] = from_dy[b * work.dy.b + t * work.dy.t];
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = begin + k * block;
            if (i < count) {
                x[i] = value_of(got[0][k]);
                g[i] = value_of(got[1][k]);
            }
        }
    }
}

/* The strides of rows, if all offsets from the first step fit into 32 bits. */
template <typename T>
bool
narrow_strides_of(block_strides *to, const row_view<T> &rows, int64_t batches,
                  int64_t steps)
{
    const int64_t b = rows.b < 0 ? -rows.b : rows.b, t = rows.t < 0 ? -rows.t : rows.t;
    *to = {static_cast<int>(rows.b), static_cast<int>(rows.t)};
    return b <= INT32_MAX / 2 / batches && t <= INT32_MAX / 2 / steps;
}

/* False if some offset does not. */
template <typename T>
bool
plan_channel(channel_work *work, const conv_view<T> &v)
{
    work->steps = divider_of(v.steps);
    work->elements = static_cast<int>(v.batches * v.steps);
    return narrow_strides_of(&work->x, v.x, v.batches, v.steps) &&
           narrow_strides_of(&work->dy, v.dy, v.batches, v.steps) &&
           narrow_strides_of(&work->out, v.out, v.batches, v.steps);
}

#endif
