/*
 * v2  Peeled misalignment, packs in flight, rows.
 * Was:   v1 uses no packs at all if one operand is misaligned or strided.
 * Now:   the result is peeled to a boundary of its packs; a misaligned operand is read
 *        by aligned loads and shifted into place.  A thread has several packs of each
 *        operand in flight before it computes the first.  Operands whose last axis is
 *        contiguous or repeated are walked row by row, with as many threads per block as
 *        a row needs; the start of a row is computed with multiplications instead of
 *        divisions.
 * Cost:  reads each byte once from memory, misaligned ones twice from the cache; 8 KiB
 *        to 24 KiB in flight per block of 256 threads.
 * Left:  rows below 1 KiB and strides on the last axis go to v0's kernel (`auto` has
 *        any_strides for many of them); nothing overlaps the launch itself.
 */
#include "../rows.cuh"
#include "../streams.cuh"

template <typename F>
__global__ void
__launch_bounds__(BLOCK)
    elementwise_v2_peeled(F f, typename F::R *out, const typename F::In0 *a,
                          const typename F::In1 *b, const typename F::In2 *c,
                          numbers<F> given, elementwise_rows rows)
{
    using R = typename F::R;
    constexpr int SIZE = pack_size<F>(), ITEMS = packs_in_flight<F>();
    const unsigned lanes = blockDim.x; /* threads of a row */
    const int64_t n = rows.cols;
    const int64_t row = rows.tall ? blockIdx.x : blockIdx.y;
    const int64_t tile = rows.tall ? blockIdx.y : blockIdx.x;
    const bool hold0 = rows.held & 1u, hold1 = rows.held & 2u, hold2 = rows.held & 4u;
    out += row * n;
    int64_t at[F::N] = {};
    row_offsets(rows, row, at);
    a += at[0];
    b += F::N > 1 ? at[F::N > 1] : 0;
    c += F::N > 2 ? at[F::N - 1] : 0;

    /* Elements before the first whole pack of the result, and its packs. */
    const uintptr_t past =
        reinterpret_cast<uintptr_t>(out) % (SIZE * sizeof(R)) / sizeof(R);
    int64_t head = past ? SIZE - static_cast<int64_t>(past) : 0;
    head = head < n ? head : n;
    int64_t packs = (n - head) / SIZE;
    stream<typename F::In0, SIZE> x;
    stream<typename F::In1, SIZE> y;
    stream<typename F::In2, SIZE> z;
    x.start(a, head, hold0, given.a);
    bool is_shifted = x.mode == SHIFTED;
    if constexpr (F::N > 1) {
        y.start(b, head, hold1, given.b);
        is_shifted = is_shifted || y.mode == SHIFTED;
    }
    if constexpr (F::N > 2) {
        z.start(c, head, hold2, given.c);
        is_shifted = is_shifted || z.mode == SHIFTED;
    }
    /* The words around a shifted row's first and last pack may cross its ends. */
    const int64_t skip = is_shifted ? 1 : 0;
    const int64_t whole = packs > 2 * skip ? packs - 2 * skip : 0;

    const int64_t base = tile * (lanes * ITEMS) + threadIdx.x;
    loaded<typename F::In0, SIZE> in0[ITEMS];
    loaded<typename F::In1, SIZE> in1[ITEMS];
    loaded<typename F::In2, SIZE> in2[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int64_t i = base + j * lanes;
        if (i < whole) {
            x.load(in0[j], i + skip);
            if constexpr (F::N > 1) {
                y.load(in1[j], i + skip);
            }
            if constexpr (F::N > 2) {
                z.load(in2[j], i + skip);
            }
        }
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int64_t i = base + j * lanes;
        if (i < whole) {
            const elements<typename F::In0, SIZE> p = x.pack(in0[j]);
            elements<typename F::In1, SIZE> q = {};
            elements<typename F::In2, SIZE> r = {};
            if constexpr (F::N > 1) {
                q = y.pack(in1[j]);
            }
            if constexpr (F::N > 2) {
                r = z.pack(in2[j]);
            }
            store_elements<SIZE>(out + head + (i + skip) * SIZE,
                                 apply_pack<SIZE>(f, p, q, r));
        }
    }

    /*
     * The elements before and after the packs, one per thread of the last block: where
     * a row is all, it has no packs, and these loads wait for no others.
     */
    head += whole > 0 ? skip * SIZE : n - head;
    const int64_t tail = n - head - whole * SIZE;
    if (tile == rows.tiles - 1) {
        for (int64_t k = threadIdx.x; k < head + tail; k += lanes) {
            const int64_t i = k < head ? k : n - tail + (k - head);
            const typename F::In0 v = x.element(a, i);
            if constexpr (F::N == 1) {
                out[i] = f(v, v, v);
            }
            else if constexpr (F::N == 2) {
                out[i] = f(v, y.element(b, i), v);
            }
            else {
                out[i] = f(v, y.element(b, i), z.element(c, i));
            }
        }
    }
}

/* Threads of a block, for rows of which each takes `items` elements: few are idle. */
static int64_t
lanes_of(int64_t cols, int64_t items)
{
    const int64_t tiles = ceil_div(cols, BLOCK * items);
    return ceil_div(ceil_div(cols, tiles * items), WARP) * WARP;
}

/*
 * Calls launch(call, grid, lanes, rows) for rows of which a thread takes `items`
 * elements; a single row has one block more for its ends beside packs of `size`.  Or v0.
 */
static gpo_status
in_rows(gpo_call *call, int64_t items, int64_t size,
        gpo_status (*launch)(gpo_call *, dim3 grid, int lanes,
                             const elementwise_rows &))
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    if (!elementwise_has_rows(plan)) {
        return elementwise_v0(call);
    }
    const int last = plan.ndim - 1;
    elementwise_rows rows = {};
    rows.cols = last >= 0 ? plan.shape[last] : 1;
    rows.ndim = last > 0 ? last : 0;
    for (int d = 0; d < rows.ndim; d++) {
        rows.length[d] = divider_of(plan.shape[d]);
    }
    for (int k = 0; k < plan.inputs; k++) {
        rows.held |= last < 0 || plan.strides[k][last] == 0 ? 1u << k : 0u;
        for (int d = 0; d < rows.ndim; d++) {
            rows.strides[k][d] = plan.strides[k][d];
        }
    }
    const int64_t height = plan.size / rows.cols;
    const int64_t lanes = lanes_of(rows.cols, items);
    const bool apart = height == 1 && has_ends(call, rows.cols, size);
    rows.tiles = ceil_div(rows.cols, lanes * items) + (apart ? 1 : 0);
    rows.tall = height > MAX_GRID_YZ;
    const unsigned across = static_cast<unsigned>(rows.tiles);
    const unsigned down = static_cast<unsigned>(height);
    return launch(call, rows.tall ? dim3(down, across) : dim3(across, down),
                  static_cast<int>(lanes), rows);
}

struct elementwise_v2_launcher {
    template <typename F>
    static gpo_status launch(gpo_call *call, dim3 grid, int lanes,
                             const elementwise_rows &rows)
    {
        return GPO_LAUNCH(call, grid, lanes, 0, (elementwise_v2_peeled<F>),
                          F::make(call), result<typename F::R>(call),
                          operand<typename F::In0>(call, 0),
                          operand<typename F::In1>(call, 1),
                          operand<typename F::In2>(call, 2), numbers_of<F>(call), rows);
    }

    template <typename F>
    static gpo_status run(gpo_call *call)
    {
        constexpr int64_t ITEMS = packs_in_flight<F>() * pack_size<F>();
        return in_rows(call, ITEMS, pack_size<F>(), launch<F>);
    }
};

gpo_status
elementwise_v2(gpo_call *call)
{
    using Rung = elementwise_v2_launcher;
    static const gpo_runs clips = ROW(real_types, bounded<T>);
    const elementwise_plan &plan = *elementwise_plan_of(call);
    const bool is_bounded = plan.functor == ELEMENTWISE_clip && plan.size > 0 &&
                            call->in[1].on_host && call->in[2].on_host;
    return is_bounded ? clips.of[plan.type](call) : run_kernel<Rung>(call);
}
