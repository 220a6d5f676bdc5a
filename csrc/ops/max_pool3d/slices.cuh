/*
 * slices.cuh  Parts of v3 of max_pool3d_backward: an index as a code of one word,
 * chunks of slices and their shared memory.  See ladder/backward_v3_slices.cuh for the
 * kernel.
 */
#ifndef GPO_MAX_POOL3D_SLICES_CUH
#define GPO_MAX_POOL3D_SLICES_CUH

#include "gradient.cuh"

constexpr int FIELD = 10, MOST_SIDE = 1 << FIELD; /* bits of a coordinate in a code */
constexpr int FIELD_MASK = MOST_SIDE - 1;

struct slice_plan {
    int depth;      /* slices of dy in the ring */
    int chunk;      /* slices of x per item */
    divider chunks; /* items of a plane */
    int64_t items;
};

/* is_element() in 32 bits. */
__device__ __forceinline__ bool
is_near(const pool_axis &a, int o, int at)
{
    const int past =
        at - (o * static_cast<int>(a.stride) - static_cast<int>(a.padding));
    return is_within(past, (a.kernel - 1) * a.dilation + 1) &&
           (a.dilation == 1 || past % static_cast<int>(a.dilation) == 0);
}

/* The coordinates of an index in one word; -1 outside of window (ot, oh, ow). */
template <typename T>
__device__ __forceinline__ int
code_of_window(const gradient_view<T> &v, int ot, int oh, int ow, int64_t found)
{
    if (found < 0 || found >= v.plane) {
        return -1;
    }
    const coordinates at = coordinates_of(v, static_cast<int>(found));
    const bool inside = is_near(v.axis[POOL_T], ot, at.t) &&
                        is_near(v.axis[POOL_H], oh, at.h) &&
                        is_near(v.axis[POOL_W], ow, at.w);
    return inside ? at.t << 2 * FIELD | at.h << FIELD | at.w : -1;
}

/* Bits first to last of a word; none if last < first. */
__device__ __forceinline__ unsigned
bits_between(int first, int last)
{
    return last < first ? 0u : ~0u >> (31 - last) & ~0u << first;
}

/*
 * Chunks that fill the GPU, for sums of `size` bytes; *bytes of shared memory.  False
 * if they do not fit or no windows overlap.
 */
inline bool
plan_slices(const gpo_call *call, size_t size, slice_plan *s, size_t *bytes)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    bool fits = !plan.is_apart;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        fits = fits && a.in <= MOST_SIDE && a.out <= MOST_SIDE;
    }
    const pool_axis &t = plan.axis[POOL_T], &h = plan.axis[POOL_H];
    const pool_axis &w = plan.axis[POOL_W];
    s->depth = static_cast<int>(least_of(ceil_div(pool_extent(&t), t.stride), t.out));
    const double slice = static_cast<double>(h.out) * static_cast<double>(w.out);
    const double lines = static_cast<double>(BLOCK / WARP) * static_cast<double>(w.out);
    const double ranges = static_cast<double>(h.in + w.in);
    const double code = sizeof(int), range = sizeof(int2);
    const double wanted =
        (slice * (s->depth + 1.0) + lines) * (static_cast<double>(size) + code) +
        ranges * range;
    if (!fits ||
        wanted > static_cast<double>(least_of(SLICES_BYTES, shared_room(call)))) {
        return false;
    }
    const int64_t blocks = 4 * gpo_processors(call);
    int64_t chunk = t.in;
    while (plan.planes * ceil_div(t.in, chunk) < blocks &&
           chunk > 2 * pool_extent(&t)) {
        chunk = ceil_div(chunk, 2);
    }
    s->chunk = static_cast<int>(chunk);
    s->chunks = divider_of(ceil_div(t.in, chunk));
    s->items = plan.planes * s->chunks.by;
    *bytes = static_cast<size_t>(wanted);
    return true;
}

#endif
