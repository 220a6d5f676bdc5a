/*
 * wide_windows.cu  Windows that span more than a tile of v6: 8, 16 or 32 elements along
 * T and H, or 32 along W.  They are pooled as keys, one axis at a time, through global
 * memory.
 * Cost:  a key per element is written and read for each axis; the comparisons per axis
 *        are the kernel's size along it, not its logarithm.
 */
#include "../tiles.cuh"

/* Elements [first, first + count) of all planes in C order, as keys. */
template <typename K>
__global__ void
__launch_bounds__(BLOCK)
    max_pool3d_wide_windows_keys(key_source x, K *keys, int64_t first, int64_t count)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < count;
         k += step) {
        int64_t rest = first + k;
        int64_t offset = 0, position = 0;
#pragma unroll
        for (int d = POOL_W; d >= POOL_T; d--) {
            const int64_t at = rest % x.in[d];
            rest /= x.in[d];
            offset += at * x.by[d];
            position += at * x.position[d];
        }
        offset += x.plane(rest);
        by_dtype<K>(x.dtype, [&](auto type) {
            using T = decltype(type);
            const T e = static_cast<const T *>(x.x)[offset];
            keys[k] = key_of<K>(e, x.with_code, position);
        });
    }
}

/* Pools along one axis, whose neighbours lie `inner` keys apart. */
template <typename K>
__global__ void
__launch_bounds__(BLOCK)
    max_pool3d_wide_windows_line(const K *from, K *to, pool_axis a, int64_t inner,
                                 int64_t count, K least)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < count;
         i += step) {
        const int64_t line = i / inner, outer = line / a.out;
        const K *p = from + outer * a.in * inner + (i - line * inner);
        const stretch w = stretch_of(a, line - outer * a.out);
        K best = least;
        for (int64_t k = w.first; k < w.end; k += a.dilation) {
            best = larger(best, p[k * inner]);
        }
        to[i] = best;
    }
}

template <typename K>
__global__ void
__launch_bounds__(BLOCK)
    max_pool3d_wide_windows_elements(const K *keys, key_source x, key_target y,
                                     int64_t first, int64_t count)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    const bool turned = y.by[POOL_T] < y.by[POOL_H];
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < count;
         k += step) {
        int64_t i = first + k;
        if (turned) { /* keys lie in the order (H, T, W) of y's axes */
            const int64_t plane = i / y.outputs, rest = i - plane * y.outputs;
            const int64_t line = rest / y.by[POOL_T], w = rest - line * y.by[POOL_T];
            const int64_t lines = y.outputs / y.by[POOL_H]; /* along H */
            i = plane * y.outputs + line / lines * y.by[POOL_T] +
                line % lines * y.by[POOL_H] + w;
        }
        const found best = found_in(keys[k], x.with_code);
        by_dtype<K>(y.dtype, [&](auto type) {
            using T = decltype(type);
            static_cast<T *>(y.y)[i] = element_of<T>(best.key);
        });
        if (y.indices) {
            y.indices[i] = best.position;
        }
    }
}

/* Keys of a plane after pooling along T, then H, then W, and the planes of a step. */
struct line_plan {
    int64_t in, first, second; /* keys of a plane before, after T, after H */
    int64_t most;              /* of these, and of a plane of y */
    int64_t step;              /* as many planes as scratch memory takes; at least 1 */
};

static line_plan
plan_lines(const max_pool3d_plan &plan, const axis_order &order, double key_bytes)
{
    constexpr double ROOM = 1 << 28; /* bytes of each of the two arrays */
    const pool_axis &t = plan.axis[order.of[POOL_T]], &h = plan.axis[order.of[POOL_H]];
    const pool_axis &w = plan.axis[POOL_W];
    line_plan s = {plan.plane, t.out * h.in * w.in, t.out * h.out * w.in, 0, 0};
    s.most = s.in > s.first ? s.in : s.first;
    s.most = s.most > s.second ? s.most : s.second;
    s.most = s.most > plan.outputs ? s.most : plan.outputs;
    double fit = ROOM / (static_cast<double>(s.most) * key_bytes);
    fit = fit < 1 ? 1 : fit;
    s.step = fit < static_cast<double>(plan.planes) ? static_cast<int64_t>(fit)
                                                    : plan.planes;
    return s;
}

template <typename K>
static gpo_status
run_lines(gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const axis_order order = order_of(plan);
    const key_source x = source_of(call, order);
    const key_target y = target_of(call, order);
    const line_plan s = plan_lines(plan, order, sizeof(K));
    const pool_axis &t = plan.axis[order.of[POOL_T]], &h = plan.axis[order.of[POOL_H]];
    const pool_axis &w = plan.axis[POOL_W];
    void *one = nullptr, *two = nullptr;
    const size_t bytes = static_cast<size_t>(s.step * s.most) * sizeof(K);
    gpo_status status = plan.planes > 0 ? gpo_scratch(call, bytes, &one) : GPO_OK;
    if (!status && plan.planes > 0) {
        status = gpo_scratch(call, bytes, &two);
    }
    K *const p = static_cast<K *>(one), *const q = static_cast<K *>(two);
    const K least = least_key_of<K>(call);
    const auto line = [&](const K *from, K *to, const pool_axis &a, int64_t inner,
                          int64_t n) {
        return GPO_LAUNCH(call, grid_of(ceil_div(n, BLOCK)), BLOCK, 0,
                          (max_pool3d_wide_windows_line<K>), from, to, a, inner, n,
                          least);
    };
    for (int64_t at = 0; at < plan.planes && !status; at += s.step) {
        const int64_t n = least_of(s.step, plan.planes - at);
        status =
            GPO_LAUNCH(call, grid_of(ceil_div(n * s.in, BLOCK)), BLOCK, 0,
                       (max_pool3d_wide_windows_keys<K>), x, p, at * s.in, n * s.in);
        status = status ? status : line(p, q, t, h.in * w.in, n * s.first);
        status = status ? status : line(q, p, h, w.in, n * s.second);
        status = status ? status : line(p, q, w, 1, n * plan.outputs);
        status = status ? status
                        : GPO_LAUNCH(call, grid_of(ceil_div(n * plan.outputs, BLOCK)),
                                     BLOCK, 0, (max_pool3d_wide_windows_elements<K>), q,
                                     x, y, at * plan.outputs, n * plan.outputs);
    }
    return status;
}

gpo_status
max_pool3d_wide_windows(gpo_call *call)
{
    return with_keys(call, [&](auto k, auto) { return run_lines<decltype(k)>(call); });
}
