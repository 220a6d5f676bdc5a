/*
 * cuda.cu  The ladder of convolve on CUDA, v0 to v3, then the table and the choice.  Each
 * rung is a comment, its kernels and a launcher.  Not here: products and totals
 * (products.cuh), the kernels of v3 (spectra.cuh), the contract (op.c).
 */
#include "products.cuh"

#include <stdio.h>

constexpr int BLOCK = 128; /* threads of v0 and v1 */
constexpr int64_t MAX_GRID_X = 2147483647;

inline int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* A grid for `n` blocks' work: kernels stride over what is more than a grid may have. */
inline dim3
grid_of(int64_t n)
{
    return dim3(static_cast<unsigned>(n < MAX_GRID_X ? n : MAX_GRID_X));
}

/*
 * v0  Direct.
 * Now:   a thread for each sum of the result; it walks along both operands, and only
 *        along terms that exist.
 * Cost:  two loads per product, both out of L1 where the filter is short.
 * Left:  the filter is the same for all threads and the signal nearly so, but every
 *        product loads both -> v1.
 */
template <typename T>
__global__ void
__launch_bounds__(BLOCK) convolve_v0_direct(convolve_view<T> c)
{
    const int64_t all = c.count_rows * c.count;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t u = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; u < all;
         u += step) {
        const int64_t row = quotient(u, c.count);
        const int64_t i = u - row * c.count;
        c.out[u] = result_of<T>(exact_sum(c, find_row(c, row), c.first + i));
    }
}

template <typename T>
static gpo_status
convolve_v0(gpo_call *call)
{
    convolve_plan plan;
    const convolve_view<T> c = view_of<T>(call, &plan);
    const dim3 grid = grid_of(ceil_div(c.count_rows * c.count, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (convolve_v0_direct<T>), c);
}

/* ---- v1: a piece of the filter travels with each launch ---- */

constexpr int PIECE_BYTES = 2048; /* with the view below the 4 KB every card takes */
constexpr int STAGE = 256;        /* terms whose signal is in shared memory at a time */

template <typename T>
struct filter_piece {
    static constexpr int TAPS = PIECE_BYTES / sizeof(T);
    T tap[TAPS];
};

/* What one launch does: `rows` rows, terms [tap, tap + taps) of their sums. */
struct piece_work {
    int64_t row, rows, tap;
    int taps;
    int per_row; /* taps from the filter of a row to that of the next; 0: the same */
};

/* Sums so far of the launch's rows; NULL where it has all the terms. */
template <typename T>
struct carried {
    value_type<T> *sums;
    bool is_first, is_last;
};

template <typename T>
__global__ void
__launch_bounds__(BLOCK) convolve_v1_pack_filters(convolve_view<T> c, T *to)
{
    const int64_t all = c.count_rows * c.m;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t u = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; u < all;
         u += step) {
        const int64_t row = quotient(u, c.m);
        to[u] = find_row(c, row).v[(u - row * c.m) * c.v_step];
    }
}

/*
 * v1  Filter in constant memory, signal in shared memory.
 * Was:   v0 loads two values for each product.
 * Now:   the taps are a parameter of the kernel: parameters live in constant memory, so a
 *        tap is an operand of the multiplication itself.  A filter of more than 2 KB goes
 *        in pieces, a launch each, that carry the sums on in global memory.  A block
 *        keeps the signal under its 128 sums and 256 terms in shared memory.
 * Cost:  one shared load per product; the host reads the filter, so the call waits for
 *        its stream and cannot be captured into a graph.
 * Left:  a shared load feeds one multiplication: the load unit is busy four times as long
 *        as the multipliers -> v2.
 */
template <typename T>
__global__ void
__launch_bounds__(BLOCK, 4)
    convolve_v1_constant_filter(convolve_view<T> c,
                                const __grid_constant__ filter_piece<T> piece,
                                piece_work w, carried<T> carry)
{
    using V = value_type<T>;
    GPO_SHARED(V, signal, [STAGE + BLOCK]);
    const int tid = threadIdx.x;
    const int64_t tiles = (c.count + BLOCK - 1) / BLOCK;
    for (int64_t u = blockIdx.x; u < tiles * w.rows; u += gridDim.x) {
        const int64_t own = quotient(u, tiles); /* row of the launch */
        const int64_t begin = (u - own * tiles) * BLOCK, i = begin + tid;
        const int64_t full = c.first + begin; /* of the n + m - 1 sums */
        const row_operands<T> row = find_row(c, w.row + own);
        const int taps_at = static_cast<int>(own) * w.per_row;

        /* Terms of the piece that any sum of the tile has. */
        int64_t low = full - c.n + 1, high = full + BLOCK;
        low = low > w.tap ? low : w.tap;
        high = high < w.tap + w.taps ? high : w.tap + w.taps;
        total<V> all;
        for (int64_t k = low; k < high; k += STAGE) {
            const int terms = static_cast<int>(high - k < STAGE ? high - k : STAGE);
            const int64_t from = full - k - (terms - 1);
            __syncthreads();
            for (int x = tid; x < terms - 1 + BLOCK; x += BLOCK) {
                V value = {};
                if (from + x >= 0 && from + x < c.n) {
                    value = read_value(row.a[(from + x) * c.a_step]);
                }
                signal[x] = value;
            }
            __syncthreads();
            const int first = taps_at + static_cast<int>(k - w.tap);
            V sum = {};
#pragma unroll 8
            for (int j = 0; j < terms; j++) {
                add_product(sum, signal[tid + terms - 1 - j],
                            read_value(piece.tap[first + j]));
            }
            all.add(sum);
        }
        if (i < c.count) {
            V sum = all.value();
            if (carry.sums && !carry.is_first) {
                all.add(carry.sums[own * c.count + i]);
                sum = all.value();
            }
            if (carry.is_last) {
                put(c, row, w.row + own, i, sum);
            }
            else {
                carry.sums[own * c.count + i] = sum;
            }
        }
    }
}

/* Queues the rows of `w` with all their terms; `filters` are w.rows filters, or one. */
template <typename T>
static gpo_status
convolve_v1_rows(gpo_call *call, const convolve_view<T> &c, piece_work w,
                 const T *filters, value_type<T> *sums)
{
    constexpr int TAPS = filter_piece<T>::TAPS;
    gpo_status status = GPO_OK;
    for (w.tap = 0; w.tap < c.m && !status; w.tap += TAPS) {
        filter_piece<T> piece = {};
        const int64_t left = c.m - w.tap;
        w.taps = static_cast<int>(left < TAPS ? left : TAPS);
        const int64_t taps = w.per_row ? w.rows * w.per_row : w.taps;
        status = gpo_fetch(call, &piece, filters + w.tap, taps * sizeof(T));
        if (!status) {
            const carried<T> carry = {sums, w.tap == 0, w.tap + w.taps == c.m};
            status =
                GPO_LAUNCH(call, grid_of(ceil_div(c.count, BLOCK) * w.rows), BLOCK, 0,
                           (convolve_v1_constant_filter<T>), c, piece, w, carry);
        }
    }
    return status;
}

template <typename T>
static gpo_status
convolve_v1(gpo_call *call)
{
    using V = value_type<T>;
    constexpr int64_t TAPS = filter_piece<T>::TAPS;
    convolve_plan plan;
    const convolve_view<T> c = view_of<T>(call, &plan);
    const T *filters = c.v;
    /* Rows of a launch: all, as many as have their filters in a piece, or one. */
    const int64_t together = plan.one_filter ? c.count_rows
                             : c.m < TAPS    ? TAPS / c.m
                                             : 1;
    gpo_status status = c.count_rows > 0 ? gpo_may_wait(call) : GPO_OK;
    void *memory = nullptr;
    if (!status && c.count_rows > 0 && !(plan.one_filter && c.v_step == 1)) {
        status = gpo_scratch(call, c.count_rows * c.m * sizeof(T), &memory);
        if (!status) {
            filters = static_cast<T *>(memory);
            status =
                GPO_LAUNCH(call, grid_of(ceil_div(c.count_rows * c.m, BLOCK)), BLOCK, 0,
                           (convolve_v1_pack_filters<T>), c, static_cast<T *>(memory));
        }
    }
    void *sums = nullptr;
    if (!status && c.count_rows > 0 && c.m > TAPS) {
        status = gpo_scratch(call, together * c.count * sizeof(V), &sums);
    }
    for (int64_t r = 0; r < c.count_rows && !status; r += together) {
        const int64_t left = c.count_rows - r;
        const piece_work w = {r, left < together ? left : together, 0, 0,
                              plan.one_filter || c.m > TAPS ? 0
                                                            : static_cast<int>(c.m)};
        const T *own = plan.one_filter ? filters : filters + r * c.m;
        status = convolve_v1_rows(call, c, w, own, static_cast<V *>(sums));
    }
    return status;
}

/* ---- v2: sums in registers, the signal slides past them ---- */

constexpr int THREADS = 256;
constexpr int BLOCKS = 2;        /* per processor */
constexpr int FEWEST_LANES = 8;  /* the threads whose 16-byte loads meet the banks */
constexpr int LEAST_TERMS = 128; /* that are worth a part of their own */
constexpr int STAGE_BYTES =
    30720; /* the most of all shapes below, checked in shape_of */

/* The sums of a thread, and elements of a row of shared memory: 64 bytes. */
template <typename V>
constexpr int SUMS = 64 / sizeof(V);

/* A row and 16 bytes: eight lanes that read 16 bytes of eight rows meet all banks once. */
template <typename V>
constexpr int PITCH = 80 / sizeof(V);

/*
 * How a problem is cut up.  A unit is `lanes` threads that compute lanes * SUMS sums of a
 * row, all their terms or a part of them; a block has THREADS / lanes units.  Only where
 * a unit is a whole block is there more than one tile per row.
 */
struct window_shape {
    int lanes, log2_lanes;
    int depth; /* rows of terms in shared memory at a time; even */
    int64_t tiles, parts, part_terms, units, items;
};

/* Sixteen sums of a thread, say, go on by as many terms: 256 products, 8 loads. */
template <typename V>
__device__ __forceinline__ void
slide(V (&sum)[SUMS<V>], const V (&now)[SUMS<V>], const V (&before)[SUMS<V>],
      const V *taps)
{
    constexpr int N = SUMS<V>, SIZE = pack<V>::SIZE;
#pragma unroll
    for (int q = 0; q < N / SIZE; q++) {
        const pack<V> t = *reinterpret_cast<const pack<V> *>(taps + q * SIZE);
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            const int k = q * SIZE + u;
#pragma unroll
            for (int j = 0; j < N; j++) {
                add_product(sum[j],
                            j >= k ? now[j >= k ? j - k : 0]
                                   : before[j >= k ? 0 : N + j - k],
                            t.v[u]);
            }
        }
    }
}

template <typename V>
__device__ __forceinline__ void
load_row(V (&to)[SUMS<V>], const V *from)
{
    constexpr int SIZE = pack<V>::SIZE;
#pragma unroll
    for (int q = 0; q < SUMS<V> / SIZE; q++) {
        const pack<V> p = *reinterpret_cast<const pack<V> *>(from + q * SIZE);
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            to[q * SIZE + u] = p.v[u];
        }
    }
}

template <typename V>
__device__ __forceinline__ int
place_of(int x)
{
    return x / SUMS<V> * PITCH<V> + x % SUMS<V>;
}

template <typename T>
__device__ __forceinline__ void
store_values(value_type<T> *to, const pack<T> &loaded)
{
    using V = value_type<T>;
    constexpr int WORDS = pack<V>::SIZE;
#pragma unroll
    for (int q = 0; q < pack<T>::SIZE / WORDS; q++) {
        pack<V> p;
#pragma unroll
        for (int u = 0; u < WORDS; u++) {
            p.v[u] = read_value(loaded.v[q * WORDS + u]);
        }
        *reinterpret_cast<pack<V> *>(to + q * WORDS) = p;
    }
}

/*
 * Elements [from, from + length) of a row of the signal into rows of shared memory, zeros
 * beyond its ends; by `lanes` threads, in packs of 16 bytes where they lie so.
 */
template <typename T>
__device__ __forceinline__ void
fill_signal(const convolve_view<T> &c, const T *a, int64_t from, int length, int lane,
            int lanes, value_type<T> *signal)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<T>::SIZE, WORDS = pack<V>::SIZE;
    const T *source = a + from * c.a_step;
    if (c.a_step == 1 && from >= 0 && from + length <= c.n && length % SIZE == 0 &&
        reinterpret_cast<uintptr_t>(source) % 16 == 0) {
        /* All of a thread's packs of a stage fly at once. */
        constexpr int PACKS = (5 * WORDS + SIZE - 1) / SIZE;
        for (int first = lane; first * SIZE < length; first += PACKS * lanes) {
            pack<T> loaded[PACKS];
#pragma unroll
            for (int f = 0; f < PACKS; f++) {
                const int x = (first + f * lanes) * SIZE;
                loaded[f] = {};
                if (x < length) {
                    loaded[f] = load_pack(source + x);
                }
            }
#pragma unroll
            for (int f = 0; f < PACKS; f++) {
                const int x = (first + f * lanes) * SIZE;
                if (x < length) {
                    store_values<T>(signal + place_of<V>(x), loaded[f]);
                }
            }
        }
        return;
    }
    const int64_t left = c.n - from; /* elements from `from` to the end of the row */
    const int begin = from >= 0 ? 0 : from > -length ? static_cast<int>(-from) : length;
    const int end = left > length  ? length
                    : left > begin ? static_cast<int>(left)
                                   : begin;
    const T *p = source + lane * c.a_step;
#pragma unroll 4
    for (int x = lane; x < length; x += lanes) {
        V value = {};
        if (x >= begin && x < end) {
            value = read_value(*p);
        }
        signal[place_of<V>(x)] = value;
        p += lanes * c.a_step;
    }
}

/*
 * v2  Register window.
 * Was:   v1 takes a shared load for each product.
 * Now:   a thread has 64 bytes of neighbouring sums (16 of float) in registers and as
 *        many elements of the signal twice; 16 terms are 256 products for 4 loads of 16
 *        bytes of the signal and 4 of the filter, the same for all lanes.  Rows of 64
 *        bytes lie 80 apart, so that the loads of a warp meet no bank twice.  Where a row
 *        has few sums a block takes several rows, and where there are few blocks the
 *        terms are split, and a second kernel adds the parts in order.
 * Cost:  8 shared loads per 256 products; reads the signal once for each 512 terms.
 * Left:  every product is a multiplication of its own: from a few hundred terms on a
 *        Fourier transform needs fewer -> v3.
 */
template <typename T>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    convolve_v2_register_window(convolve_view<T> c, window_shape w,
                                value_type<T> *parts)
{
    using V = value_type<T>;
    constexpr int N = SUMS<V>;
    GPO_SHARED(uint4, stage, [STAGE_BYTES / 16]);
    const int lane = threadIdx.x & (w.lanes - 1), group = threadIdx.x >> w.log2_lanes;
    const int groups = THREADS >> w.log2_lanes, tile_sums = w.lanes * N;
    V *const signal =
        reinterpret_cast<V *>(stage) + group * (w.depth + w.lanes) * PITCH<V>;
    V *const filter = reinterpret_cast<V *>(stage) +
                      groups * (w.depth + w.lanes) * PITCH<V> + group * w.depth * N;
    for (int64_t item = blockIdx.x; item < w.items; item += gridDim.x) {
        /* The tiles in the middle of a row have most terms; they begin first. */
        const int64_t unit = item * groups + group;
        const int64_t ranked = quotient(unit, w.parts);
        const int64_t part = unit - ranked * w.parts;
        const int64_t rank = quotient(ranked, c.count_rows);
        const int64_t row_index = ranked - rank * c.count_rows;
        const int64_t tile = w.tiles / 2 + (rank % 2 ? -((rank + 1) / 2) : rank / 2);
        const bool is_unit = unit < w.units;
        const row_operands<T> row = find_row(c, is_unit ? row_index : 0);
        const int64_t begin = is_unit ? tile * tile_sums : 0;
        const int sums =
            static_cast<int>(c.count - begin < tile_sums ? c.count - begin : tile_sums);
        const int width = is_unit ? (sums + N - 1) / N * N : 0;
        const bool is_active = lane * N < width;

        /* Terms that any sum of the tile has; the part of them that is the unit's. */
        const int64_t full = c.first + begin;
        int64_t low = full - c.n + 1, high = full + tile_sums;
        low = low > 0 ? low : 0;
        high = high < c.m ? high : c.m;
        const int64_t span = high - low < w.part_terms ? high - low : w.part_terms;
        low += part * w.part_terms;
        high = high - low < w.part_terms ? high : low + w.part_terms;

        V sum[N] = {};
        total<V> all[N];
        int since = 0;
        bool is_first = true; /* of the unit's chunks: nothing to add up yet */
#pragma unroll 1
        for (int64_t s = 0; s < span; s += w.depth * N) {
            const int64_t k = low + s;
            int terms = w.depth * N; /* of the stage: whole pairs of rows */
            if (span - s < terms) {
                terms = (static_cast<int>(span - s) + 2 * N - 1) / (2 * N) * (2 * N);
            }
            const int64_t taps_left = high - k; /* 0 or less beyond the last term */
            for (int x = lane; x < terms; x += w.lanes) {
                V value = {};
                if (is_unit && x < taps_left) {
                    value = read_value(row.v[(k + x) * c.v_step]);
                }
                filter[x] = value;
            }
            fill_signal<T>(c, row.a, full - k - terms, terms + width, lane, w.lanes,
                           signal);
            __syncthreads();
            if (is_active) {
                V now[N], before[N];
                const V *at = signal + (terms / N + lane) * PITCH<V>, *taps = filter;
                load_row(now, at);
#pragma unroll 1
                for (int b = 0; b < terms / N; b += 2) {
                    load_row(before, at - PITCH<V>);
                    slide(sum, now, before, taps);
                    load_row(now, at - 2 * PITCH<V>);
                    slide(sum, before, now, taps + N);
                    at -= 2 * PITCH<V>;
                    taps += 2 * N;
                }
            }
            since += terms;
            if (since >= CONVOLVE_CHUNK || s + terms >= span) {
                since = 0;
#pragma unroll
                for (int j = 0; j < N; j++) {
                    if (is_first) {
                        all[j].start(sum[j]);
                    }
                    else {
                        all[j].add(sum[j]);
                    }
                    sum[j] = {};
                }
                is_first = false;
            }
            __syncthreads();
        }

        /* Through shared memory, so that neighbours write neighbours. */
        if (is_active) {
            constexpr int SIZE = pack<V>::SIZE;
#pragma unroll
            for (int q = 0; q < N / SIZE; q++) {
                pack<V> p;
#pragma unroll
                for (int u = 0; u < SIZE; u++) {
                    p.v[u] = all[q * SIZE + u].value();
                }
                *reinterpret_cast<pack<V> *>(signal + lane * PITCH<V> + q * SIZE) = p;
            }
        }
        __syncthreads();
        for (int x = lane; x < (is_unit ? sums : 0); x += w.lanes) {
            const V value = signal[place_of<V>(x)];
            if (parts) {
                parts[(part * c.count_rows + row_index) * c.count + begin + x] = value;
            }
            else {
                put(c, row, row_index, begin + x, value);
            }
        }
        __syncthreads();
    }
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    convolve_v2_add_parts(convolve_view<T> c, int64_t parts, const value_type<T> *from)
{
    const int64_t all = c.count_rows * c.count;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t u = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; u < all;
         u += step) {
        total<value_type<T>> sum;
#pragma unroll 4
        for (int64_t p = 0; p < parts; p++) {
            sum.add(from[p * all + u]);
        }
        const int64_t row = quotient(u, c.count);
        put(c, find_row(c, row), row, u - row * c.count, sum.value());
    }
}

template <typename V>
static window_shape
shape_of(const gpo_call *call, const convolve_plan &p)
{
    constexpr int N = SUMS<V>;
    window_shape w = {};
    w.lanes = FEWEST_LANES;
    w.log2_lanes = 3;
    while (w.lanes < THREADS && w.lanes * N < p.count) {
        w.lanes *= 2;
        w.log2_lanes++;
    }
    w.depth = w.lanes / 8 > 2 ? w.lanes / 8 : 2;
    static_assert(THREADS / FEWEST_LANES * ((2 + FEWEST_LANES) * 80 + 2 * 64) <=
                      STAGE_BYTES,
                  "the rows of the smallest units fit");
    static_assert((THREADS / 8 + THREADS) * 80 + THREADS / 8 * 64 <= STAGE_BYTES,
                  "the rows of the largest unit fit");
    w.tiles = ceil_div(p.count, w.lanes * N);
    const int64_t groups = THREADS / w.lanes, whole = w.tiles * p.count_rows;
    const int64_t wanted = static_cast<int64_t>(gpo_processors(call)) * BLOCKS * groups;
    const int64_t most = p.m / LEAST_TERMS;
    int64_t parts = whole > 0 ? wanted / whole : 1;
    parts = parts < most ? parts : most;
    parts = parts > 1 ? parts : 1;
    w.part_terms = ceil_div(ceil_div(p.m, parts), 2 * N) * (2 * N);
    w.parts = ceil_div(p.m, w.part_terms);
    w.units = whole * w.parts;
    w.items = ceil_div(w.units, groups);
    return w;
}

template <typename T>
static gpo_status
convolve_v2(gpo_call *call)
{
    using V = value_type<T>;
    convolve_plan plan;
    const convolve_view<T> c = view_of<T>(call, &plan);
    const window_shape w = shape_of<V>(call, plan);
    void *parts = nullptr;
    gpo_status status = GPO_OK;
    if (w.parts > 1 && w.units > 0) {
        status =
            gpo_scratch(call, w.parts * c.count_rows * c.count * sizeof(V), &parts);
    }
    if (!status) {
        status =
            GPO_LAUNCH(call, grid_of(w.items), THREADS, 0,
                       (convolve_v2_register_window<T>), c, w, static_cast<V *>(parts));
    }
    if (!status && parts) {
        status = GPO_LAUNCH(call, grid_of(ceil_div(c.count_rows * c.count, BLOCK)),
                            BLOCK, 0, (convolve_v2_add_parts<T>), c, w.parts,
                            static_cast<const V *>(parts));
    }
    return status;
}

/*
 * v3  Products of spectra.
 * Was:   v2 makes every product of the formula, one by one.
 * Now:   a row goes in blocks of N = 512 to 8192 values through registers and shared
 *        memory to spectra of N numbers.  A block minus i times the one before it, times
 *        the filter's spectrum, comes back with N results in its real part: every block
 *        is by itself, and nothing is filled up with zeros.  Filters of up to 4096 taps
 *        stay in registers as a spectrum while a block of threads walks along the row;
 *        longer ones are blocks, too, and v2's window adds up products of blocks,
 *        frequency by frequency.
 * Cost:  one transform forth and one back per N results; beyond 4096 taps 4 nm / N fused
 *        operations as well, and the spectra go through memory.  A transform rounds by the
 *        norm of all its inputs: blocks in which that is much more than a sum has of its
 *        own are made once more (windows.cuh), by 512 to 1023 products a sum.  Filters of
 *        fewer than 192 taps and of more than 2^28 are v2's.
 * Left:  products of blocks grow with nm: a second transform, over the blocks.
 */
#include "spectra.cuh"

template <typename T>
static gpo_status
convolve_v3(gpo_call *call)
{
    convolve_plan plan;
    const convolve_view<T> c = view_of<T>(call, &plan);
    if (!has_spectra(plan.m)) {
        return convolve_v2<T>(call);
    }
    return convolve_spectra(
        call, plan, {view_as<convolve_view<float>>(c), SPECTRUM_DTYPE<T>, 0.0f});
}

/* ---- table and choice ---- */

/* Whole numbers of both signs wrap around alike. */
#define EVERY_DTYPE(f)                                                        \
    {                                                                         \
        f<b8>, f<uint8_t>, f<uint8_t>, f<uint16_t>, f<uint16_t>, f<uint32_t>, \
            f<uint32_t>, f<uint64_t>, f<uint64_t>, f<f16>, f<bf16>, f<float>, \
            f<double>, f<c64>, f<c128>                                        \
    }

/* Computed in float32: integers stay exact, and float64 has no such transform here. */
#define REAL_FLOATS(f)                                                          \
    {                                                                           \
        nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, \
            nullptr, f<f16>, f<bf16>, f<float>, nullptr, nullptr, nullptr       \
    }

static const gpo_variant variants[] = {
    {"v0", "direct: a thread per sum", "", "run-to-run", EVERY_DTYPE(convolve_v0)},
    {"v1", "filter in constant memory, signal in shared memory", "", "run-to-run",
     EVERY_DTYPE(convolve_v1)},
    {"v2", "64 bytes of sums per thread, the signal slides past in registers", "",
     "run-to-run", EVERY_DTYPE(convolve_v2)},
    {"v3", "products of spectra, blocks of a row side by side", "", "run-to-run",
     REAL_FLOATS(convolve_v3)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* Whether spectra are faster than v2, which makes 24 T/s on an H200. */
static bool
wants_spectra(const gpo_call *call, const convolve_plan &p)
{
    /* Microseconds before the first product; products of a processor in one. */
    constexpr double BEGIN = 3.0, PRODUCTS = 0.18e6;
    if (!variants[3].run[call->out[0].dtype] || !has_spectra(p.m)) {
        return false;
    }
    const double taps = static_cast<double>(p.m);
    const int64_t sums = p.count < p.n ? p.count : p.n; /* that have all terms */
    const double products =
        taps * static_cast<double>(sums) * static_cast<double>(p.count_rows);
    const double rate = PRODUCTS * gpo_processors(call);
    return plan_spectra(call, p).microseconds < BEGIN + products / rate;
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    convolve_plan p;
    convolve_make_plan(call, &p);
    if (wants_spectra(call, p)) {
        snprintf(why, GPO_MESSAGE,
                 "v3 multiplies spectra: N log N for %lld results of %lld taps",
                 static_cast<long long>(p.count), static_cast<long long>(p.m));
        return &variants[3];
    }
    snprintf(why, GPO_MESSAGE, "the rung with the fewest loads per product");
    return &variants[2];
}

extern "C" const gpo_table convolve_cuda = {variants, choose};
