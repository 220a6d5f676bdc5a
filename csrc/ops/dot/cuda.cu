/*
 * cuda.cu  The ladder of dot on CUDA, v0 to v3, then the table and the choice.
 * v0 to v2 end in one atomic per thread and accumulate in the type of the arrays, for
 * float16 in half: they overflow at 65504 and round every addition to 11 bits.  v3 adds
 * in float, and in a fixed order.
 * Not here: how products become a sum (products.cuh), the contract (op.c).
 */
#include "products.cuh"

#include <stdio.h>

constexpr int BLOCK = 256;

inline int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- what v0 to v2 share ---- */

constexpr int ATOMIC_BLOCKS = 8; /* per processor: all its threads, an atomic each */

/* Atomics need a sum to start from. */
template <typename T>
__global__ void
dot_clear(T *sum)
{
    *sum = T{};
}

/* Blocks for n items, one per thread up to the fixed grid. */
inline unsigned
atomic_grid(const gpo_call *call, int64_t n)
{
    const int64_t most = static_cast<int64_t>(gpo_processors(call)) * ATOMIC_BLOCKS;
    const int64_t blocks = ceil_div(n, BLOCK);
    return static_cast<unsigned>(blocks < most ? blocks : most);
}

/*
 * v0  One atomicAdd per thread.
 * Was:   nothing; the first parallel dot product one would write.
 * Now:   a thread adds its products, a grid apart, and then its sum to the result.
 * Cost:  reads 2 * n * sizeof(T) bytes, one element per load; an atomic for every
 *        thread that fits the card, all on one address, and a half alone is added by
 *        compare and swap.
 * Left:  a load moves 2 bytes of float16 and a product takes an instruction -> v1.
 */
template <typename T>
__global__ void
__launch_bounds__(BLOCK) dot_v0_atomic(dot_view<T> a, T *sum)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    T mine = {};
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < a.n;
         i += step) {
        mine = multiply_add(mine, element(a.x + i * a.x_stride),
                            element(a.y + i * a.y_stride));
    }
    atomic_add(sum, mine);
}

template <typename T>
static gpo_status
dot_v0_of(gpo_call *call)
{
    T *sum = static_cast<T *>(call->out[0].data);
    const dot_view<T> a = view_of<T>(call);
    const gpo_status status = GPO_LAUNCH(call, 1, 1, 0, (dot_clear<T>), sum);
    return status ? status
                  : GPO_LAUNCH(call, atomic_grid(call, a.n), BLOCK, 0,
                               (dot_v0_atomic<T>), a, sum);
}

template <typename T>
static gpo_status
dot_v0(gpo_call *call)
{
    if constexpr (std::is_integral_v<T>) { /* two's complement: the same sum */
        return dot_v0_of<typename sum_of<T>::T>(call);
    }
    else {
        return dot_v0_of<T>(call);
    }
}

/*
 * v1  Pairs of halves.
 * Was:   v0 loads, multiplies and adds single halves.
 * Now:   4-byte loads, two products per instruction, and one packed atomic: the even
 *        elements' sum to one half of a pair, the odd ones' to the other.  (The source
 *        adds one sum to both.)  A last kernel adds the halves.
 * Cost:  as v0 with half the instructions; arrays that start on different halves of a
 *        word, or have gaps, are read one element at a time.
 * Left:  an array of halves has no pair to spare for every element -> v2.
 */
template <typename Half, bool PACKED>
__device__ __forceinline__ typename half_pair<Half>::type
sum_pairs(const dot_view<Half> &a)
{
    using Pair = typename half_pair<Half>::type;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    /* PACKED: elements before the first whole word, the same of both arrays */
    const int64_t head = PACKED && (reinterpret_cast<uintptr_t>(a.x) & 2u) ? 1 : 0;
    const int64_t pairs = a.n > head ? (a.n - head) / 2 : 0;
    Pair mine;
    mine.x = mine.y = stored_as<Half>(0.0f);
    for (int64_t k = first; k < pairs; k += step) {
        Pair p, q;
        if constexpr (PACKED) {
            const unsigned *x = reinterpret_cast<const unsigned *>(a.x + head);
            const unsigned *y = reinterpret_cast<const unsigned *>(a.y + head);
            const unsigned x_word = x[k], y_word = y[k];
            memcpy(&p, &x_word, sizeof p);
            memcpy(&q, &y_word, sizeof q);
        }
        else {
            p.x = a.x[2 * k * a.x_stride];
            p.y = a.x[(2 * k + 1) * a.x_stride];
            q.x = a.y[2 * k * a.y_stride];
            q.y = a.y[(2 * k + 1) * a.y_stride];
        }
        mine = multiply_add(mine, p, q);
    }
    if (first == 0) {
        if (head && a.n > 0) {
            mine.y = multiply_add(mine.y, a.x[0], a.y[0]);
        }
        const int64_t tail = head + 2 * pairs;
        if (tail < a.n) {
            mine.x =
                multiply_add(mine.x, a.x[tail * a.x_stride], a.y[tail * a.y_stride]);
        }
    }
    return mine;
}

template <typename Half, bool PACKED>
__global__ void
__launch_bounds__(BLOCK)
    dot_v1_pairs(dot_view<Half> a, typename half_pair<Half>::type *sum)
{
    atomic_add(sum, sum_pairs<Half, PACKED>(a));
}

/* The result out of the pair: the sum of its halves. */
template <typename Half>
__global__ void
dot_v1_finish(const typename half_pair<Half>::type *sum, Half *out)
{
    *out = add_halves(*sum);
}

/* Clears a pair, lets launch(grid, packed, a, pair) add to it, adds its halves. */
template <typename Half, typename Launch>
static gpo_status
in_a_pair(gpo_call *call, Launch launch)
{
    using Pair = typename half_pair<Half>::type;
    const dot_view<Half> a = view_of<Half>(call);
    const uintptr_t apart =
        reinterpret_cast<uintptr_t>(a.x) ^ reinterpret_cast<uintptr_t>(a.y);
    const bool packed = a.x_stride == 1 && a.y_stride == 1 && apart % sizeof(Pair) == 0;
    void *memory = nullptr;
    gpo_status status = gpo_scratch(call, sizeof(Pair), &memory);
    Pair *sum = static_cast<Pair *>(memory);
    if (!status) {
        status = GPO_LAUNCH(call, 1, 1, 0, (dot_clear<unsigned>),
                            static_cast<unsigned *>(memory));
    }
    if (!status) {
        status = launch(atomic_grid(call, ceil_div(a.n, 2)), packed, a, sum);
    }
    return status ? status
                  : GPO_LAUNCH(call, 1, 1, 0, (dot_v1_finish<Half>), sum,
                               static_cast<Half *>(call->out[0].data));
}

template <typename Half>
static gpo_status
dot_v1(gpo_call *call)
{
    return in_a_pair<Half>(
        call, [=](unsigned grid, bool packed, const auto &a, auto *sum) {
            return packed ? GPO_LAUNCH(call, grid, BLOCK, 0, (dot_v1_pairs<Half, true>),
                                       a, sum)
                          : GPO_LAUNCH(call, grid, BLOCK, 0,
                                       (dot_v1_pairs<Half, false>), a, sum);
        });
}

/*
 * v2  The aligned neighbour.
 * Was:   v1 owns a pair for its one result.
 * Now:   fast_atomic_add turns the addition of one half into a packed one on the aligned
 *        pair around it; the neighbour gets -0.0.  It works on any array of halves.
 * Cost:  one more addition per thread, one packed atomic.  A result of one element has
 *        no neighbour, and the pair around it belongs to somebody else: it goes through
 *        a pair of scratch memory.  (The source passes the input's length and writes
 *        past the result.)
 * Left:  every addition rounds to 11 bits, 65504 is the end, and the order of the
 *        atomics changes the result -> v3.
 */
template <typename Half, bool PACKED>
__global__ void
__launch_bounds__(BLOCK) dot_v2_neighbour(dot_view<Half> a, Half *sum)
{
    const typename half_pair<Half>::type mine = sum_pairs<Half, PACKED>(a);
    fast_atomic_add(sum, 0, 2, add_halves(mine));
}

template <typename Half>
static gpo_status
dot_v2(gpo_call *call)
{
    return in_a_pair<Half>(
        call, [=](unsigned grid, bool packed, const auto &a, auto *pair) {
            Half *sum = reinterpret_cast<Half *>(pair);
            return packed ? GPO_LAUNCH(call, grid, BLOCK, 0,
                                       (dot_v2_neighbour<Half, true>), a, sum)
                          : GPO_LAUNCH(call, grid, BLOCK, 0,
                                       (dot_v2_neighbour<Half, false>), a, sum);
        });
}

/*
 * v3  Wide sums, many loads in flight.
 * Was:   v2 adds in half, in an order that no run repeats, and waits for two 4-byte
 *        loads at a time.
 * Now:   4 packs of 16 bytes per array and thread in flight; products are added in
 *        float within a tile, then in double; blocks leave their parts and the last one
 *        adds them in order.  Where y is misaligned against x, a pack of y is cut out
 *        of two aligned ones.
 * Cost:  reads 2 * n * sizeof(T) bytes once, one launch; strides read single elements.
 * Left:  it waits for memory; what is left is the launch for small arrays.
 */
constexpr int BLOCKS_PER_PROCESSOR = 4; /* 1024 threads, 64 registers each */
constexpr int ITEMS = 4;                /* packs of x, and of y, in flight */
constexpr int SHIFTED_ITEMS = 2;        /* twice as many packs of y */
constexpr int LOADS = 8;                /* single elements in flight */

/*
 * Up to here reads leave L2 what was in it.  A larger input drives that out in any
 * case, and then a stream that may use only part of L2 is the slower one: reduce's
 * NOTES.md has the figures.
 */
constexpr int64_t KEEP_L2_BYTES = static_cast<int64_t>(256) << 20;

/* Where the blocks of one launch meet. */
template <typename Part>
struct dot_meeting {
    Part *part;
    unsigned *ticket;
};

/*
 * x and y without gaps: x + head lies on a 16-byte boundary, and so does y + head less
 * `shift` bytes.  `packs` packs follow, then what is left.
 */
template <typename T>
struct dot_packs {
    const T *x, *y;
    int64_t n, head, packs;
    int shift;
    bool keep_l2;
};

/* The block's threads meet, then the blocks; the last one stores the result. */
template <typename S>
__device__ __forceinline__ void
finish(typename S::Part mine, const dot_meeting<typename S::Part> &meeting,
       typename S::T *out)
{
    using Part = typename S::Part;
    GPO_SHARED(Part, slots, [BLOCK / WARP]);
    GPO_SHARED(bool, last, [1]);
    Part total = block_combine<S, BLOCK>(mine, slots);
    if (gridDim.x > 1) {
        if (threadIdx.x == 0) {
            meeting.part[blockIdx.x] = total;
        }
        if (!is_last_block(meeting.ticket, gridDim.x, last)) {
            return;
        }
        typename S::Fold all;
        for (unsigned b = threadIdx.x; b < gridDim.x; b += BLOCK) {
            all.add(meeting.part[b]);
        }
        total = block_combine<S, BLOCK>(all.value(), slots);
    }
    if (threadIdx.x == 0) {
        store_element(out, S::store(total));
    }
}

/* 16 bytes out of 32, from byte `shift` on, shift in [1, 15]. */
__device__ __forceinline__ uint4
cut_out(uint4 low, uint4 high, int shift)
{
    unsigned w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (shift & 8) {
#pragma unroll
        for (int i = 0; i < 6; i++) {
            w[i] = w[i + 2];
        }
    }
    if (shift & 4) {
#pragma unroll
        for (int i = 0; i < 5; i++) {
            w[i] = w[i + 1];
        }
    }
    const int bits = 8 * (shift & 3);
    return {__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
            __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits)};
}

/* N packs of each array, `step` packs apart, into N accumulators, then into one. */
template <typename S, bool SHIFTED, int N>
__device__ __forceinline__ typename S::Acc
sum_packs(const uint4 *x, const uint4 *y, int64_t step, int shift, uint64_t policy)
{
    using T = typename S::T;
    uint4 p[N], q[N];
#pragma unroll
    for (int u = 0; u < N; u++) {
        p[u] = load_streamed(x + u * step, policy);
        q[u] = load_streamed(y + u * step, policy);
    }
    if constexpr (SHIFTED) {
        uint4 next[N];
#pragma unroll
        for (int u = 0; u < N; u++) {
            next[u] = load_streamed(y + u * step + 1, policy);
        }
#pragma unroll
        for (int u = 0; u < N; u++) {
            q[u] = cut_out(q[u], next[u], shift);
        }
    }
    typename S::Acc acc[N] = {};
#pragma unroll
    for (int u = 0; u < N; u++) {
        const pack<T> a = pack_of<T>(p[u]), b = pack_of<T>(q[u]);
#pragma unroll
        for (int v = 0; v < pack<T>::SIZE; v++) {
            acc[u] = S::multiply_add(acc[u], a.v[v], b.v[v]);
        }
    }
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2) {
#pragma unroll
        for (int u = 0; u < half; u++) {
            acc[u] = S::combine(acc[u], acc[u + half]);
        }
    }
    return acc[0];
}

template <typename S, bool SHIFTED>
__global__ void
__launch_bounds__(BLOCK, BLOCKS_PER_PROCESSOR)
    dot_v3_packs(dot_packs<typename S::T> a, dot_meeting<typename S::Part> meeting,
                 typename S::T *out)
{
    using T = typename S::T;
    constexpr int N = SHIFTED ? SHIFTED_ITEMS : ITEMS;
    constexpr int64_t TILE = BLOCK * N;
    const uint64_t policy = l2_policy(a.keep_l2);
    const int64_t tid = threadIdx.x, tiles = a.packs / TILE;
    const char *const start = reinterpret_cast<const char *>(a.y + a.head);
    const uint4 *const x = reinterpret_cast<const uint4 *>(a.x + a.head);
    const uint4 *const y =
        reinterpret_cast<const uint4 *>(SHIFTED ? start - a.shift : start);

    typename S::Fold fold;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t k = tile * TILE + tid;
        fold.add(
            S::widen(sum_packs<S, SHIFTED, N>(x + k, y + k, BLOCK, a.shift, policy)));
    }
    if (blockIdx.x == tiles % gridDim.x) { /* the block whose turn it would be */
#pragma unroll 1
        for (int64_t k = tiles * TILE + tid; k < a.packs; k += BLOCK) {
            fold.add(S::widen(
                sum_packs<S, SHIFTED, 1>(x + k, y + k, BLOCK, a.shift, policy)));
        }
        /* fewer than BLOCK elements before the first pack and after the last */
        const int64_t tail = a.head + a.packs * pack<T>::SIZE + tid;
        if (tid < a.head) {
            fold.add(
                S::widen(S::multiply_add({}, element(a.x + tid), element(a.y + tid))));
        }
        if (tail < a.n) {
            fold.add(S::widen(
                S::multiply_add({}, element(a.x + tail), element(a.y + tail))));
        }
    }
    finish<S>(fold.value(), meeting, out);
}

template <typename S>
__global__ void
__launch_bounds__(BLOCK, BLOCKS_PER_PROCESSOR)
    dot_v3_strided(dot_view<typename S::T> a, dot_meeting<typename S::Part> meeting,
                   typename S::T *out)
{
    using T = typename S::T;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;

    typename S::Fold fold;
    for (; k + (LOADS - 1) * step < a.n; k += LOADS * step) {
        T p[LOADS], q[LOADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            p[u] = element(a.x + (k + u * step) * a.x_stride);
            q[u] = element(a.y + (k + u * step) * a.y_stride);
        }
        typename S::Acc acc = {};
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            acc = S::multiply_add(acc, p[u], q[u]);
        }
        fold.add(S::widen(acc));
    }
#pragma unroll 1
    for (; k < a.n; k += step) {
        fold.add(S::widen(S::multiply_add({}, element(a.x + k * a.x_stride),
                                          element(a.y + k * a.y_stride))));
    }
    finish<S>(fold.value(), meeting, out);
}

/* Blocks for `work` tiles: at least one, at most what the processors hold. */
inline unsigned
resident_grid(const gpo_call *call, int64_t work)
{
    const int64_t most =
        static_cast<int64_t>(gpo_processors(call)) * BLOCKS_PER_PROCESSOR;
    return static_cast<unsigned>(work < 1 ? 1 : work < most ? work : most);
}

template <typename Part>
static gpo_status
meet(gpo_call *call, unsigned blocks, dot_meeting<Part> *meeting)
{
    *meeting = {nullptr, nullptr};
    const gpo_status status = blocks > 1 ? gpo_tickets(call, &meeting->ticket) : GPO_OK;
    if (blocks > 1 && !status) {
        meeting->part = reinterpret_cast<Part *>(meeting->ticket + GPO_TICKETS);
    }
    return status;
}

/* Splits arrays without gaps into head, packs and tail; x can be peeled to a boundary. */
template <typename T>
static dot_packs<T>
packs_of(const dot_view<T> &a)
{
    constexpr int64_t SIZE = pack<T>::SIZE, BYTES = sizeof(T);
    int64_t head = 0;
    while (head < a.n && reinterpret_cast<uintptr_t>(a.x + head) % 16 != 0) {
        head++;
    }
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(a.y + head) % 16);
    if (head * BYTES < shift) { /* the first pack of y would start before y */
        head = head + SIZE < a.n ? head + SIZE : a.n;
    }
    const int64_t left = (a.n - head) * BYTES;
    const int64_t packs = shift ? (left + shift) / 16 - 1 : left / 16;
    const int64_t bytes = KEEP_L2_BYTES / (2 * BYTES);
    return {a.x, a.y, a.n, head, packs > 0 ? packs : 0, shift, a.n <= bytes};
}

template <typename T>
static gpo_status
dot_v3(gpo_call *call)
{
    using S = sum_of<T>;
    using E = typename S::T;
    dot_view<E> a = view_of<E>(call);
    E *out = static_cast<E *>(call->out[0].data);
    if (reinterpret_cast<uintptr_t>(a.x) % sizeof(E) != 0) { /* complex: try y first */
        a = {a.y, a.x, a.n, a.y_stride, a.x_stride};
    }
    const bool gapless = a.x_stride == 1 && a.y_stride == 1 &&
                         reinterpret_cast<uintptr_t>(a.x) % sizeof(E) == 0;
    dot_meeting<typename S::Part> meeting;
    if (!gapless) {
        const unsigned grid = resident_grid(call, ceil_div(a.n, BLOCK * LOADS));
        const gpo_status status = meet(call, grid, &meeting);
        return status ? status
                      : GPO_LAUNCH(call, grid, BLOCK, 0, (dot_v3_strided<S>), a,
                                   meeting, out);
    }
    const dot_packs<E> packs = packs_of(a);
    const int items = packs.shift ? SHIFTED_ITEMS : ITEMS;
    const unsigned grid = resident_grid(call, packs.packs / (BLOCK * items));
    const gpo_status status = meet(call, grid, &meeting);
    if (status) {
        return status;
    }
    return packs.shift ? GPO_LAUNCH(call, grid, BLOCK, 0, (dot_v3_packs<S, true>),
                                    packs, meeting, out)
                       : GPO_LAUNCH(call, grid, BLOCK, 0, (dot_v3_packs<S, false>),
                                    packs, meeting, out);
}

/* ---- table and choice ---- */

static const gpo_variant variants[] = {
    {"v0",
     "one atomicAdd per thread, in the arrays' own type",
     "",
     "no",
     {nullptr, nullptr, nullptr, nullptr, nullptr, dot_v0<int32_t>, dot_v0<uint32_t>,
      dot_v0<int64_t>, dot_v0<uint64_t>, dot_v0<f16>, dot_v0<bf16>, dot_v0<float>,
      dot_v0<double>, dot_v0<c64>, dot_v0<c128>}},
    {"v1",
     "pairs of halves, one packed atomic",
     "",
     "no",
     {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
      dot_v1<f16>, dot_v1<bf16>}},
    {"v2",
     "the half's aligned neighbour makes its atomic a packed one",
     "",
     "no",
     {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
      dot_v2<f16>, dot_v2<bf16>}},
    {"v3", "wide sums, many 16-byte loads in flight, one launch", "", "run-to-run",
     GPO_ALL(dot_v3)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose(const gpo_call *, char why[GPO_MESSAGE])
{
    snprintf(why, GPO_MESSAGE,
             "v3 alone adds in float, in a fixed order, and takes every dtype");
    return &variants[3];
}

extern "C" const gpo_table dot_cuda = {variants, choose};
