/*
 * backward.cuh  The ladder of max_pool3d_backward on CUDA, v0 to v4, then the table and
 * the choice; the last part of cuda.cu.  Order: the look at all indices, rungs.  No rung
 * adds by atomics: each sum has one owner, who adds in an order that the sizes alone
 * decide.
 * Not here: what rungs share (gradient.cuh).
 */
#ifndef GPO_MAX_POOL3D_BACKWARD_CUH
#define GPO_MAX_POOL3D_BACKWARD_CUH

#include "gradient.cuh"

/* ---- the look at all indices ---- */

constexpr unsigned long long NONE_BAD = ~0ull;

static __global__ void
__launch_bounds__(BLOCK)
    max_pool3d_backward_look(const int64_t *indices, int64_t n, int64_t plane,
                             unsigned long long *bad)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        const int64_t index = indices[i];
        if (index < -1 || index >= plane) {
            atomicMin(bad, static_cast<unsigned long long>(i));
        }
    }
}

static __global__ void
max_pool3d_backward_begin(unsigned long long *bad)
{
    *bad = NONE_BAD;
}

/* IndexError for the first index that names no element; waits for the stream. */
static gpo_status
look_at_indices(gpo_call *call, const pool_gradient_plan &plan)
{
    const int64_t n = plan.planes * plan.outputs;
    void *memory = nullptr;
    if (plan.has_windows || n == 0) {
        return GPO_OK;
    }
    gpo_status status = gpo_may_wait(call);
    if (!status) {
        status = gpo_scratch(call, sizeof(unsigned long long), &memory);
    }
    unsigned long long *const bad = static_cast<unsigned long long *>(memory);
    unsigned long long at = NONE_BAD;
    if (!status) {
        status = GPO_LAUNCH(call, dim3(1), dim3(1), 0, max_pool3d_backward_begin, bad);
    }
    if (!status) {
        status = GPO_LAUNCH(call, dim3(grid_of(ceil_div(n, BLOCK), 1 << 16)), BLOCK, 0,
                            max_pool3d_backward_look, plan.indices, n, plan.plane, bad);
    }
    if (!status) {
        status = gpo_fetch(call, &at, bad, sizeof at);
    }
    if (status || at == NONE_BAD) {
        return status;
    }
    int64_t value = 0;
    status = gpo_fetch(call, &value, plan.indices + at, sizeof value);
    return status ? status
                  : max_pool3d_out_of_range(call, plan.plane, value,
                                            static_cast<int64_t>(at));
}

/*
 * v0  One owner per stretch of a plane.
 * Now:   a warp owns 8 KB of sums in shared memory and walks through all gradients of
 *        the plane, 32 at a time; those whose index lies in its stretch are added, and
 *        lanes that meet in one element take turns in the order of dy.
 * Cost:  every stretch reads all indices of its plane: plane / 2048 times for float32.
 *        Needs to know nothing of the windows.
 * Left:  knowing the windows, an element need only ask those that have it -> v1.
 */
constexpr int OWNERS = 4; /* warps of a block */

template <typename T>
__global__ void
__launch_bounds__(OWNERS *WARP)
    max_pool3d_backward_v0_owner(gradient_view<T> v, int64_t stretches, int64_t items)
{
    using V = value_type<T>;
    constexpr int LENGTH = 8192 / sizeof(V);
    GPO_SHARED(V, sums, [OWNERS][LENGTH]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    V *const mine = sums[warp];
    const unsigned below = (1u << lane) - 1;
    for (int64_t item = static_cast<int64_t>(blockIdx.x) * OWNERS + warp; item < items;
         item += static_cast<int64_t>(gridDim.x) * OWNERS) {
        const int64_t plane = item / stretches;
        const int64_t first = (item - plane * stretches) * LENGTH;
        const int n = static_cast<int>(least_of(LENGTH, v.plane - first));
        for (int e = lane; e < n; e += WARP) {
            mine[e] = 0;
        }
        __syncwarp();
        for (int64_t start = 0; start < v.outputs; start += WARP) {
            const int64_t i = start + lane;
            int64_t index = -1;
            V gradient = 0;
            if (i < v.outputs) {
                index = v.indices[plane * v.outputs + i];
                gradient = value_of(v.dy[plane * v.outputs + i]);
                index = v.has_windows ? index_in_window(v, i, index) : index;
            }
            const int64_t past = index - first;
            const bool counts = index >= 0 && past >= 0 && past < n;
            if (!__any_sync(ALL_LANES, counts)) {
                continue;
            }
            const int place = counts ? static_cast<int>(past) : -1 - lane;
            const unsigned peers = __match_any_sync(ALL_LANES, place);
            const int turn = __popc(peers & below);
            for (int k = 0; __any_sync(ALL_LANES, counts && turn >= k); k++) {
                if (counts && turn == k) {
                    mine[place] += gradient;
                }
                __syncwarp();
            }
        }
        for (int e = lane; e < n; e += WARP) {
            v.dx[plane * v.plane + first + e] = stored_as<T>(mine[e]);
        }
        __syncwarp();
    }
}

template <typename T>
static gpo_status
run_owners(gpo_call *call, const gradient_view<T> &v)
{
    constexpr int64_t LENGTH = 8192 / sizeof(value_type<T>);
    const int64_t stretches = ceil_div(v.plane, LENGTH), items = v.planes * stretches;
    const dim3 grid(grid_of(ceil_div(items, OWNERS), MAX_GRID_X));
    return GPO_LAUNCH(call, grid, OWNERS * WARP, 0, (max_pool3d_backward_v0_owner<T>),
                      v, stretches, items);
}

template <typename T>
static gpo_status
max_pool3d_backward_v0(gpo_call *call)
{
    pool_gradient_plan plan;
    max_pool3d_make_gradient_plan(call, &plan);
    const gpo_status status = look_at_indices(call, plan);
    return status ? status : run_owners(call, gradient_view_of<T>(plan));
}

/*
 * v1  An element asks its windows.
 * Was:   v0 reads all indices of a plane for each stretch of it.
 * Now:   a thread per element of x goes through the windows that have it and adds the
 *        gradients of those whose index names it.
 * Cost:  one index per window and element: (kernel / stride)^3 per element, out of L1
 *        and L2; dy where the index matches.  Without kernel_size it is v0.
 * Left:  where windows do not overlap, neighbours of one window read one index again
 *        -> v2.
 */
template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_backward_v1_gather(gradient_view<T> v, int64_t n)
{
    using V = value_type<T>;
    const pool_axis *a = v.axis;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t e = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; e < n;
         e += step) {
        const int64_t plane = v.per_plane.of(e), index = e - plane * v.plane;
        const int64_t t = v.per_slice.of(index), rest = index - t * v.per_slice.by;
        const int64_t h = v.per_row.of(rest), w = rest - h * v.per_row.by;
        const window_range rt = windows_with(a[POOL_T], v.stride[POOL_T], t);
        const window_range rh = windows_with(a[POOL_H], v.stride[POOL_H], h);
        const window_range rw = windows_with(a[POOL_W], v.stride[POOL_W], w);
        const bool gaps =
            a[POOL_T].dilation > 1 || a[POOL_H].dilation > 1 || a[POOL_W].dilation > 1;
        V sum = 0;
        for (int64_t ot = rt.first; ot <= rt.last; ot++) {
            for (int64_t oh = rh.first; oh <= rh.last; oh++) {
                const int64_t row =
                    plane * v.outputs + (ot * v.out[POOL_H] + oh) * v.out[POOL_W];
#pragma unroll 4
                for (int64_t ow = rw.first; ow <= rw.last; ow++) {
                    if (v.indices[row + ow] == index) {
                        const bool has = !gaps || (is_element(v, POOL_T, ot, t) &&
                                                   is_element(v, POOL_H, oh, h) &&
                                                   is_element(v, POOL_W, ow, w));
                        sum += has ? value_of(v.dy[row + ow]) : V(0);
                    }
                }
            }
        }
        v.dx[e] = stored_as<T>(sum);
    }
}

template <typename T>
static gpo_status
run_gather(gpo_call *call, const gradient_view<T> &v)
{
    const int64_t n = v.planes * v.plane;
    const dim3 grid(grid_of(ceil_div(n, BLOCK), MAX_GRID_X));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (max_pool3d_backward_v1_gather<T>), v, n);
}

template <typename T>
static gpo_status
max_pool3d_backward_v1(gpo_call *call)
{
    pool_gradient_plan plan;
    max_pool3d_make_gradient_plan(call, &plan);
    const gradient_view<T> v = gradient_view_of<T>(plan);
    if (plan.has_windows) {
        return run_gather(call, v);
    }
    const gpo_status status = look_at_indices(call, plan);
    return status ? status : run_owners(call, v);
}

/*
 * v2  A window fills its cell.
 * Was:   v1 works out the windows of each element, and all elements of a window read
 *        the same index.
 * Now:   where windows do not overlap they cut a plane into cells; a thread reads one
 *        index and one gradient and writes its cell, zeros and all, in pairs where a
 *        row of the cell is two elements.
 * Cost:  reads dy and indices once, neighbours side by side; writes dx once.  Windows
 *        that overlap go v1's way.
 * Left:  overlapping windows: 512 have an element where kernel is 8, stride 1 -> v3.
 */
template <typename T>
struct alignas(2 * sizeof(T)) pair_of {
    T v[2];
};

/* Elements [first, end) that belong to window o alone. */
__device__ __forceinline__ stretch
cell_of(const pool_axis &a, int64_t o)
{
    const int64_t start = o * a.stride - a.padding;
    return {o > 0 ? start : 0, o + 1 < a.out ? start + a.stride : a.in};
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_backward_v2_cells(gradient_view<T> v, int64_t n,
                                                      bool is_tight, bool in_pairs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        const int64_t found = v.indices[i];
        const T gradient = v.dy[i];
        const int64_t plane = v.of_plane.of(i), out = i - plane * v.outputs;
        const int64_t ot = v.of_slice.of(out), rest = out - ot * v.of_slice.by;
        const int64_t oh = v.of_row.of(rest), ow = rest - oh * v.of_row.by;
        const stretch t = cell_of(v.axis[POOL_T], ot);
        const stretch h = cell_of(v.axis[POOL_H], oh);
        const stretch w = cell_of(v.axis[POOL_W], ow);
        int64_t index = found;
        if (!is_tight) { /* a cell may have elements that its window has not */
            index = index_of_window(v, ot, oh, ow, found);
        }
        const T zero = stored_as<T>(value_type<T>(0));
        T *const dx = v.dx + plane * v.plane;
        for (int64_t k = t.first; k < t.end; k++) {
            for (int64_t j = h.first; j < h.end; j++) {
                int64_t at = (k * v.in[POOL_H] + j) * v.in[POOL_W] + w.first;
                if (in_pairs) {
                    pair_of<T> both;
                    both.v[0] = at == index ? gradient : zero;
                    both.v[1] = at + 1 == index ? gradient : zero;
                    *reinterpret_cast<pair_of<T> *>(dx + at) = both;
                    continue;
                }
                for (int64_t e = w.first; e < w.end; e++, at++) {
                    dx[at] = at == index ? gradient : zero;
                }
            }
        }
    }
}

/* Whether no element is in two windows. */
static bool
is_apart(const pool_gradient_plan &plan)
{
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        if (a.stride < pool_extent(&a) && a.out > 1) {
            return false;
        }
    }
    return true;
}

template <typename T>
static gpo_status
run_windows(gpo_call *call, const gradient_view<T> &v, const pool_gradient_plan &plan)
{
    if (!is_apart(plan)) {
        return run_gather(call, v);
    }
    const int64_t n = v.planes * v.outputs;
    bool is_tight = true; /* every cell is its window */
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        is_tight = is_tight && a.stride == a.kernel && a.dilation == 1 &&
                   a.padding == 0 && a.in == a.out * a.stride;
    }
    const pool_axis &w = plan.axis[POOL_W];
    const bool in_pairs = w.stride == 2 && w.padding == 0 && w.in == 2 * w.out &&
                          reinterpret_cast<uintptr_t>(v.dx) % (2 * sizeof(T)) == 0;
    const dim3 grid(grid_of(ceil_div(n, BLOCK), MAX_GRID_X));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (max_pool3d_backward_v2_cells<T>), v, n,
                      is_tight, in_pairs);
}

template <typename T>
static gpo_status
max_pool3d_backward_v2(gpo_call *call)
{
    pool_gradient_plan plan;
    max_pool3d_make_gradient_plan(call, &plan);
    const gradient_view<T> v = gradient_view_of<T>(plan);
    if (plan.has_windows) {
        return run_windows(call, v, plan);
    }
    const gpo_status status = look_at_indices(call, plan);
    return status ? status : run_owners(call, v);
}

/*
 * v3  Axis by axis.
 * Was:   v1 compares an element with every window that has it: kernel^3 of them.
 * Now:   of all windows (., h', w') that name an element of slice t, those of one (h',
 *        w') name the same one, since they agree on the largest element of their common
 *        part.  So a block walks along t and adds up three times, along T, H and W, each
 *        time over one axis of windows.  Gradients and indices of the windows that have
 *        slice t lie in shared memory, the index in 32 bits.  Indices that no pooling
 *        gives are seen when two of one line name different elements; that slice is
 *        then added up v1's way.
 * Cost:  reads dy and indices once; a kernel of comparisons per (h', w') and slice, and
 *        along H and W only with the windows that name any, of which words keep the
 *        bits; three barriers per slice.  Windows whose slices do not fit into shared memory, or that do not
 *        overlap, go v2's way.
 * Left:  sums that are made anew for each slice, and a block that waits for its loads
 *        at each -> v4.
 */
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

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_backward_v3_slices(gradient_view<T> v, slice_plan s)
{
    using V = value_type<T>;
    constexpr int WARPS = BLOCK / WARP;
    GPO_DYN_SHARED(unsigned char, memory);
    GPO_SHARED(int, mixed, [1]);         /* whether a line along T names two elements */
    GPO_SHARED(unsigned, named, [WARP]); /* of each ow: the oh whose line names one */
    const pool_axis *a = v.axis;
    const int rows = static_cast<int>(v.out[POOL_H]);
    const int cols = static_cast<int>(v.out[POOL_W]), slice = rows * cols;
    const int height = static_cast<int>(v.in[POOL_H]);
    const int width = static_cast<int>(v.in[POOL_W]);
    int2 *const with_h = reinterpret_cast<int2 *>(memory);
    int2 *const with_w = with_h + height; /* first and last window of an element */
    V *const ring = reinterpret_cast<V *>(with_w + width); /* gradients, then sums */
    V *const by_t = ring + s.depth * slice;
    V *const by_h = by_t + slice;
    int *const code = reinterpret_cast<int *>(by_h + WARPS * cols);
    int *const code_t = code + s.depth * slice;
    int *const code_h = code_t + slice;
    const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    V *const row = by_h + warp * cols; /* what a warp has of its line */
    int *const row_code = code_h + warp * cols;
    const bool has_masks = rows <= WARP && cols <= WARP;

    for (int e = tid; e < height + width; e += BLOCK) {
        const int d = e < height ? POOL_H : POOL_W;
        const window_range r =
            windows_with(a[d], v.stride[d], e < height ? e : e - height);
        with_h[e] = make_int2(static_cast<int>(r.first), static_cast<int>(r.last));
    }
    for (int64_t item = blockIdx.x; item < s.items; item += gridDim.x) {
        const int64_t plane = s.chunks.of(item);
        const int t0 = static_cast<int>(item - plane * s.chunks.by) * s.chunk;
        const int t1 = static_cast<int>(least_of(t0 + s.chunk, v.in[POOL_T]));
        int loaded = static_cast<int>(
            windows_with(a[POOL_T], v.stride[POOL_T], t0).first); /* slices before it */
        int slot = loaded % s.depth;                              /* of the next one */
        __syncthreads(); /* what item and set-up before this have written and read */
        for (int t = t0; t < t1; t++) {
            const window_range range = windows_with(a[POOL_T], v.stride[POOL_T], t);
            const int first = static_cast<int>(range.first);
            const int last = static_cast<int>(range.last);
            if (tid < WARP) {
                named[tid] = 0;
            }
            if (tid == 0) {
                mixed[0] = 0;
            }
            for (; loaded <= last; loaded++) {
                const int64_t from =
                    plane * v.outputs + static_cast<int64_t>(loaded) * slice;
#pragma unroll 4
                for (int e = tid; e < slice; e += BLOCK) {
                    const int64_t found = v.indices[from + e];
                    const V gradient = value_of(v.dy[from + e]);
                    const int oh = v.of_row.narrow(e), ow = e - oh * cols;
                    code[slot * slice + e] = code_of_window(v, loaded, oh, ow, found);
                    ring[slot * slice + e] = gradient;
                }
                slot = slot + 1 < s.depth ? slot + 1 : 0;
            }
            __syncthreads();

            /* T: the windows of each (oh, ow) that name an element of slice t */
            for (int e = tid; e < slice; e += BLOCK) {
                V sum = 0;
                int name = -1;
                int from = first % s.depth;
                for (int ot = first; ot <= last; ot++) {
                    const int its = code[from * slice + e];
                    if (its >> 2 * FIELD == t) {
                        if (name >= 0 && name != its) {
                            atomicOr(&mixed[0], 1);
                        }
                        name = its;
                        sum += ring[from * slice + e];
                    }
                    from = from + 1 < s.depth ? from + 1 : 0;
                }
                by_t[e] = sum;
                code_t[e] = name;
                if (has_masks && name >= 0) {
                    const int oh = v.of_row.narrow(e);
                    atomicOr(&named[e - oh * cols], 1u << oh);
                }
            }
            __syncthreads();

            /* A warp takes a line h.  H: what those of each (h, ow) name */
            T *const dx =
                v.dx + plane * v.plane + static_cast<int64_t>(t) * height * width;
            const bool is_mixed = mixed[0] != 0;
            for (int h = warp; h < height; h += WARPS) {
                const int2 with = with_h[h];
                bool clash = is_mixed, has_name = false;
                for (int ow = lane; ow < cols && !is_mixed; ow += WARP) {
                    V sum = 0;
                    int name = -1;
                    const auto take = [&](int oh) {
                        const int its = code_t[oh * cols + ow];
                        if (its >= 0 && (its >> FIELD & FIELD_MASK) == h) {
                            clash = clash || (name >= 0 && name != its);
                            name = its;
                            sum += by_t[oh * cols + ow];
                        }
                    };
                    if (has_masks) {
                        unsigned left = named[ow] & bits_between(with.x, with.y);
                        for (; left != 0; left &= left - 1) {
                            take(__ffs(static_cast<int>(left)) - 1);
                        }
                    }
                    else {
                        for (int oh = with.x; oh <= with.y; oh++) {
                            take(oh);
                        }
                    }
                    row[ow] = sum;
                    row_code[ow] = name;
                    has_name = name >= 0;
                }
                clash = __any_sync(ALL_LANES, clash);
                const unsigned names = __ballot_sync(ALL_LANES, has_name);
                __syncwarp();

                /* W: those of each (h, w) */
                for (int w = lane; w < width; w += WARP) {
                    const int own = t << 2 * FIELD | h << FIELD | w;
                    const int2 across = with_w[w];
                    V sum = 0;
                    if (clash) {
                        for (int ot = first; ot <= last; ot++) {
                            for (int oh = with.x; oh <= with.y; oh++) {
                                for (int ow = across.x; ow <= across.y; ow++) {
                                    const int at =
                                        (ot % s.depth * rows + oh) * cols + ow;
                                    sum += code[at] == own ? ring[at] : V(0);
                                }
                            }
                        }
                    }
                    else if (has_masks) {
                        unsigned left = names & bits_between(across.x, across.y);
                        for (; left != 0; left &= left - 1) {
                            const int ow = __ffs(static_cast<int>(left)) - 1;
                            sum += row_code[ow] == own ? row[ow] : V(0);
                        }
                    }
                    else {
                        for (int ow = across.x; ow <= across.y; ow++) {
                            sum += row_code[ow] == own ? row[ow] : V(0);
                        }
                    }
                    dx[h * width + w] = stored_as<T>(sum);
                }
                __syncwarp(); /* before the line is written again */
            }
            __syncthreads(); /* before the ring is */
        }
    }
}

template <typename T>
static gpo_status
max_pool3d_backward_v3(gpo_call *call)
{
    using V = value_type<T>;
    pool_gradient_plan plan;
    max_pool3d_make_gradient_plan(call, &plan);
    const gradient_view<T> v = gradient_view_of<T>(plan);
    if (!plan.has_windows) {
        const gpo_status status = look_at_indices(call, plan);
        return status ? status : run_owners(call, v);
    }
    constexpr int64_t ROOM = 96 << 10; /* two blocks and more on a processor */
    slice_plan s = {};
    bool fits = !is_apart(plan);
    for (int d = 0; d < POOL_AXES; d++) {
        fits = fits && plan.in[d] <= MOST_SIDE && plan.out[d] <= MOST_SIDE;
    }
    const pool_axis &t = plan.axis[POOL_T];
    s.depth = static_cast<int>(least_of(ceil_div(pool_extent(&t), t.stride), t.out));
    const double slice =
        static_cast<double>(plan.out[POOL_H]) * static_cast<double>(plan.out[POOL_W]);
    const double lines =
        static_cast<double>(BLOCK / WARP) * static_cast<double>(plan.out[POOL_W]);
    const double ranges = static_cast<double>(plan.in[POOL_H] + plan.in[POOL_W]);
    const double bytes =
        (slice * (s.depth + 1.0) + lines) * (sizeof(V) + 4) + ranges * sizeof(int2);
    if (!fits || bytes > static_cast<double>(least_of(ROOM, shared_room(call)))) {
        return run_windows(call, v, plan);
    }
    const int64_t wanted = 4 * gpo_processors(call);
    int64_t chunk = plan.in[POOL_T];
    while (v.planes * ceil_div(plan.in[POOL_T], chunk) < wanted &&
           chunk > 2 * pool_extent(&t)) {
        chunk = ceil_div(chunk, 2);
    }
    s.chunk = static_cast<int>(chunk);
    s.chunks = divider_of(ceil_div(plan.in[POOL_T], chunk));
    s.items = v.planes * s.chunks.by;
    gpo_allow_shared(max_pool3d_backward_v3_slices<T>, static_cast<size_t>(bytes));
    return GPO_LAUNCH(call, dim3(grid_of(s.items, MAX_GRID_X)), BLOCK,
                      static_cast<size_t>(bytes), (max_pool3d_backward_v3_slices<T>), v,
                      s);
}

/*
 * v4  In rounds.
 * Was:   v3 makes three sums for each slice of x.
 * Now:   a block has a tile of dx in shared memory and goes once through the windows
 *        that look at it: in a round the rows of windows that have no element in common,
 *        one per warp, with a lane per window.  Lanes that name one element are added by
 *        shuffles.  The rows of the next rounds are on their way meanwhile.
 * Cost:  reads dy and indices once for each tile a window reaches into; (kernel /
 *        stride)^2 rounds with a barrier each.  Dilated windows and those whose rows do
 *        not fit into shared memory go v3's way.
 * Left:  64 barriers with a kernel of 8, between which 8 warps have a row each.
 */
#include "rounds.cuh"

constexpr int ROUND_WARPS = 16;

template <typename T, int SLOTS>
__global__ void
__launch_bounds__(ROUND_WARPS *WARP, 2)
    max_pool3d_backward_v4_rounds(gradient_view<T> v, round_plan s)
{
    using V = value_type<T>;
    constexpr int DEPTH = SLOTS > 1 ? 1 : 4; /* rounds on their way */
    GPO_DYN_SHARED(V, sums);
    const int tid = threadIdx.x, lane = tid % WARP, threads = blockDim.x;
    const int width = static_cast<int>(v.per_row.by);
    const int cols = static_cast<int>(v.out[POOL_W]);
    const int stride = static_cast<int>(v.axis[POOL_W].stride);
    const int padding = static_cast<int>(v.axis[POOL_W].padding);
    for (int64_t item = blockIdx.x; item < s.items; item += gridDim.x) {
        const round_tile tile = tile_of(v, s, item, SLOTS * threads / WARP);
        const int rows = tile.n[POOL_H] * width, all = tile.n[POOL_T] * rows;
        round_walk<T, SLOTS> walk(v, s, tile);
        coming_rows<V, SLOTS> ring[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            ring[d] = walk.next();
        }
#pragma unroll 4
        for (int e = tid; e < all; e += threads) {
            sums[e] = 0;
        }
        __syncthreads();
        /* behind the last round no slot has a row */
        while (ring[0].begin < cols) {
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                const coming_rows<V, SLOTS> &now = ring[d];
                const int ow = now.begin + lane;
#pragma unroll
                for (int slot = 0; slot < SLOTS; slot++) {
                    if (now.t[slot] != NO_ROW) {
                        const lane_window<V> o = {
                            ow < cols,   now.found[slot], now.gradient[slot],
                            now.t[slot], now.h[slot],     ow * stride - padding};
                        add_row(v, tile, o, s.apart[POOL_W], sums);
                    }
                }
                ring[d] = walk.next();
                __syncthreads();
            }
        }
        const bool is_whole = tile.n[POOL_H] == v.in[POOL_H]; /* slices side by side */
        const int slices = is_whole ? 1 : tile.n[POOL_T], slice = is_whole ? all : rows;
        T *dx = v.dx + tile.plane * v.plane +
                (tile.from[POOL_T] * v.in[POOL_H] + tile.from[POOL_H]) * width;
        for (int t = 0; t < slices; t++) {
#pragma unroll 4
            for (int e = tid; e < slice; e += threads) {
                dx[e] = stored_as<T>(sums[t * slice + e]);
            }
            dx += v.per_slice.by;
        }
        __syncthreads(); /* before the sums are those of another tile */
    }
}

template <typename T, int SLOTS>
static gpo_status
run_rounds(gpo_call *call, const gradient_view<T> &v, const round_plan &s, int warps)
{
    const size_t bytes = static_cast<size_t>(s.side[POOL_T]) *
                         static_cast<size_t>(s.side[POOL_H] * v.in[POOL_W]) *
                         sizeof(value_type<T>);
    gpo_allow_shared(max_pool3d_backward_v4_rounds<T, SLOTS>, bytes);
    return GPO_LAUNCH(call, dim3(grid_of(s.items, MAX_GRID_X)),
                      dim3(static_cast<unsigned>(warps * WARP)), bytes,
                      (max_pool3d_backward_v4_rounds<T, SLOTS>), v, s);
}

template <typename T>
static gpo_status
max_pool3d_backward_v4(gpo_call *call)
{
    constexpr int64_t ROOM = 72 << 10; /* three blocks on a processor */
    pool_gradient_plan plan;
    max_pool3d_make_gradient_plan(call, &plan);
    const gradient_view<T> v = gradient_view_of<T>(plan);
    round_plan s = {};
    if (!plan.has_windows ||
        !plan_rounds<value_type<T>>(plan, least_of(ROOM, shared_room(call)), &s)) {
        return max_pool3d_backward_v3<T>(call);
    }
    if (s.rows > ROUND_WARPS) {
        return run_rounds<T, 4>(call, v, s, ROUND_WARPS);
    }
    return run_rounds<T, 1>(call, v, s,
                            s.rows > ROUND_WARPS / 2 ? ROUND_WARPS : ROUND_WARPS / 2);
}

/* ---- the table ---- */

#define FOUR(f)                                                                 \
    {                                                                           \
        nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, \
            nullptr, f<f16>, f<bf16>, f<float>, f<double>, nullptr, nullptr     \
    }

static const gpo_variant gradient_variants[] = {
    {"v0", "a warp owns a stretch of a plane and walks through its gradients", "",
     "run-to-run", FOUR(max_pool3d_backward_v0)},
    {"v1", "an element asks the windows that have it", "", "run-to-run",
     FOUR(max_pool3d_backward_v1)},
    {"v2", "a window fills its own cell where none overlap", "", "run-to-run",
     FOUR(max_pool3d_backward_v2)},
    {"v3", "axis by axis: what the windows of a line name is one element", "",
     "run-to-run", FOUR(max_pool3d_backward_v3)},
    {"v4", "in rounds of rows of windows that share no element", "", "run-to-run",
     FOUR(max_pool3d_backward_v4)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose_gradient(const gpo_call *call, char why[GPO_MESSAGE])
{
    pool_gradient_plan plan;
    max_pool3d_make_gradient_plan(call, &plan);
    if (!plan.has_windows) {
        snprintf(why, GPO_MESSAGE,
                 "without kernel_size every gradient may belong to any element");
        return &gradient_variants[0];
    }
    if (is_apart(plan)) {
        snprintf(why, GPO_MESSAGE, "windows do not overlap: each fills its own cell");
        return &gradient_variants[2];
    }
    double windows = 1; /* that have one element */
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        windows *= static_cast<double>(ceil_div(a.kernel, a.stride));
    }
    if (windows <= 4) {
        snprintf(why, GPO_MESSAGE, "at most 4 windows have one element");
        return &gradient_variants[1];
    }
    for (int d = 0; d < POOL_AXES; d++) {
        if (plan.axis[d].dilation > 1) {
            snprintf(why, GPO_MESSAGE,
                     "many windows have one element, with gaps: one axis at a time");
            return &gradient_variants[3];
        }
    }
    snprintf(why, GPO_MESSAGE,
             "many windows have one element: rows that share none at the same time");
    return &gradient_variants[4];
}

extern "C" const gpo_table max_pool3d_backward_cuda;
const gpo_table max_pool3d_backward_cuda = {gradient_variants, choose_gradient};

#endif
