/*
 * gradient.cuh  What the rungs of max_pool3d_backward share: the view, which windows
 * contain an element, which element an index names.
 * See slices.cuh for the chunks of v3, rounds.cuh for the rounds of v4.
 */
#ifndef GPO_MAX_POOL3D_GRADIENT_CUH
#define GPO_MAX_POOL3D_GRADIENT_CUH

#include "../../device/warp.cuh"
#include "windows.cuh"

/* ---- the view ---- */

template <typename T>
struct gradient_arrays {
    const T *dy;
    const int64_t *indices;
    T *dx;
};

template <typename T>
void
set_arrays(const gpo_call *call, gradient_arrays<T> *v)
{
    v->dy = static_cast<const T *>(call->in[0].data);
    v->indices = static_cast<const int64_t *>(call->in[1].data);
    v->dx = static_cast<T *>(call->out[0].data);
}

template <typename T>
struct gradient_view : gradient_arrays<T> {
    int64_t planes, plane, outputs;
    int64_t in[POOL_AXES], out[POOL_AXES];
    bool has_windows;
    pool_axis axis[POOL_AXES];
    divider per_plane, per_slice, per_row; /* elements of x */
    divider of_plane, of_slice, of_row;    /* elements of dy */
    divider stride[POOL_AXES], dilation[POOL_AXES];
};

template <typename T>
gradient_view<T>
gradient_view_of(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis &h = plan.axis[POOL_H], &w = plan.axis[POOL_W];
    gradient_view<T> v = {};
    set_arrays<T>(call, &v);
    v.planes = plan.planes;
    v.plane = plan.plane;
    v.outputs = plan.outputs;
    v.has_windows = plan.has_windows;
    for (int d = 0; d < POOL_AXES; d++) {
        v.in[d] = plan.axis[d].in;
        v.out[d] = plan.axis[d].out;
        v.axis[d] = plan.axis[d];
        v.stride[d] = divider_of(plan.axis[d].stride);
        v.dilation[d] = divider_of(plan.axis[d].dilation);
    }
    v.per_plane = divider_of(plan.plane);
    v.per_slice = divider_of(h.in * w.in);
    v.per_row = divider_of(w.in);
    v.of_plane = divider_of(plan.outputs);
    v.of_slice = divider_of(h.out * w.out);
    v.of_row = divider_of(w.out);
    return v;
}

/* ---- which windows contain an element ---- */

struct window_range {
    int64_t first, last; /* last < first: none */
};

__device__ __forceinline__ window_range
windows_with(const pool_axis &a, const divider &stride, int64_t at)
{
    const int64_t past = at + a.padding;
    const int64_t early = past - (a.kernel - 1) * a.dilation;
    return {early > 0 ? stride.of(early + a.stride - 1) : 0,
            least_of(stride.of(past), a.out - 1)};
}

/* Whether position `at` of axis d is an element of window o. */
template <typename T>
__device__ __forceinline__ bool
is_element(const gradient_view<T> &v, int d, int64_t o, int64_t at)
{
    const pool_axis &a = v.axis[d];
    const int64_t past = at - (o * a.stride - a.padding);
    return past >= 0 && past <= (a.kernel - 1) * a.dilation &&
           (a.dilation == 1 || v.dilation[d].of(past) * a.dilation == past);
}

/* `index` if it is an element of window (ot, oh, ow), else -1. */
template <typename T>
__device__ __forceinline__ int64_t
index_of_window(const gradient_view<T> &v, int64_t ot, int64_t oh, int64_t ow,
                int64_t index)
{
    if (index < 0 || index >= v.plane) {
        return -1;
    }
    const int64_t t = v.per_slice.of(index), rest = index - t * v.per_slice.by;
    const int64_t h = v.per_row.of(rest), w = rest - h * v.per_row.by;
    const bool inside = is_element(v, POOL_T, ot, t) && is_element(v, POOL_H, oh, h) &&
                        is_element(v, POOL_W, ow, w);
    return inside ? index : -1;
}

template <typename T>
__device__ __forceinline__ int64_t
index_in_window(const gradient_view<T> &v, int64_t i, int64_t index)
{
    const int64_t ot = v.of_slice.of(i), out = i - ot * v.of_slice.by;
    const int64_t oh = v.of_row.of(out);
    return index_of_window(v, ot, oh, out - oh * v.of_row.by, index);
}

/* ---- which element an index names ---- */

/* Whether 0 <= n < size. */
__device__ __forceinline__ bool
is_within(int n, int64_t size)
{
    return static_cast<unsigned>(n) < static_cast<unsigned>(size);
}

struct coordinates {
    int t, h, w;
};

/* Of an index into a plane, by any view that has per_slice and per_row. */
template <typename View>
__device__ __forceinline__ coordinates
coordinates_of(const View &v, int index)
{
    const int t = v.per_slice.narrow(index);
    const int rest = index - t * static_cast<int>(v.per_slice.by);
    const int h = v.per_row.narrow(rest);
    return {t, h, rest - h * static_cast<int>(v.per_row.by)};
}

#endif
