/*
 * backward_small_scales.cu  Gradients of scales of 1 and less: an element of dx is the
 * gradient of one output, or 0.  A thread has up to 16 adjacent bytes of dx, whatever
 * rows they are of; which outputs they belong to is tested for the outputs beside
 * the quotient, without a loop.
 * Where sources of neighbouring outputs are a power of two apart (x 0.5), the output of a
 * source is a shift away, and a thread has 16 bytes of 16-bit floats, too.
 * Cost:  each byte once; the loads of a thread are in flight together.
 */
#include "../walks.cuh"

struct small_walk {
    unsigned size; /* elements of dx */
    bool in_words; /* dx lies on 16 bytes */
    float scale[UPSAMPLE_SPATIAL];
    int log[UPSAMPLE_SPATIAL];    /* outputs have sources 1 << log apart, */
    int center[UPSAMPLE_SPATIAL]; /* from this one on */
    divider row, inner;           /* elements of a row, of its pixels */
    divider h, d, channels;       /* lengths of dx */
};

/* Elements of dx of a thread; `POWERS`: sources are powers of two apart on every axis. */
template <typename T, bool POWERS>
constexpr int SHARE = PACK<T> < 4 || POWERS ? PACK<T> : 4;

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

template <bool POWERS>
__device__ __forceinline__ int
output_from(const upsample_plan &p, const small_walk &walk, int k, int s)
{
    if constexpr (POWERS) {
        const int output = s >> walk.log[k];
        const bool is_it = s - (output << walk.log[k]) == walk.center[k] &&
                           output < static_cast<int>(p.axis[k].out);
        return is_it ? output : -1;
    }
    else {
        return output_from(p.axis[k], walk.scale[k], s);
    }
}

/* Row `number` of dx: its row of dy; NULL if it has none. */
template <typename T, bool POWERS>
__device__ __forceinline__ const T *
row_of_dy(const upsample_plan &p, const small_walk &walk, int number)
{
    const int slice = walk.h.narrow(number), plane = walk.d.narrow(slice);
    const int a = walk.channels.narrow(plane);
    const int d =
        output_from<POWERS>(p, walk, 0, slice - plane * static_cast<int>(walk.d.by));
    const int h =
        output_from<POWERS>(p, walk, 1, number - slice * static_cast<int>(walk.h.by));
    const row at = {
        static_cast<unsigned>(a),
        static_cast<unsigned>(plane - a * static_cast<int>(walk.channels.by)), 0, 0};
    const T *y = static_cast<const T *>(p.from) + row_offset(p, at, d, h);
    return d < 0 || h < 0 ? nullptr : y;
}

template <typename T, bool POWERS>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_small_scales_kernel(upsample_plan p, small_walk walk)
{
    using V = typename sum_of<T>::type;
    const unsigned first = (blockIdx.x * BLOCK + threadIdx.x) * SHARE<T, POWERS>;
    if (first >= walk.size) {
        return;
    }
    const int left = static_cast<int>(walk.size - first);
    const int length = static_cast<int>(walk.row.by);
    const int inner = static_cast<int>(walk.inner.by);
    int number = walk.row.narrow(static_cast<int>(first));
    int column = static_cast<int>(first) - number * length;
    const T *y = row_of_dy<T, POWERS>(p, walk, number);
    T e[SHARE<T, POWERS>] = {};
    bool has[SHARE<T, POWERS>];
#pragma unroll
    for (int k = 0; k < SHARE<T, POWERS>; k++) {
        if (column == length) {
            column = 0;
            number++;
            y = k < left ? row_of_dy<T, POWERS>(p, walk, number) : nullptr;
        }
        const int s = walk.inner.narrow(column);
        const int w = output_from<POWERS>(p, walk, 2, s);
        has[k] = y && w >= 0 && k < left;
        if (has[k]) {
            e[k] = y[w * p.stride[UPSAMPLE_W] +
                     (column - s * inner) * p.stride[UPSAMPLE_I]];
        }
        column++;
    }
    V sum[SHARE<T, POWERS>] = {};
#pragma unroll
    for (int k = 0; k < SHARE<T, POWERS>; k++) {
        if (has[k]) { /* as others add it: -0 becomes 0 */
            add_to(sum[k], e[k]);
        }
    }
    T *const to = static_cast<T *>(p.to) + first;
    if (walk.in_words && left >= SHARE<T, POWERS>) {
        store_sums<T, SHARE<T, POWERS>>(to, sum);
        return;
    }
#pragma unroll
    for (int k = 0; k < SHARE<T, POWERS>; k++) {
        if (k < left) {
            to[k] = stored_as<T>(sum[k]);
        }
    }
}

/*
 * Whether the sources of an axis are a power of two apart: products of outputs, or of
 * their centres, are then exact, and none is past the last element.
 */
static bool
has_powers(const upsample_axis &axis, int *log, int *center)
{
    *log = ilogbf(axis.inverse);
    *center = static_cast<int>(floorf(axis.shift * axis.inverse));
    return ldexpf(1, *log) == axis.inverse &&
           ((axis.out - 1) << *log) + *center <= axis.in - 1;
}

template <typename T, bool POWERS>
static gpo_status
run(gpo_call *call, const small_walk &walk)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    return GPO_LAUNCH(call, grid_of_threads(ceil_div(p.size, SHARE<T, POWERS>)), BLOCK,
                      0, (upsample_nearest_backward_small_scales_kernel<T, POWERS>),
                      argument_of(call), walk);
}

template <typename T>
gpo_status
upsample_nearest_backward_small_scales(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    small_walk walk = {};
    walk.size = static_cast<unsigned>(p.size);
    walk.in_words = lies_on(call->out[0].data, 16);
    bool powers = true;
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        walk.scale[k] = 1 / p.axis[k].inverse;
        powers = has_powers(p.axis[k], &walk.log[k], &walk.center[k]) && powers;
    }
    walk.row = divider_of(p.row);
    walk.inner = divider_of(p.inner);
    walk.h = divider_of(p.axis[1].in);
    walk.d = divider_of(p.axis[0].in);
    walk.channels = divider_of(p.channels);
    return powers ? run<T, true>(call, walk) : run<T, false>(call, walk);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_backward_small_scales<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
