/*
 * v3  Axis by axis.
 * Was:   v1 compares an element with every window that contains it: kernel^3 of them.
 * Now:   all windows (., h', w') that name an element of slice t name the same one, as
 *        they agree on the largest element of what they share.  So a block goes along t
 *        and sums along T, then H, then W, each time over the windows of one axis only,
 *        whose gradients and 32-bit indices are in shared memory.  Where two windows of
 *        a line name different elements, which no pooling does, a slice is added as in v1.
 * Cost:  reads dy and indices once; `kernel` comparisons per (h', w') and slice; three
 *        barriers per slice.  Where windows do not overlap, or slices do not fit into
 *        shared memory, v2 runs.
 * Left:  each slice is summed anew, by a block that waits for its loads -> v4.
 */
#ifndef GPO_MAX_POOL3D_BACKWARD_V3_SLICES_CUH
#define GPO_MAX_POOL3D_BACKWARD_V3_SLICES_CUH

#include "../slices.cuh"
#include "backward_v2_cells.cuh"

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_backward_v3_slices(gradient_view<T> v, slice_plan s)
{
    using V = value_type<T>;
    constexpr int WARPS = BLOCK / WARP;
    GPO_DYN_SHARED(unsigned char, memory);
    GPO_SHARED(int, mixed, [1]);         /* whether a line along T names two elements */
    GPO_SHARED(unsigned, named, [WARP]); /* per ow: bits of the oh that name one */
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
    V *const row = by_h + warp * cols; /* the sums of a warp's line */
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
        __syncthreads(); /* after the set-up, and after the previous item */
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

            /* H: a warp takes a line h and sums over oh for each ow */
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

                /* W: the windows that name (h, w), over ow */
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
            __syncthreads(); /* before the ring is written again */
        }
    }
}

template <typename T>
gpo_status
max_pool3d_backward_v3(gpo_call *call)
{
    slice_plan s = {};
    size_t bytes;
    if (!pool_gradient_plan_of(call)->has_windows ||
        !plan_slices(call, sizeof(value_type<T>), &s, &bytes)) {
        return max_pool3d_backward_v2<T>(call);
    }
    gpo_allow_shared(max_pool3d_backward_v3_slices<T>, bytes);
    return GPO_LAUNCH(call, grid_of(s.items), BLOCK, bytes,
                      (max_pool3d_backward_v3_slices<T>), gradient_view_of<T>(call), s);
}

#endif
