/*
 * v1  Filter in constant memory, signal in shared memory.
 * Was:   v0 loads two values for each product.
 * Now:   the taps are a kernel parameter: parameters live in constant memory, so a tap
 *        is an operand of the multiply instruction.  A filter of more than 2 KB takes
 *        several launches, one per piece, which pass partial sums on in global memory.
 *        A block stages the signal for 128 sums and 256 terms in shared memory.
 * Cost:  one shared load per product; the host reads the filter, so the call waits for
 *        its stream and cannot be captured into a graph.
 * Left:  each shared load feeds one multiplication: the load unit is busy four times as
 *        long as the multipliers -> v2.
 */
#ifndef GPO_CONVOLVE_V1_CONSTANT_FILTER_CUH
#define GPO_CONVOLVE_V1_CONSTANT_FILTER_CUH

#include "../../../device/grid.cuh"
#include "../products.cuh"
#include "../tuning.cuh"

template <typename T>
struct filter_piece {
    static constexpr int TAPS = PIECE_BYTES / sizeof(T);
    T tap[TAPS];
};

/* What one launch does: `rows` rows, terms [tap, tap + taps) of their sums. */
struct piece_work {
    int64_t row, rows, tap;
    int taps;
    int per_row; /* taps from one row's filter to the next; 0: all rows share one */
};

/* Partial sums of the launch's rows; NULL where one launch has all the terms. */
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
        const int64_t full = c.first + begin; /* index among the n + m - 1 sums */
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

/* Launches all terms of the rows of `w`; `filters` holds w.rows filters, or one. */
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
    const convolve_plan &plan = *convolve_plan_of(call);
    const convolve_view<T> c = view_of<T>(call);
    const T *filters = c.v;
    /* Rows per launch: all, as many as have their filters in one piece, or one. */
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

#endif
