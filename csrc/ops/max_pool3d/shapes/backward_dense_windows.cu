/*
 * backward_dense_windows.cu  The gradient of windows that overlap, dilated or not, where
 * planes are small or windows many.  A block owns a box of dx, reads the windows that
 * reach into it once, and adds the gradient of each to the element that it names, in
 * shared memory.  The sums are whole numbers (fixed_sums.cuh), which have the same bits
 * in any order: nobody asks which windows an element has.
 * Cost:  an index and a gradient for each window of a box, and three atomics on shared
 *        memory (float64: four); dx is written once, from three (four) words of shared
 *        memory each.  The same for any kernel size.
 */
#include "../dense.cuh"
#include "../fixed_sums.cuh"
#include "../window_boxes.cuh"

/* A block's shared memory. */
template <typename T>
struct dense_room {
    T *gradient;     /* of each window */
    uint16_t *names; /* the element of the box that it names, or NO_ELEMENT */
    unsigned *top;   /* of each element: the exponent of its largest term; 0: none */
    int *limbs;      /* of each element, `pitch` words apart */
    int pitch;
};

template <typename T>
__device__ __forceinline__ dense_room<T>
dense_room_of(const overlap_view<T> &v, unsigned char *memory)
{
    int elements = v.together;
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        elements *= static_cast<int>(v.side[d].by);
    }
    const int pitch = static_cast<int>(dense_pitch(elements));
    unsigned *const top = reinterpret_cast<unsigned *>(
        memory + dense_windows_bytes(v.windows, static_cast<int>(sizeof(T))));
    return {reinterpret_cast<T *>(memory),
            reinterpret_cast<uint16_t *>(memory + v.windows * sizeof(T)), top,
            reinterpret_cast<int *>(top + pitch), pitch};
}

/*
 * Thread `tid` of `threads` stores its share of n sums from the one in place `first` on:
 * by fours where memory allows.
 */
template <typename T>
__device__ __forceinline__ void
store_sums(T *to, int n, const dense_room<T> &room, int first, int tid, int threads)
{
    using V = value_type<T>;
    const auto sum_at = [&](int at, unsigned top) {
        return sum_of_limbs<V>(room.limbs + at, room.pitch, top);
    };
    int done = 0;
    if constexpr (sizeof(T) <= 4) {
        const bool in_fours =
            first % 4 == 0 && reinterpret_cast<uintptr_t>(to) % (4 * sizeof(T)) == 0;
        done = in_fours ? n / 4 * 4 : 0;
        for (int e = 4 * tid; e < done; e += 4 * threads) {
            const uint4 top = *reinterpret_cast<const uint4 *>(room.top + first + e);
            element_run<T, 4> run;
            run.v[0] = stored_as<T>(sum_at(first + e, top.x));
            run.v[1] = stored_as<T>(sum_at(first + e + 1, top.y));
            run.v[2] = stored_as<T>(sum_at(first + e + 2, top.z));
            run.v[3] = stored_as<T>(sum_at(first + e + 3, top.w));
            *reinterpret_cast<element_run<T, 4> *>(to + e) = run;
        }
    }
#pragma unroll 4
    for (int e = done + tid; e < n; e += threads) {
        to[e] = stored_as<T>(sum_at(first + e, room.top[first + e]));
    }
}

/*
 * Stores the sums of a box, which is contiguous unless slices are cut into rows: then a
 * warp stores those of a slice.
 */
template <typename T>
__device__ __forceinline__ void
store_box(const overlap_view<T> &v, const box &b, const dense_room<T> &room)
{
    const box_pieces p = pieces_of(v, b);
    const int apart = static_cast<int>(v.side[POOL_H].by * v.side[POOL_W].by);
    T *const to = v.dx + b.plane * v.plane + p.begin;
    const int tid = threadIdx.x, threads = blockDim.x, crew = p.is_cut ? WARP : threads;
    for (int k = tid / crew; k < p.pieces; k += threads / crew) {
        store_sums(to + k * static_cast<int>(v.per_slice.by), p.piece, room, k * apart,
                   tid % crew, crew);
    }
}

/* ---- windows ---- */

/* Bit j of `offsets`: a window has the element j after its first one, on an axis. */
struct dense_masks {
    unsigned offsets[POOL_AXES];
};

/* Window q of a box; the windows of whole planes follow each other in dy. */
template <typename T, bool WHOLE>
__device__ __forceinline__ coming_window<T>
bring_dense(const overlap_view<T> &v, const box &b, const int64_t *indices, const T *dy,
            int windows, int q)
{
    if constexpr (WHOLE) {
        return bring_window(indices, dy, q < windows, q);
    }
    else {
        return bring_from_box(v, b, indices, dy, place_of(v.reach, q), q < windows);
    }
}

/* The number in the box of the element that window q names, or NO_ELEMENT. */
template <typename T, bool WHOLE>
__device__ __forceinline__ int
dense_name(const overlap_view<T> &v, const box &b, const dense_masks &masks,
           int64_t found, int q)
{
    const found_element e = element_of(v, found);
    const int at[POOL_AXES] = {e.at.t - b.from[POOL_T], e.at.h - b.from[POOL_H],
                               e.at.w - b.from[POOL_W]};
    const box_place p = place_of(v.reach, q);
    unsigned past = 0, bits = 1;
    bool is_own = e.is_in_plane;
    int name = p.plane;
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        const unsigned offset =
            static_cast<unsigned>(at[d] - b.start[d] - p.at[d] * v.axis[d].stride);
        past |= offset;
        bits &= masks.offsets[d] >> (offset % MOST_EXTENT);
        if (!WHOLE) {
            is_own =
                is_own && static_cast<unsigned>(at[d]) < static_cast<unsigned>(b.n[d]);
            name = name * static_cast<int>(v.side[d].by) + at[d];
        }
    }
    is_own = is_own && past < MOST_EXTENT && bits != 0;
    return !is_own ? NO_ELEMENT : WHOLE ? p.plane * v.plane + e.index : name;
}

/* ---- the kernel ---- */

template <typename T, bool WHOLE>
__global__ void
__launch_bounds__(DENSE_BLOCK, 1)
    max_pool3d_backward_dense_windows_kernel(overlap_view<T> v, dense_masks masks)
{
    using V = value_type<T>;
    GPO_DYN_SHARED(unsigned char, memory);
    const dense_room<T> room = dense_room_of(v, memory);
    const box b = box_of(v, blockIdx.x);
    const int tid = threadIdx.x, threads = blockDim.x;
    const int windows = windows_of_box(v, b);
    const int64_t *const indices = v.indices + b.window;
    const T *const dy = v.dy + b.window;
    for (int base = 0; base < windows; base += IN_FLIGHT * threads) {
        coming_window<T> coming[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            coming[k] = bring_dense<T, WHOLE>(v, b, indices, dy, windows,
                                              base + k * threads + tid);
        }
        if (base == 0) { /* while those are on their way */
            const int words = (1 + float_parts<V>::LIMBS) * room.pitch / 4;
            for (int k = tid; k < words; k += threads) {
                reinterpret_cast<uint4 *>(room.top)[k] = {0, 0, 0, 0};
            }
            __syncthreads();
        }
        int names[IN_FLIGHT]; /* without a branch, so that none waits for another */
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            names[k] = dense_name<T, WHOLE>(v, b, masks, coming[k].found,
                                            base + k * threads + tid);
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            const int q = base + k * threads + tid;
            if (q < windows) {
                room.names[q] = static_cast<uint16_t>(names[k]);
                room.gradient[q] = coming[k].gradient;
            }
            if (names[k] != NO_ELEMENT) {
                raise_exponent<V>(room.top + names[k], value_of(coming[k].gradient));
            }
        }
    }
    __syncthreads();
#pragma unroll 4
    for (int q = tid; q < windows; q += threads) { /* the thread's own */
        const int name = room.names[q];
        if (name != NO_ELEMENT) {
            add_limbs<V>(room.limbs + name, room.pitch, room.top[name],
                         value_of(room.gradient[q]));
        }
    }
    __syncthreads();
    store_box(v, b, room);
}

/* ---- launch ---- */

template <typename T, bool WHOLE>
static gpo_status
run_dense(gpo_call *call, const overlap_view<T> &v, const overlap_plan &s,
          const dense_masks &masks)
{
    const size_t bytes = static_cast<size_t>(s.bytes);
    const dim3 block(static_cast<unsigned>(s.threads));
    gpo_allow_shared(max_pool3d_backward_dense_windows_kernel<T, WHOLE>, bytes);
    return GPO_LAUNCH(call, grid_of(s.blocks), block, bytes,
                      (max_pool3d_backward_dense_windows_kernel<T, WHOLE>), v, masks);
}

template <typename T>
gpo_status
max_pool3d_backward_dense_windows(gpo_call *call)
{
    overlap_plan s;
    if (!plan_dense(call, &s)) {
        return GPO_OK; /* dx is empty: its row of the table takes no other */
    }
    const overlap_view<T> v = overlap_view_of<T>(call, s);
    dense_masks masks = {};
    bool is_whole = true;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = pool_gradient_plan_of(call)->axis[d];
        for (int64_t k = 0; k < a.kernel; k++) {
            masks.offsets[d] |= 1u << (k * a.dilation);
        }
        is_whole = is_whole && s.tiles[d] == 1;
    }
    return is_whole ? run_dense<T, true>(call, v, s, masks)
                    : run_dense<T, false>(call, v, s, masks);
}

#define INSTANTIATE(T) \
    template gpo_status max_pool3d_backward_dense_windows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
