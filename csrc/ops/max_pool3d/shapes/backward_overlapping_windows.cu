/*
 * backward_overlapping_windows.cu  The gradient of windows that overlap, dilated or
 * not.  A block owns a box of dx.  It fills that with zeros, reads the windows that
 * reach into it once and keeps in shared memory which element each names, and its
 * gradient.  Then each element that is named, and no other, asks the windows that have
 * it, and adds in an order that depends on the sizes alone.
 * Cost:  an index and a gradient for each window of a box; dx once in words of 16
 *        bytes, and each named element; (kernel / stride)^3 reads of shared memory for
 *        each of those.  Atomics only mark and list elements: no sum depends on their
 *        order.
 */
#include "../chains.cuh"
#include "../window_boxes.cuh"

/* ---- a block's shared memory ---- */

template <typename T>
struct overlap_room {
    T *gradient;     /* of each window */
    uint16_t *names; /* the element of the box that it names, or NO_ELEMENT */
    unsigned *named; /* a bit for each element */
    uint16_t *list;  /* of those named */
};

template <typename T>
__device__ __forceinline__ overlap_room<T>
room_of(const overlap_view<T> &v, unsigned char *memory)
{
    const int windows = (v.windows * static_cast<int>(sizeof(T) + 2) + 7) / 8 * 8;
    unsigned *const named = reinterpret_cast<unsigned *>(memory + windows);
    return {reinterpret_cast<T *>(memory),
            reinterpret_cast<uint16_t *>(memory + v.windows * sizeof(T)), named,
            reinterpret_cast<uint16_t *>(named + (1 << v.log_words))};
}

/* ---- zeros ---- */

template <typename T>
__device__ __forceinline__ void
clear_box(const overlap_view<T> &v, const box &b)
{
    const box_pieces p = pieces_of(v, b);
    T *const to = v.dx + b.plane * v.plane + p.begin;
    for (int k = 0; k < p.pieces; k++) {
        clear(to + k * static_cast<int>(v.per_slice.by), p.piece);
    }
}

/* ---- names ---- */

/* A window on its way from memory, and its place in the box. */
template <typename T>
struct placed_window : coming_window<T> {
    unsigned t_h, w_plane; /* 16 bits each */
};

template <typename T>
__device__ __forceinline__ placed_window<T>
bring_placed(const overlap_view<T> &v, const box &b, const int64_t *indices,
             const T *dy, int windows, int q)
{
    const box_place p = place_of(v.reach, q);
    return {bring_from_box(v, b, indices, dy, p, q < windows),
            static_cast<unsigned>(p.at[POOL_T] | p.at[POOL_H] << 16),
            static_cast<unsigned>(p.at[POOL_W] | p.plane << 16)};
}

/* The number in the box of the element that a window names, or NO_ELEMENT. */
template <typename T, bool GAPS>
__device__ __forceinline__ int
name_of(const overlap_view<T> &v, const box &b, const placed_window<T> &o)
{
    const found_element e = element_of(v, o.found);
    const int at[POOL_AXES] = {e.at.t - b.from[POOL_T], e.at.h - b.from[POOL_H],
                               e.at.w - b.from[POOL_W]};
    const int window[POOL_AXES] = {static_cast<int>(o.t_h & 0xffff),
                                   static_cast<int>(o.t_h >> 16),
                                   static_cast<int>(o.w_plane & 0xffff)};
    bool is_own = e.is_in_plane;
    int name = static_cast<int>(o.w_plane >> 16);
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        const gather_axis &a = v.axis[d];
        const int past = at[d] - (b.start[d] + window[d] * a.stride);
        const unsigned extent =
            static_cast<unsigned>(GAPS ? (a.kernel - 1) * a.dilation + 1 : a.kernel);
        is_own = is_own && static_cast<unsigned>(past) < extent &&
                 static_cast<unsigned>(at[d]) < static_cast<unsigned>(b.n[d]);
        if (GAPS) {
            is_own =
                is_own && v.dilation[d].narrow(past & INT_MAX) * a.dilation == past;
        }
        name = name * static_cast<int>(v.side[d].by) + at[d];
    }
    return is_own ? name : NO_ELEMENT;
}

/* Marks an element; all lanes of a warp together. */
template <typename T>
__device__ __forceinline__ void
mark(const overlap_view<T> &v, const overlap_room<T> &room, int name)
{
    const int before = __shfl_up_sync(ALL_LANES, name, 1);
    if (name != NO_ELEMENT && (threadIdx.x % WARP == 0 || name != before)) {
        /* elements beside each other are in different words */
        atomicOr(&room.named[name & ((1 << v.log_words) - 1)],
                 1u << (name >> v.log_words));
    }
}

/*
 * Lists the elements marked in words [from, to), in any order of warps, as far as there
 * is room; *listed of them.
 */
template <typename T>
__device__ __forceinline__ void
list_marked(const overlap_view<T> &v, const overlap_room<T> &room, int from, int to,
            int *listed)
{
    const int lane = threadIdx.x % WARP;
    for (int base = from; base < to; base += blockDim.x) { /* uniform */
        const int word = base + static_cast<int>(threadIdx.x);
        unsigned bits = word < to ? room.named[word] : 0;
        const int own = __popc(bits);
        int upto = own;
#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            const int other = __shfl_up_sync(ALL_LANES, upto, d);
            upto += lane >= d ? other : 0;
        }
        int slot = lane == WARP - 1 && upto > 0 ? atomicAdd(listed, upto) : 0;
        slot = __shfl_sync(ALL_LANES, slot, WARP - 1) + upto - own;
        for (; bits != 0; bits &= bits - 1) {
            const int bit = __ffs(static_cast<int>(bits)) - 1;
            if (slot < v.listed) {
                room.list[slot] = static_cast<uint16_t>(bit << v.log_words | word);
            }
            slot++;
        }
    }
}

/* ---- elements ---- */

template <typename T>
__device__ __forceinline__ T *
element_at(const overlap_view<T> &v, const box &b, const box_place &e)
{
    const int line = (b.from[POOL_T] + e.at[POOL_T]) * v.axis[POOL_H].in +
                     b.from[POOL_H] + e.at[POOL_H];
    return v.dx + (b.plane + e.plane) * v.plane + line * v.axis[POOL_W].in +
           b.from[POOL_W] + e.at[POOL_W];
}

/* Windows of a box that have an element: `count` from `first` on, `step` apart. */
struct window_line {
    int first, count;
};

template <typename T, bool GAPS>
__device__ __forceinline__ window_line
line_with(const overlap_view<T> &v, const box &b, int d, int at)
{
    const gather_axis &a = v.axis[d];
    int_range over = windows_over(a, at, at);
    while (GAPS && over.first <= over.last && !window_has(a, over.first, at)) {
        over.first++;
    }
    const int past = over.last - over.first;
    const int steps = GAPS ? past / v.step[d] : past;
    return {over.first - b.first[d], past < 0 ? 0 : steps + 1};
}

/* A lane's share of the gradients of an element. */
template <typename T, bool GAPS>
__device__ __forceinline__ value_type<T>
sum_of_element(const overlap_view<T> &v, const box &b, const overlap_room<T> &room,
               int name, const box_place &e, int share)
{
    const window_line t =
        line_with<T, GAPS>(v, b, POOL_T, b.from[POOL_T] + e.at[POOL_T]);
    const window_line h =
        line_with<T, GAPS>(v, b, POOL_H, b.from[POOL_H] + e.at[POOL_H]);
    const window_line w =
        line_with<T, GAPS>(v, b, POOL_W, b.from[POOL_W] + e.at[POOL_W]);
    const int lanes = 1 << v.log_lanes, each = v.shares_rows ? lanes : 1;
    const int col = v.shares_rows ? 0 : share, cols = v.shares_rows ? 1 : lanes;
    const int high = static_cast<int>(v.reach[POOL_H].by);
    const int wide = static_cast<int>(v.reach[POOL_W].by);
    const int slices = e.plane * static_cast<int>(v.reach[POOL_T].by);
    int it = 0, ih = v.shares_rows ? share : 0;
    value_type<T> sum = 0;
    for (int r = ih; r < t.count * h.count; r += each) {
        for (; ih >= h.count; ih -= h.count) {
            it++;
        }
        const int slice = slices + t.first + it * (GAPS ? v.step[POOL_T] : 1);
        const int line = slice * high + h.first + ih * (GAPS ? v.step[POOL_H] : 1);
        const uint16_t *names = room.names + line * wide + w.first;
        const T *gradients = room.gradient + line * wide + w.first;
        const int step = GAPS ? v.step[POOL_W] : 1;
        if (!GAPS && v.shares_rows) {
#pragma unroll 4
            for (int iw = 0; iw < w.count; iw++) {
                if (names[iw] == name) {
                    sum += value_of(gradients[iw]);
                }
            }
        }
        else {
#pragma unroll 4
            for (int iw = col; iw < w.count; iw += cols) {
                if (names[iw * step] == name) {
                    sum += value_of(gradients[iw * step]);
                }
            }
        }
        ih += each;
    }
    return sum;
}

template <typename T, bool GAPS>
__device__ __forceinline__ void
add_named(const overlap_view<T> &v, const box &b, const overlap_room<T> &room,
          int listed)
{
    const int tid = threadIdx.x, lane = tid % WARP, warps = blockDim.x / WARP;
    const int across = WARP >> v.log_lanes, share = lane / across;
    for (int k = tid / WARP * across; k < listed; k += warps * across) {
        const int at = k + lane % across;
        const bool active = at < listed;
        const int name = room.list[active ? at : 0];
        const box_place e = place_of(v.side, name);
        value_type<T> sum = sum_of_element<T, GAPS>(v, b, room, name, e, share);
        for (int d = across; d < WARP; d *= 2) {
            sum += __shfl_xor_sync(ALL_LANES, sum, d);
        }
        if (active && share == 0) {
            *element_at(v, b, e) = stored_as<T>(sum);
        }
    }
}

/* ---- chains ---- */

/*
 * Each window becomes the head of the chain of its element, and keeps the one before.
 * Those beside each other that name one element follow each other without an exchange
 * each: the last one of them becomes the head.  All lanes of a warp together.
 */
template <typename T>
__device__ __forceinline__ void
link_windows(const overlap_view<T> &v, const box &b, const overlap_room<T> &room,
             int windows)
{
    const int tid = threadIdx.x, threads = blockDim.x;
    const int lane = tid % WARP;
    for (int base = 0; base < windows; base += IN_FLIGHT * threads) { /* uniform */
        unsigned before[IN_FLIGHT];
        int names[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            const int q = base + k * threads + tid;
            names[k] = q < windows ? room.names[q] : NO_ELEMENT;
            const int after = __shfl_down_sync(ALL_LANES, names[k], 1);
            before[k] = 0;
            if (names[k] != NO_ELEMENT && (lane == WARP - 1 || after != names[k])) {
                before[k] = swap_head(element_at(v, b, place_of(v.side, names[k])),
                                      static_cast<unsigned>(q + 1));
            }
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            const int q = base + k * threads + tid;
            const int after = __shfl_down_sync(ALL_LANES, names[k], 1);
            const unsigned last =
                __ballot_sync(ALL_LANES, lane == WARP - 1 || after != names[k]);
            const int head = lane + __ffs(static_cast<int>(last >> lane)) - 1;
            const unsigned found = __shfl_sync(ALL_LANES, before[k], head);
            const int other = __shfl_up_sync(ALL_LANES, names[k], 1);
            const bool follows = lane > 0 && other == names[k];
            if (q < windows) {
                room.names[q] =
                    static_cast<uint16_t>(follows ? static_cast<unsigned>(q) : found);
            }
        }
    }
}

/* Stores the sum of the chain of an element, if it has one. */
template <typename T>
__device__ __forceinline__ void
store_chain(const overlap_room<T> &room, T *element, unsigned head)
{
    if (head != 0) {
        *element = stored_as<T>(sum_of_chain(room.gradient, room.names, head));
    }
}

template <typename T>
__device__ __forceinline__ bool
is_marked(const overlap_view<T> &v, const overlap_room<T> &room, int name)
{
    return room.named[name & ((1 << v.log_words) - 1)] >> (name >> v.log_words) & 1;
}

/* The chains of all elements, those beside each other by lanes beside each other. */
template <typename T>
__device__ __forceinline__ void
store_chains(const overlap_view<T> &v, const box &b, const overlap_room<T> &room)
{
    const int tid = threadIdx.x, threads = blockDim.x, size = elements_of_box(v, b);
    for (int base = tid; base < size; base += IN_FLIGHT * threads) {
        T *element[IN_FLIGHT];
        unsigned head[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            const int name = base + k * threads;
            const bool has = name < size && is_marked(v, room, name);
            element[k] = element_at(v, b, place_of(v.side, has ? name : 0));
            head[k] = has ? head_at(element[k]) : 0;
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            store_chain(room, element[k], head[k]);
        }
    }
}

/* The chains of the elements listed. */
template <typename T>
__device__ __forceinline__ void
store_listed_chains(const overlap_view<T> &v, const box &b, const overlap_room<T> &room,
                    int listed)
{
    for (int k = threadIdx.x; k < listed; k += blockDim.x) {
        T *const element = element_at(v, b, place_of(v.side, room.list[k]));
        store_chain(room, element, head_at(element));
    }
}

/* ---- the kernel ---- */

template <typename T, bool GAPS>
__global__ void
__launch_bounds__(OVERLAP_THREADS, 1)
    max_pool3d_backward_overlapping_windows_kernel(overlap_view<T> v)
{
    GPO_DYN_SHARED(unsigned char, memory);
    GPO_SHARED(int, listed, [1]);
    GPO_SHARED(int, naming, [1]); /* windows that name an element of the box */
    const overlap_room<T> room = room_of(v, memory);
    const box b = box_of(v, blockIdx.x);
    const int tid = threadIdx.x, threads = blockDim.x;
    const int windows = windows_of_box(v, b);
    const int64_t *const indices = v.indices + b.window;
    const T *const dy = v.dy + b.window;
    for (int k = tid; k < 1 << v.log_words; k += threads) {
        room.named[k] = 0;
    }
    if (tid == 0) {
        listed[0] = 0;
        naming[0] = 0;
    }
    int own = 0;
    for (int base = 0; base < windows; base += IN_FLIGHT * threads) {
        placed_window<T> coming[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            coming[k] =
                bring_placed(v, b, indices, dy, windows, base + k * threads + tid);
        }
        if (base == 0) { /* while those are on their way */
            clear_box(v, b);
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            const int q = base + k * threads + tid;
            const int name = name_of<T, GAPS>(v, b, coming[k]);
            if (q < windows) {
                room.names[q] = static_cast<uint16_t>(name);
                room.gradient[q] = coming[k].gradient;
            }
            mark(v, room, name);
            own += name != NO_ELEMENT;
        }
    }
    for (int d = 1; d < WARP; d *= 2) {
        own += __shfl_xor_sync(ALL_LANES, own, d);
    }
    if (tid % WARP == 0) {
        atomicAdd(naming, own);
    }
    __syncthreads();
    list_marked(v, room, 0, 1 << v.log_words, listed);
    __syncthreads();
    const int found = listed[0];
    const bool chains =
        static_cast<float>(found) > v.chained * static_cast<float>(naming[0]);
    if (!chains && found <= v.listed) {
        add_named<T, GAPS>(v, b, room, found);
        return;
    }
    if (chains) {
        link_windows(v, b, room, windows);
        if (found >= elements_of_box(v, b) / LISTED_OF_BOX) {
            __syncthreads();
            store_chains(v, b, room);
            return;
        }
    }
    /* more than the list has room for: as many words at a time as it surely has */
    for (int from = 0; from < 1 << v.log_words; from += v.listed / 32) {
        __syncthreads();
        if (tid == 0) {
            listed[0] = 0;
        }
        __syncthreads();
        const int to = from + v.listed / 32, words = 1 << v.log_words;
        list_marked(v, room, from, to < words ? to : words, listed);
        __syncthreads();
        if (chains) {
            store_listed_chains(v, b, room, listed[0]);
        }
        else {
            add_named<T, GAPS>(v, b, room, listed[0]);
        }
    }
}

/* ---- launch ---- */

/* Instructions that asking takes for each window from which on chains take less: with the
   estimate's 60 random windows of a stride of 2 became chains, and took 234 us for 133. */
constexpr double CHAINED_FROM = 100;

template <typename T>
gpo_status
max_pool3d_backward_overlapping_windows(gpo_call *call)
{
    overlap_plan s;
    if (!plan_overlap(call, &s)) {
        return GPO_OK; /* dx is empty: its row of the table takes no other */
    }
    overlap_view<T> v = overlap_view_of<T>(call, s);
    v.log_words = s.log_words;
    v.log_lanes = s.log_lanes;
    v.listed = static_cast<int>(s.listed);
    v.chained =
        static_cast<float>(CHAINED_FROM / (CHAINED_WORK / s.chained - NAMED_WORK));
    v.shares_rows = s.shares_rows;
    const size_t bytes = static_cast<size_t>(s.bytes);
    const dim3 grid = grid_of(s.blocks), block(static_cast<unsigned>(s.threads));
    if (pool_gradient_plan_of(call)->has_gaps) {
        gpo_allow_shared(max_pool3d_backward_overlapping_windows_kernel<T, true>,
                         bytes);
        return GPO_LAUNCH(call, grid, block, bytes,
                          (max_pool3d_backward_overlapping_windows_kernel<T, true>), v);
    }
    gpo_allow_shared(max_pool3d_backward_overlapping_windows_kernel<T, false>, bytes);
    return GPO_LAUNCH(call, grid, block, bytes,
                      (max_pool3d_backward_overlapping_windows_kernel<T, false>), v);
}

#define INSTANTIATE(T) \
    template gpo_status max_pool3d_backward_overlapping_windows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
