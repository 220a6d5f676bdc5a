/*
 * backward_strided_windows.cu  The gradient of windows that are fewer than elements.  A
 * block owns a stretch of dx and fills it with zeros; then a thread per window asks the
 * windows that have the element which its own names.  The first of those that name it
 * adds their gradients in the order of dy, and stores the sum.
 * Cost:  dx is written once in words of 16 bytes, and an element for each window that
 *        leads; an index per window and neighbour, from L1 and L2; one barrier.
 */
#include "../gather.cuh"

template <typename T>
struct stretch_view {
    const T *dy;
    const int64_t *indices;
    T *dx;
    int planes, plane, outputs; /* elements of a plane of dx, of dy */
    gather_axis axis[POOL_AXES];
    bool has_gaps;
    divider of_plane, of_slice, of_row; /* windows */
    divider per_slice, per_row;         /* elements */
    int together;                       /* planes of a block */
    int cut;                            /* the axis that is cut into chunks */
    divider chunks;                     /* of a plane; 1 if it has several planes */
    int length;                         /* of a chunk along that axis */
    int inner, windows_inner;           /* elements and windows of a step along it */
};

/* What a block owns: elements of dx, and the windows that reach into them. */
struct owned {
    int64_t plane;   /* the first */
    int begin, end;  /* elements, from that plane on */
    int first, last; /* windows, likewise; `last` is not one of them */
};

template <typename T>
__device__ __forceinline__ owned
owned_by(const stretch_view<T> &v, int block)
{
    const int group = v.chunks.narrow(block);
    const int chunk = block - group * static_cast<int>(v.chunks.by);
    const int first = group * v.together, left = v.planes - first;
    const int planes = left < v.together ? left : v.together;
    if (v.chunks.by == 1) {
        return {first, 0, planes * v.plane, 0, planes * v.outputs};
    }
    const gather_axis &a = v.axis[v.cut];
    const int from = chunk * v.length,
              to = a.in - from < v.length ? a.in : from + v.length;
    const int_range over = windows_over(a, from, to - 1);
    return {first, from * v.inner, to * v.inner, over.first * v.windows_inner,
            (over.last + 1) * v.windows_inner};
}

/* Zeros in words of 16 bytes, and elements before and after. */
template <typename T>
__device__ __forceinline__ void
clear(T *to, int n)
{
    constexpr int PACK = 16 / static_cast<int>(sizeof(T));
    const T zero = stored_as<T>(value_type<T>(0));
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(to) % 16 / sizeof(T));
    int before = past > 0 ? PACK - past : 0;
    before = before < n ? before : n;
    const int words = (n - before) / PACK, after = before + words * PACK;
    for (int k = threadIdx.x; k < words; k += BLOCK) {
        reinterpret_cast<uint4 *>(to + before)[k] = {0, 0, 0, 0};
    }
    for (int k = threadIdx.x; k < before + n - after; k += BLOCK) {
        to[k < before ? k : after + k - before] = zero;
    }
}

struct spot {
    int t, h, w;
};

/* The sum for element e of the windows that name it; *leads: none comes before `out`. */
template <typename T>
__device__ __forceinline__ value_type<T>
sum_of_named(const stretch_view<T> &v, int64_t plane, const spot &e, int index, int out,
             bool *leads)
{
    const gather_axis &at = v.axis[POOL_T], &ah = v.axis[POOL_H], &aw = v.axis[POOL_W];
    const int_range over_t = windows_over(at, e.t, e.t);
    const int_range over_h = windows_over(ah, e.h, e.h);
    const int_range over_w = windows_over(aw, e.w, e.w);
    value_type<T> sum = 0;
    *leads = true;
    for (int t = over_t.first; t <= over_t.last && *leads; t++) {
        for (int h = over_h.first; h <= over_h.last && *leads; h++) {
            if (v.has_gaps && !(window_has(at, t, e.t) && window_has(ah, h, e.h))) {
                continue;
            }
            const int row = (t * ah.out + h) * aw.out;
#pragma unroll 4
            for (int w = over_w.first; w <= over_w.last; w++) {
                if (v.indices[plane + row + w] == index &&
                    (!v.has_gaps || window_has(aw, w, e.w))) {
                    *leads = *leads && row + w >= out;
                    sum += value_of(v.dy[plane + row + w]);
                }
            }
        }
    }
    return sum;
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_backward_strided_windows_kernel(stretch_view<T> v)
{
    const owned own = owned_by(v, blockIdx.x);
    const int64_t windows = own.plane * v.outputs; /* before the first plane */
    T *const dx = v.dx + own.plane * v.plane;
    int o = own.first + threadIdx.x;
    int64_t found = o < own.last ? v.indices[windows + o] : -1; /* on its way */
    clear(dx + own.begin, own.end - own.begin);
    __syncthreads(); /* zeros come before sums */
    while (o < own.last) {
        const int64_t next = own.last - o > BLOCK ? v.indices[windows + o + BLOCK] : -1;
        const int plane = v.of_plane.narrow(o), out = o - plane * v.outputs;
        const int index = found >= 0 && found < v.plane ? static_cast<int>(found) : -1;
        const int place = plane * v.plane + index;
        if (index >= 0 && place >= own.begin && place < own.end) {
            const int t = v.of_slice.narrow(out);
            const int rest = out - t * static_cast<int>(v.of_slice.by);
            const int h = v.of_row.narrow(rest);
            const int w = rest - h * static_cast<int>(v.of_row.by);
            spot e;
            e.t = v.per_slice.narrow(index);
            const int in_slice = index - e.t * static_cast<int>(v.per_slice.by);
            e.h = v.per_row.narrow(in_slice);
            e.w = in_slice - e.h * static_cast<int>(v.per_row.by);
            if (window_has(v.axis[POOL_T], t, e.t) &&
                window_has(v.axis[POOL_H], h, e.h) &&
                window_has(v.axis[POOL_W], w, e.w)) {
                bool leads;
                const int64_t first = windows + static_cast<int64_t>(plane) * v.outputs;
                const value_type<T> sum = sum_of_named(v, first, e, index, out, &leads);
                if (leads) {
                    dx[place] = stored_as<T>(sum);
                }
            }
        }
        found = next;
        o += BLOCK;
    }
}

/* ---- launch ---- */

/* Blocks that fill the GPU, of several planes or a part of one. */
template <typename T>
static int64_t
share_out(const gpo_call *call, stretch_view<T> *v)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    int64_t size = plan.planes * plan.plane / (STRETCHES * gpo_processors(call));
    size = size < LEAST_STRETCH ? LEAST_STRETCH : least_of(size, MOST_STRETCH);
    v->together = 1;
    v->chunks = divider_of(1);
    if (plan.plane <= size) {
        v->together = static_cast<int>(size / plan.plane);
        return ceil_div(plan.planes, v->together);
    }
    v->cut = cut_of(plan);
    const pool_axis &a = plan.axis[v->cut];
    int64_t length = a.in * size / plan.plane;
    length = length > pool_extent(&a) / 2 ? length : pool_extent(&a) / 2;
    length = length > 1 ? length : 1;
    v->length = static_cast<int>(least_of(length, a.in));
    v->chunks = divider_of(ceil_div(a.in, v->length));
    v->inner = static_cast<int>(plan.plane / a.in);
    v->windows_inner = static_cast<int>(plan.outputs / a.out);
    return plan.planes * v->chunks.by;
}

template <typename T>
gpo_status
max_pool3d_backward_strided_windows(gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis &h = plan.axis[POOL_H], &w = plan.axis[POOL_W];
    stretch_view<T> v = {};
    v.dy = static_cast<const T *>(call->in[0].data);
    v.indices = static_cast<const int64_t *>(call->in[1].data);
    v.dx = static_cast<T *>(call->out[0].data);
    v.planes = static_cast<int>(plan.planes);
    v.plane = static_cast<int>(plan.plane);
    v.outputs = static_cast<int>(plan.outputs);
    v.has_gaps = plan.has_gaps;
    for (int d = 0; d < POOL_AXES; d++) {
        v.axis[d] = gather_axis_of(plan.axis[d]);
    }
    v.of_plane = divider_of(plan.outputs);
    v.of_slice = divider_of(h.out * w.out);
    v.of_row = divider_of(w.out);
    v.per_slice = divider_of(h.in * w.in);
    v.per_row = divider_of(w.in);
    const int64_t blocks = share_out(call, &v);
    return GPO_LAUNCH(call, grid_of(blocks), BLOCK, 0,
                      (max_pool3d_backward_strided_windows_kernel<T>), v);
}

#define INSTANTIATE(T) \
    template gpo_status max_pool3d_backward_strided_windows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
