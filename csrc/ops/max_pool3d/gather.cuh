/*
 * gather.cuh  What the shape kernels of max_pool3d_backward share: windows in 31 bits,
 * which of them have an element, and zeros.
 */
#ifndef GPO_MAX_POOL3D_GATHER_CUH
#define GPO_MAX_POOL3D_GATHER_CUH

#include "gradient_shapes.cuh"

#include <limits.h>

struct gather_axis {
    int in, out, kernel, stride, padding, dilation;
    divider by_stride;
};

inline gather_axis
gather_axis_of(const pool_axis &a)
{
    return {static_cast<int>(a.in),      static_cast<int>(a.out),
            static_cast<int>(a.kernel),  static_cast<int>(a.stride),
            static_cast<int>(a.padding), static_cast<int>(a.dilation),
            divider_of(a.stride)};
}

struct int_range {
    int first, last;
};

/* The windows with an element of [from, to]. */
__device__ __forceinline__ int_range
windows_over(const gather_axis &a, int from, int to)
{
    const int early = from + a.padding - (a.kernel - 1) * a.dilation;
    const int last = a.by_stride.narrow(to + a.padding);
    return {early > 0 ? a.by_stride.narrow(early + a.stride - 1) : 0,
            last < a.out - 1 ? last : a.out - 1};
}

/* What a kernel is given of a call that 31 bits can count. */
template <typename T>
struct narrow_view : gradient_arrays<T> {
    int planes, plane, outputs; /* elements of a plane of dx, of dy */
    gather_axis axis[POOL_AXES];
    divider dilation[POOL_AXES];
    divider per_slice, per_row; /* elements of a plane */
};

template <typename T>
void
set_narrow(const gpo_call *call, narrow_view<T> *v)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    set_arrays<T>(call, v);
    v->planes = static_cast<int>(plan.planes);
    v->plane = static_cast<int>(plan.plane);
    v->outputs = static_cast<int>(plan.outputs);
    for (int d = 0; d < POOL_AXES; d++) {
        v->axis[d] = gather_axis_of(plan.axis[d]);
        v->dilation[d] = divider_of(plan.axis[d].dilation);
    }
    v->per_slice = divider_of(plan.axis[POOL_H].in * plan.axis[POOL_W].in);
    v->per_row = divider_of(plan.axis[POOL_W].in);
}

/* A window on its way from memory. */
template <typename T>
struct coming_window {
    int64_t found; /* its index, -1 if there is none */
    T gradient;
};

template <typename T>
__device__ __forceinline__ coming_window<T>
bring_window(const int64_t *indices, const T *dy, bool is_there, int at)
{
    coming_window<T> o = {-1, stored_as<T>(value_type<T>(0))};
    if (is_there) {
        o.found = indices[at];
        o.gradient = dy[at];
    }
    return o;
}

/* An index that a window found, as an element of its plane if it is one. */
struct found_element {
    bool is_in_plane;
    int index;
    coordinates at;
};

template <typename T>
__device__ __forceinline__ found_element
element_of(const narrow_view<T> &v, int64_t found)
{
    const bool is_in_plane =
        static_cast<uint64_t>(found) < static_cast<uint64_t>(v.plane);
    const int index = static_cast<int>(found) & INT_MAX;
    return {is_in_plane, index, coordinates_of(v, index)};
}

/* n zeros by a block: in words of 16 bytes, and elements before and after. */
template <typename T>
__device__ __forceinline__ void
clear(T *to, int n)
{
    constexpr int PACK = 16 / static_cast<int>(sizeof(T));
    const int tid = threadIdx.x, threads = blockDim.x;
    const T zero = stored_as<T>(value_type<T>(0));
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(to) % 16 / sizeof(T));
    int before = past > 0 ? PACK - past : 0;
    before = before < n ? before : n;
    const int words = (n - before) / PACK, after = before + words * PACK;
    for (int k = tid; k < words; k += threads) {
        reinterpret_cast<uint4 *>(to + before)[k] = {0, 0, 0, 0};
    }
    for (int k = tid; k < before + n - after; k += threads) {
        to[k < before ? k : after + k - before] = zero;
    }
}

/* Whether position `at` is an element of window o. */
__device__ __forceinline__ bool
window_has(const gather_axis &a, int o, int at)
{
    const int past = at - (o * a.stride - a.padding);
    return past >= 0 && past <= (a.kernel - 1) * a.dilation &&
           (a.dilation == 1 || past % a.dilation == 0);
}

/* ---- runs of neighbouring elements, of which a thread or some lanes have one ---- */

template <typename T>
struct run_view : gradient_arrays<T> {
    int64_t outputs; /* of a plane */
    gather_axis axis[POOL_AXES];
    int units;     /* runs */
    bool in_words; /* every run is whole, and stored as one word */
    divider per_row, per_slice, per_plane; /* units, rows, slices */
};

template <typename T, int ITEMS>
struct alignas(ITEMS * sizeof(T)) element_run {
    T v[ITEMS];
};

/* Fills in the view of a call by runs of ITEMS elements; returns their number. */
template <int ITEMS, typename T>
int64_t
set_runs(const gpo_call *call, run_view<T> *v)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    set_arrays<T>(call, v);
    v->outputs = plan.outputs;
    for (int d = 0; d < POOL_AXES; d++) {
        v->axis[d] = gather_axis_of(plan.axis[d]);
    }
    const int64_t width = plan.axis[POOL_W].in, per_row = ceil_div(width, ITEMS);
    v->per_row = divider_of(per_row);
    v->per_slice = divider_of(plan.axis[POOL_H].in);
    v->per_plane = divider_of(plan.axis[POOL_T].in);
    v->in_words =
        width % ITEMS == 0 &&
        reinterpret_cast<uintptr_t>(v->dx) % sizeof(element_run<T, ITEMS>) == 0;
    const int64_t units = plan.planes * (plan.plane / width) * per_row;
    v->units = static_cast<int>(units);
    return units;
}

/* Stores the sums of a run, of which `held` elements are in the row. */
template <typename T, int ITEMS>
__device__ __forceinline__ void
store_run(T *to, const value_type<T> (&sum)[ITEMS], int held, bool in_words)
{
    if (in_words) {
        element_run<T, ITEMS> run;
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            run.v[k] = stored_as<T>(sum[k]);
        }
        *reinterpret_cast<element_run<T, ITEMS> *>(to) = run;
        return;
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (k < held) {
            to[k] = stored_as<T>(sum[k]);
        }
    }
}

#endif
