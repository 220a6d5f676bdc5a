/*
 * backward_overlapping_windows.cu  The gradient of windows that overlap, dilated or
 * not.  A block owns a box of dx.  It fills that with zeros, reads the windows that
 * reach into it once and keeps in shared memory which element each names, and its
 * gradient.  Then each element that is named, and no other, asks the windows that have
 * it, and adds in the order of dy.
 * Cost:  an index and a gradient for each window of a box; dx once in words of 16
 *        bytes, and each named element; (kernel / stride)^3 reads of shared memory for
 *        each of those.  Atomics only mark and list elements: no sum depends on their
 *        order.
 */
#include "../gather.cuh"
#include "../overlap.cuh"

template <typename T>
struct overlap_view {
    const T *dy;
    const int64_t *indices;
    T *dx;
    int planes, plane, outputs; /* elements of a plane of dx, of dy */
    gather_axis axis[POOL_AXES];
    divider dilation[POOL_AXES];
    int step[POOL_AXES]; /* windows apart that have a common element */
    bool has_gaps;
    divider per_slice, per_row; /* elements of a plane */
    int together;
    divider tiles[POOL_AXES];                  /* boxes of a plane */
    divider side[POOL_AXES], reach[POOL_AXES]; /* elements, windows of a box */
    int log_words, log_lanes;
    bool shares_rows;    /* lanes have different rows of windows, not columns */
    int windows, listed; /* of a block, at most */
};

/* ---- what a block owns ---- */

struct box {
    int64_t plane; /* the first */
    int planes;
    int from[POOL_AXES], n[POOL_AXES];      /* elements */
    int first[POOL_AXES], count[POOL_AXES]; /* windows */
};

template <typename T>
__device__ __forceinline__ box
box_of(const overlap_view<T> &v, int block)
{
    box b;
    int at[POOL_AXES];
#pragma unroll
    for (int d = POOL_W; d >= POOL_T; d--) {
        const int above = v.tiles[d].narrow(block);
        at[d] = block - above * static_cast<int>(v.tiles[d].by);
        block = above;
    }
    const int first = block * v.together, left = v.planes - first;
    b.plane = first;
    b.planes = left < v.together ? left : v.together;
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        const gather_axis &a = v.axis[d];
        const int side = static_cast<int>(v.side[d].by);
        b.from[d] = at[d] * side;
        b.n[d] = a.in - b.from[d] < side ? a.in - b.from[d] : side;
        const int_range over = windows_over(a, b.from[d], b.from[d] + b.n[d] - 1);
        b.first[d] = over.first;
        b.count[d] = over.last - over.first + 1; /* perhaps none, or less */
    }
    return b;
}

/* A block's shared memory. */
template <typename T>
struct overlap_room {
    T *gradient;     /* of each window */
    uint16_t *names; /* the element of the box that it names, or NO_ELEMENT */
    unsigned *named; /* a bit for each element */
    uint16_t *list;  /* of those named, in any order */
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

/* In words of 16 bytes, and elements before and after. */
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

/* A box is contiguous, unless slices are cut into rows. */
template <typename T>
__device__ __forceinline__ void
clear_box(const overlap_view<T> &v, const box &b)
{
    const gather_axis &h = v.axis[POOL_H], &w = v.axis[POOL_W];
    const bool is_cut = b.n[POOL_H] < h.in;
    const int rows = b.n[POOL_H] * b.n[POOL_W];
    const int pieces = is_cut ? b.n[POOL_T] : 1;
    const int piece = is_cut ? rows : b.planes * b.n[POOL_T] * rows;
    const int begin = (b.from[POOL_T] * h.in + b.from[POOL_H]) * w.in + b.from[POOL_W];
    T *to = v.dx + b.plane * v.plane + begin;
    for (int k = 0; k < pieces; k++) {
        clear(to, piece);
        to += h.in * w.in;
    }
}

/* ---- windows ---- */

struct box_place {
    int plane, at[POOL_AXES];
};

/* Number q of a box's windows or elements, `pitch` along each axis. */
__device__ __forceinline__ box_place
place_of(const divider (&pitch)[POOL_AXES], int q)
{
    box_place p;
#pragma unroll
    for (int d = POOL_W; d >= POOL_T; d--) {
        const int above = pitch[d].narrow(q);
        p.at[d] = q - above * static_cast<int>(pitch[d].by);
        q = above;
    }
    p.plane = q;
    return p;
}

/* Whether window q is one; *from: its offset in dy. */
template <typename T>
__device__ __forceinline__ bool
find_window(const overlap_view<T> &v, const box &b, int windows, int q, int64_t *from)
{
    const box_place p = place_of(v.reach, q);
    const bool is_there = q < windows && p.at[POOL_T] < b.count[POOL_T] &&
                          p.at[POOL_H] < b.count[POOL_H] &&
                          p.at[POOL_W] < b.count[POOL_W];
    const int line = (b.first[POOL_T] + p.at[POOL_T]) * v.axis[POOL_H].out +
                     b.first[POOL_H] + p.at[POOL_H];
    *from = (b.plane + p.plane) * v.outputs + line * v.axis[POOL_W].out +
            b.first[POOL_W] + p.at[POOL_W];
    return is_there;
}

/* The number in the box of the element that window q names, or NO_ELEMENT. */
template <typename T>
__device__ __forceinline__ int
name_of(const overlap_view<T> &v, const box &b, int q, int64_t found)
{
    if (static_cast<uint64_t>(found) >= static_cast<uint64_t>(v.plane)) {
        return NO_ELEMENT;
    }
    const box_place p = place_of(v.reach, q);
    const int index = static_cast<int>(found), t = v.per_slice.narrow(index);
    const int rest = index - t * static_cast<int>(v.per_slice.by);
    const int h = v.per_row.narrow(rest);
    const int at[POOL_AXES] = {t, h, rest - h * static_cast<int>(v.per_row.by)};
    bool is_own = true;
    int name = p.plane;
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        const gather_axis &a = v.axis[d];
        const int past = at[d] - ((b.first[d] + p.at[d]) * a.stride - a.padding);
        const int in_box = at[d] - b.from[d];
        is_own = is_own && is_within(past, (a.kernel - 1) * a.dilation + 1) &&
                 is_within(in_box, b.n[d]);
        if (v.has_gaps) {
            is_own = is_own && v.dilation[d].narrow(past) * a.dilation == past;
        }
        name = name * static_cast<int>(v.side[d].by) + in_box;
    }
    return is_own ? name : NO_ELEMENT;
}

/* Lists an element unless it is; all lanes of a warp together. */
template <typename T>
__device__ __forceinline__ void
list_element(const overlap_view<T> &v, const overlap_room<T> &room, int name,
             int *listed)
{
    const int lane = threadIdx.x % WARP;
    const int before = __shfl_up_sync(ALL_LANES, name, 1);
    bool is_first = name != NO_ELEMENT && (lane == 0 || name != before);
    if (is_first) { /* elements beside each other are in different words */
        const unsigned bit = 1u << (name >> v.log_words);
        is_first =
            (atomicOr(&room.named[name & ((1 << v.log_words) - 1)], bit) & bit) == 0;
    }
    const unsigned firsts = __ballot_sync(ALL_LANES, is_first);
    if (firsts != 0) {
        int slot = lane == 0 ? atomicAdd(listed, __popc(firsts)) : 0;
        slot = __shfl_sync(ALL_LANES, slot, 0) + __popc(firsts & ((1u << lane) - 1));
        if (is_first) {
            room.list[slot] = static_cast<uint16_t>(name);
        }
    }
}

/* ---- elements ---- */

/* Windows of a box that have an element: `count` from `first` on, `step` apart. */
struct window_line {
    int first, count;
};

template <typename T>
__device__ __forceinline__ window_line
line_with(const overlap_view<T> &v, const box &b, int d, int at)
{
    const gather_axis &a = v.axis[d];
    int_range over = windows_over(a, at, at);
    if (v.has_gaps) {
        while (over.first <= over.last && !window_has(a, over.first, at)) {
            over.first++;
        }
    }
    const int past = over.last - over.first;
    const int steps = v.has_gaps ? past / v.step[d] : past;
    return {over.first - b.first[d], past < 0 ? 0 : steps + 1};
}

/* A lane's share of the gradients of an element. */
template <typename T>
__device__ __forceinline__ value_type<T>
sum_of_element(const overlap_view<T> &v, const box &b, const overlap_room<T> &room,
               int name, const box_place &e, int share)
{
    const window_line t = line_with(v, b, POOL_T, b.from[POOL_T] + e.at[POOL_T]);
    const window_line h = line_with(v, b, POOL_H, b.from[POOL_H] + e.at[POOL_H]);
    const window_line w = line_with(v, b, POOL_W, b.from[POOL_W] + e.at[POOL_W]);
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
        const int slice = slices + t.first + it * v.step[POOL_T];
        const int row = (slice * high + h.first + ih * v.step[POOL_H]) * wide + w.first;
#pragma unroll 4
        for (int iw = col; iw < w.count; iw += cols) {
            const int q = row + iw * v.step[POOL_W];
            if (room.names[q] == name) {
                sum += value_of(room.gradient[q]);
            }
        }
        ih += each;
    }
    return sum;
}

template <typename T>
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
        value_type<T> sum = sum_of_element(v, b, room, name, e, share);
        for (int d = across; d < WARP; d *= 2) {
            sum += __shfl_xor_sync(ALL_LANES, sum, d);
        }
        if (active && share == 0) {
            const int line = (b.from[POOL_T] + e.at[POOL_T]) * v.axis[POOL_H].in +
                             b.from[POOL_H] + e.at[POOL_H];
            T *const dx = v.dx + (b.plane + e.plane) * v.plane;
            dx[line * v.axis[POOL_W].in + b.from[POOL_W] + e.at[POOL_W]] =
                stored_as<T>(sum);
        }
    }
}

/* ---- the kernel ---- */

template <typename T>
__global__ void __launch_bounds__(2 * OVERLAP_BLOCK, OVERLAP_BLOCKS / 2)
    max_pool3d_backward_overlapping_windows_kernel(overlap_view<T> v)
{
    GPO_DYN_SHARED(unsigned char, memory);
    GPO_SHARED(int, listed, [1]);
    const overlap_room<T> room = room_of(v, memory);
    const box b = box_of(v, blockIdx.x);
    const int tid = threadIdx.x, threads = blockDim.x;
    const int windows = b.planes * static_cast<int>(v.reach[POOL_T].by) *
                        static_cast<int>(v.reach[POOL_H].by) *
                        static_cast<int>(v.reach[POOL_W].by);
    for (int k = tid; k < 1 << v.log_words; k += threads) {
        room.named[k] = 0;
    }
    if (tid == 0) {
        listed[0] = 0;
    }
    for (int base = 0; base < windows; base += IN_FLIGHT * threads) {
        int64_t found[IN_FLIGHT];
        T gradient[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            int64_t from;
            const int q = base + k * threads + tid;
            const bool is_there = find_window(v, b, windows, q, &from);
            found[k] = is_there ? v.indices[from] : -1;
            gradient[k] = v.dy[is_there ? from : 0];
        }
        if (base == 0) { /* while those are on their way */
            clear_box(v, b);
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            const int q = base + k * threads + tid;
            const int name = name_of(v, b, q, found[k]);
            if (q < windows) {
                room.names[q] = static_cast<uint16_t>(name);
                room.gradient[q] = gradient[k];
            }
            list_element(v, room, name, listed);
        }
    }
    __syncthreads();
    add_named(v, b, room, listed[0]);
}

/* ---- launch ---- */

template <typename T>
gpo_status
max_pool3d_backward_overlapping_windows(gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    overlap_plan s;
    if (!plan_overlap(call, &s)) {
        return GPO_OK; /* dx is empty: its row of the table takes no other */
    }
    overlap_view<T> v = {};
    v.dy = static_cast<const T *>(call->in[0].data);
    v.indices = static_cast<const int64_t *>(call->in[1].data);
    v.dx = static_cast<T *>(call->out[0].data);
    v.planes = static_cast<int>(plan.planes);
    v.plane = static_cast<int>(plan.plane);
    v.outputs = static_cast<int>(plan.outputs);
    v.has_gaps = plan.has_gaps;
    v.together = s.together;
    v.windows = s.together;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        v.axis[d] = gather_axis_of(a);
        v.dilation[d] = divider_of(a.dilation);
        v.step[d] = static_cast<int>(step_of(a));
        v.tiles[d] = divider_of(s.tiles[d]);
        v.side[d] = divider_of(s.side[d]);
        v.reach[d] = divider_of(s.reach[d]);
        v.windows *= s.reach[d];
    }
    v.per_slice = divider_of(plan.axis[POOL_H].in * plan.axis[POOL_W].in);
    v.per_row = divider_of(plan.axis[POOL_W].in);
    v.log_words = s.log_words;
    v.log_lanes = s.log_lanes;
    v.shares_rows = s.shares_rows;
    const size_t bytes = static_cast<size_t>(s.bytes);
    gpo_allow_shared(max_pool3d_backward_overlapping_windows_kernel<T>, bytes);
    return GPO_LAUNCH(call, grid_of(s.blocks), dim3(static_cast<unsigned>(s.threads)),
                      bytes, (max_pool3d_backward_overlapping_windows_kernel<T>), v);
}

#define INSTANTIATE(T) \
    template gpo_status max_pool3d_backward_overlapping_windows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
