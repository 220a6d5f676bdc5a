/*
 * backward_small_scales.cu  Gradients of scales of 1 and less: an element of dx is the
 * gradient of one output, or 0.  A thread has up to 16 adjacent bytes of dx, whatever
 * rows they are of; which outputs they belong to is tested for the outputs beside
 * the quotient, without a loop.
 * Cost:  each byte once; the loads of a thread are in flight together.
 */
#include "../walks.cuh"

struct small_walk {
    unsigned size; /* elements of dx */
    bool in_words; /* dx lies on 16 bytes */
    float scale[UPSAMPLE_SPATIAL];
    divider row, inner;     /* elements of a row, of its pixels */
    divider h, d, channels; /* lengths of dx */
};

/* Elements of dx of a thread. */
template <typename T>
constexpr int SHARE = PACK<T> < 4 ? PACK<T> : 4;

/*
 * The output that comes from s, or -1.  Below 2^20 the quotient is off by less than an
 * output, and by another half where the centres of outputs are mapped.
 */
__device__ __forceinline__ int
output_from(const upsample_axis &axis, float scale, int s)
{
    const int guess = static_cast<int>(static_cast<float>(s) * scale);
    const int out = static_cast<int>(axis.out);
    int found = -1;
#pragma unroll
    for (int i = -1; i <= 1; i++) {
        const int output = guess + i;
        const bool is_it =
            output >= 0 && output < out && source_column(axis, output) == s;
        found = is_it ? output : found;
    }
    return found;
}

/* Row `number` of dx: its row of dy; NULL if it has none. */
template <typename T>
__device__ __forceinline__ const T *
row_of_dy(const upsample_plan &p, const small_walk &walk, int number)
{
    const int slice = walk.h.narrow(number), plane = walk.d.narrow(slice);
    const int a = walk.channels.narrow(plane);
    const int d = output_from(p.axis[0], walk.scale[0],
                              slice - plane * static_cast<int>(walk.d.by));
    const int h = output_from(p.axis[1], walk.scale[1],
                              number - slice * static_cast<int>(walk.h.by));
    const row at = {
        static_cast<unsigned>(a),
        static_cast<unsigned>(plane - a * static_cast<int>(walk.channels.by)), 0, 0};
    const T *y = static_cast<const T *>(p.from) + row_offset(p, at, d, h);
    return d < 0 || h < 0 ? nullptr : y;
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_small_scales_kernel(upsample_plan p, small_walk walk)
{
    using V = typename sum_of<T>::type;
    const unsigned first = (blockIdx.x * BLOCK + threadIdx.x) * SHARE<T>;
    if (first >= walk.size) {
        return;
    }
    const int left = static_cast<int>(walk.size - first);
    const int length = static_cast<int>(walk.row.by);
    const int inner = static_cast<int>(walk.inner.by);
    int number = walk.row.narrow(static_cast<int>(first));
    int column = static_cast<int>(first) - number * length;
    const T *y = row_of_dy<T>(p, walk, number);
    T e[SHARE<T>] = {};
    bool has[SHARE<T>];
#pragma unroll
    for (int k = 0; k < SHARE<T>; k++) {
        if (column == length) {
            column = 0;
            number++;
            y = k < left ? row_of_dy<T>(p, walk, number) : nullptr;
        }
        const int s = walk.inner.narrow(column);
        const int w = output_from(p.axis[2], walk.scale[2], s);
        has[k] = y && w >= 0 && k < left;
        if (has[k]) {
            e[k] = y[w * p.stride[UPSAMPLE_W] +
                     (column - s * inner) * p.stride[UPSAMPLE_I]];
        }
        column++;
    }
    V sum[SHARE<T>] = {};
#pragma unroll
    for (int k = 0; k < SHARE<T>; k++) {
        if (has[k]) { /* as others add it: -0 becomes 0 */
            add_to(sum[k], e[k]);
        }
    }
    T *const to = static_cast<T *>(p.to) + first;
    if (walk.in_words && left >= SHARE<T>) {
        store_sums<T, SHARE<T>>(to, sum);
        return;
    }
#pragma unroll
    for (int k = 0; k < SHARE<T>; k++) {
        if (k < left) {
            to[k] = stored_as<T>(sum[k]);
        }
    }
}

template <typename T>
gpo_status
upsample_nearest_backward_small_scales(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    small_walk walk = {};
    walk.size = static_cast<unsigned>(p.size);
    walk.in_words = lies_on(call->out[0].data, 16);
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        walk.scale[k] = 1 / p.axis[k].inverse;
    }
    walk.row = divider_of(p.row);
    walk.inner = divider_of(p.inner);
    walk.h = divider_of(p.axis[1].in);
    walk.d = divider_of(p.axis[0].in);
    walk.channels = divider_of(p.channels);
    return GPO_LAUNCH(call, grid_of_threads(ceil_div(p.size, SHARE<T>)), BLOCK, 0,
                      (upsample_nearest_backward_small_scales_kernel<T>),
                      argument_of(call), walk);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_backward_small_scales<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
