/*
 * cuda.cu  The ladder of elementwise on CUDA, then the table and the choice.
 * Each rung is a comment, a kernel and a launcher.
 * Not here: functors, packs and the tables of kernels (kernels.cuh), what the functors
 * compute (arithmetic.cuh), the contract (op.c).
 */
#include "../../device/divide.cuh"
#include "streams.cuh"

#include <stdio.h>

constexpr int BLOCK = 256;

static int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

template <typename T>
static const T *
operand(const elementwise_plan &plan, int k)
{
    return static_cast<const T *>(plan.data[k < plan.inputs ? k : 0]);
}

/*
 * v0  One element per thread.
 * Now:   thread i computes element i of the result; each operand's address comes from the
 *        axes, so any strides and any broadcasting will do.
 * Cost:  a load of one element per operand, a division and a remainder per axis but the
 *        outermost (in 32 bits below 2^32 elements); 2 bytes per load in float16.
 * Left:  too few bytes in flight, and addresses cost more than the arithmetic -> v1.
 */
enum { FEW_AXES = 8 };

struct elementwise_axes {
    int ndim;
    int64_t shape[FEW_AXES];
    int64_t strides[ELEMENTWISE_INPUTS][FEW_AXES];
};

template <typename F, typename Index>
__device__ __forceinline__ typename F::R
element(const F &f, const typename F::In0 *a, const typename F::In1 *b,
        const typename F::In2 *c, const elementwise_axes &axes, Index i)
{
    int64_t at0 = 0, at1 = 0, at2 = 0;
#pragma unroll 1
    for (int d = axes.ndim - 1; d >= 0; d--) {
        Index k = i;
        if (d > 0) {
            const Index length = static_cast<Index>(axes.shape[d]);
            i = k / length;
            k -= i * length;
        }
        at0 += static_cast<int64_t>(k) * axes.strides[0][d];
        at1 += F::N > 1 ? static_cast<int64_t>(k) * axes.strides[1][d] : 0;
        at2 += F::N > 2 ? static_cast<int64_t>(k) * axes.strides[2][d] : 0;
    }
    const typename F::In0 x = a[at0];
    if constexpr (F::N == 1) {
        return f(x, x, x);
    }
    else if constexpr (F::N == 2) {
        return f(x, b[at1], x);
    }
    else {
        return f(x, b[at1], c[at2]);
    }
}

template <typename F>
__global__ void
__launch_bounds__(BLOCK)
    elementwise_v0_one_each(F f, typename F::R *out, const typename F::In0 *a,
                            const typename F::In1 *b, const typename F::In2 *c,
                            elementwise_axes axes, int64_t n)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i < n) {
        out[i] = n <= UINT32_MAX ? element(f, a, b, c, axes, static_cast<uint32_t>(i))
                                 : element(f, a, b, c, axes, static_cast<uint64_t>(i));
    }
}

struct rung_v0 {
    template <typename F>
    static gpo_status run(gpo_call *call, const elementwise_plan &plan)
    {
        const int outer = plan.ndim > FEW_AXES ? plan.ndim - FEW_AXES : 0;
        elementwise_axes axes = {plan.ndim - outer, {}, {}};
        int64_t inside = 1, launches = 1;
        for (int d = 0; d < axes.ndim; d++) {
            axes.shape[d] = plan.shape[outer + d];
            inside *= axes.shape[d];
            for (int k = 0; k < plan.inputs; k++) {
                axes.strides[k][d] = plan.strides[k][outer + d];
            }
        }
        for (int d = 0; d < outer; d++) {
            launches *= plan.shape[d];
        }
        gpo_status status = GPO_OK;
        for (int64_t i = 0; i < launches && !status; i++) { /* more than 8 axes */
            int64_t at[ELEMENTWISE_INPUTS] = {0, 0, 0}, rest = i;
            for (int d = outer - 1; d >= 0; d--) {
                for (int k = 0; k < plan.inputs; k++) {
                    at[k] += rest % plan.shape[d] * plan.strides[k][d];
                }
                rest /= plan.shape[d];
            }
            status =
                GPO_LAUNCH(call, dim3(static_cast<unsigned>(ceil_div(inside, BLOCK))),
                           BLOCK, 0, (elementwise_v0_one_each<F>), F::make(plan),
                           static_cast<typename F::R *>(plan.out) + i * inside,
                           operand<typename F::In0>(plan, 0) + at[0],
                           operand<typename F::In1>(plan, 1) + at[1],
                           operand<typename F::In2>(plan, 2) + at[2], axes, inside);
        }
        return status;
    }
};

/*
 * v1  Packs.
 * Was:   v0 loads one element at a time and works its address out.
 * Now:   a thread loads up to 16 bytes of each operand at once and computes two 16-bit
 *        floats per instruction where the hardware can; the pack size is the smallest
 *        over the types of result and operands.  A scalar operand stays in registers.  A
 *        fixed grid strides through the packs; the tail is one element per thread.
 * Cost:  one load, one store of 16 bytes per pack; 32 waves of blocks.
 * Left:  one operand that is not aligned to its pack, or strided, sends the whole call to
 *        v0's kernel -> v2.
 */
template <typename F>
__global__ void
__launch_bounds__(BLOCK)
    elementwise_v1_packs(F f, typename F::R *out, const typename F::In0 *a,
                         const typename F::In1 *b, const typename F::In2 *c,
                         unsigned scalars, int64_t n)
{
    constexpr int SIZE = pack_size<F>();
    const int64_t tid = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    const int64_t packs = n / SIZE;
    const bool hold0 = scalars & 1u, hold1 = scalars & 2u, hold2 = scalars & 4u;

    elements<typename F::In0, SIZE> x = {};
    elements<typename F::In1, SIZE> y = {};
    elements<typename F::In2, SIZE> z = {};
    if (hold0) {
        x = repeated<SIZE>(a[0]);
    }
    if (F::N > 1 && hold1) {
        y = repeated<SIZE>(b[0]);
    }
    if (F::N > 2 && hold2) {
        z = repeated<SIZE>(c[0]);
    }
    for (int64_t i = tid; i < packs; i += step) {
        if (!hold0) {
            x = load_elements<SIZE>(a + i * SIZE);
        }
        if (F::N > 1 && !hold1) {
            y = load_elements<SIZE>(b + i * SIZE);
        }
        if (F::N > 2 && !hold2) {
            z = load_elements<SIZE>(c + i * SIZE);
        }
        store_elements<SIZE>(out + i * SIZE, apply_pack<SIZE>(f, x, y, z));
    }
    const int64_t i = packs * SIZE + tid;
    if (i < n) {
        out[i] = f(a[hold0 ? 0 : i], F::N > 1 ? b[hold1 ? 0 : i] : y.v[0],
                   F::N > 2 ? c[hold2 ? 0 : i] : z.v[0]);
    }
}

enum { WAVES = 32, BLOCKS_PER_PROCESSOR = 8 };

/* Bit k: operand k is one element for the whole result. */
static unsigned
scalars_of(const elementwise_plan &plan)
{
    unsigned scalars = 0;
    for (int k = 0; k < plan.inputs; k++) {
        scalars |= elementwise_is_scalar(&plan, k) ? 1u << k : 0u;
    }
    return scalars;
}

/* Whether the result and every operand but scalars lie on a boundary of their packs. */
template <typename F>
static bool
is_aligned(const elementwise_plan &plan, unsigned scalars)
{
    constexpr int SIZE = pack_size<F>();
    bool aligned =
        reinterpret_cast<uintptr_t>(plan.out) % (SIZE * sizeof(typename F::R)) == 0;
    for (int k = 0; k < plan.inputs; k++) {
        const uintptr_t at = reinterpret_cast<uintptr_t>(plan.data[k]);
        const bool good = at % (static_cast<size_t>(SIZE) * plan.bytes[k]) == 0;
        aligned = aligned && (good || (scalars >> k & 1u));
    }
    return aligned;
}

struct rung_v1 {
    template <typename F>
    static gpo_status run(gpo_call *call, const elementwise_plan &plan)
    {
        const unsigned scalars = scalars_of(plan);
        if (!elementwise_is_flat(&plan) || !is_aligned<F>(plan, scalars)) {
            return rung_v0::run<F>(call, plan);
        }
        const int64_t threads = ceil_div(plan.size, pack_size<F>());
        const int64_t most =
            static_cast<int64_t>(gpo_processors(call)) * BLOCKS_PER_PROCESSOR * WAVES;
        const int64_t blocks = ceil_div(threads, BLOCK);
        const dim3 grid(static_cast<unsigned>(blocks < most ? blocks : most));
        return GPO_LAUNCH(call, grid, BLOCK, 0, (elementwise_v1_packs<F>),
                          F::make(plan), static_cast<typename F::R *>(plan.out),
                          operand<typename F::In0>(plan, 0),
                          operand<typename F::In1>(plan, 1),
                          operand<typename F::In2>(plan, 2), scalars, plan.size);
    }
};

/*
 * v2  Peeled misalignment, packs in flight, rows.
 * Was:   v1 gives up all packs for one operand that is misaligned or strided.
 * Now:   the result is peeled to a boundary of its packs; an operand that lies otherwise
 *        is read by aligned loads and shifted into place.  A thread has several packs of
 *        each operand in flight before it computes the first.  Operands whose last axis
 *        is contiguous or repeated are walked row by row; where a row begins takes
 *        multiplications instead of divisions.
 * Cost:  each byte once from memory, misaligned ones twice from the cache; 8 KiB to
 *        24 KiB in flight per block of 256 threads.
 * Left:  short rows and strides on the last axis go to v0's kernel; nothing overlaps the
 *        launch itself.
 */
template <typename F>
__host__ __device__ constexpr int
packs_in_flight()
{
    return F::N > 1 && pack_size<F>() > 8 ? 1 : 2; /* 16 elements fill the registers */
}

/* Rows of the result, and where each operand's row begins. */
struct elementwise_rows {
    int64_t cols;
    int64_t first; /* row of blockIdx.y == 0 */
    unsigned held; /* bit k: a row of operand k is one element repeated */
    int ndim;      /* axes of the rows */
    divider length[FEW_AXES];
    int64_t strides[ELEMENTWISE_INPUTS][FEW_AXES];
};

/* at[k] = where row `row` of operand k begins, in elements from its first. */
template <int INPUTS>
__device__ __forceinline__ void
row_offsets(const elementwise_rows &rows, int64_t row, int64_t (&at)[INPUTS])
{
#pragma unroll 1
    for (int d = rows.ndim - 1; d >= 0; d--) {
        const int64_t quotient = d > 0 ? rows.length[d].of(row) : 0;
        const int64_t i = row - quotient * rows.length[d].by;
        row = quotient;
#pragma unroll
        for (int k = 0; k < INPUTS; k++) {
            at[k] += i * rows.strides[k][d];
        }
    }
}

template <typename F>
__global__ void
__launch_bounds__(BLOCK)
    elementwise_v2_peeled(F f, typename F::R *out, const typename F::In0 *a,
                          const typename F::In1 *b, const typename F::In2 *c,
                          elementwise_rows rows)
{
    using R = typename F::R;
    constexpr int SIZE = pack_size<F>(), ITEMS = packs_in_flight<F>();
    const int64_t n = rows.cols, row = rows.first + blockIdx.y;
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
    x.start(a, head, hold0);
    bool is_shifted = x.mode == SHIFTED;
    if constexpr (F::N > 1) {
        y.start(b, head, hold1);
        is_shifted = is_shifted || y.mode == SHIFTED;
    }
    if constexpr (F::N > 2) {
        z.start(c, head, hold2);
        is_shifted = is_shifted || z.mode == SHIFTED;
    }
    /* Aligned words around the first and the last pack could leave a shifted row. */
    const int64_t skip = is_shifted ? 1 : 0;
    const int64_t whole = packs > 2 * skip ? packs - 2 * skip : 0;

    const int64_t base =
        static_cast<int64_t>(blockIdx.x) * (BLOCK * ITEMS) + threadIdx.x;
    loaded<typename F::In0, SIZE> in0[ITEMS];
    loaded<typename F::In1, SIZE> in1[ITEMS];
    loaded<typename F::In2, SIZE> in2[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int64_t i = base + j * BLOCK;
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
        const int64_t i = base + j * BLOCK;
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

    /* What is before and after the packs: one element for each thread of block 0. */
    head += whole > 0 ? skip * SIZE : n - head;
    const int64_t tail = n - head - whole * SIZE;
    if (blockIdx.x == 0) {
        for (int64_t k = threadIdx.x; k < head + tail; k += BLOCK) {
            const int64_t i = k < head ? k : n - tail + (k - head);
            const typename F::In0 v = a[hold0 ? 0 : i];
            if constexpr (F::N == 1) {
                out[i] = f(v, v, v);
            }
            else if constexpr (F::N == 2) {
                out[i] = f(v, b[hold1 ? 0 : i], v);
            }
            else {
                out[i] = f(v, b[hold1 ? 0 : i], c[hold2 ? 0 : i]);
            }
        }
    }
}

enum { MAX_GRID_Y = 65535, LONG_ROW_BYTES = 2048 };

/* Whether the axes are rows that v2 walks: the last one contiguous or repeated. */
static bool
has_rows(const elementwise_plan &plan)
{
    const int last = plan.ndim - 1;
    bool good = plan.ndim <= FEW_AXES;
    for (int k = 0; k < plan.inputs && last >= 0; k++) {
        const int64_t stride = plan.strides[k][last];
        good = good && (stride == 1 || stride == 0);
    }
    const int64_t bytes = gpo_dtypes[plan.to].bytes;
    return good && (plan.ndim <= 1 || plan.shape[last] >= LONG_ROW_BYTES / bytes);
}

struct rung_v2 {
    template <typename F>
    static gpo_status run(gpo_call *call, const elementwise_plan &plan)
    {
        constexpr int64_t TILE = BLOCK * packs_in_flight<F>() * pack_size<F>();
        if (!has_rows(plan)) {
            return rung_v0::run<F>(call, plan);
        }
        const int last = plan.ndim - 1;
        elementwise_rows rows = {last >= 0 ? plan.shape[last] : 1, 0, 0, 0, {}, {}};
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
        const unsigned across = static_cast<unsigned>(ceil_div(rows.cols, TILE));
        gpo_status status = GPO_OK;
        for (; rows.first < height && !status; rows.first += MAX_GRID_Y) {
            const int64_t left = height - rows.first;
            const dim3 grid(
                across, static_cast<unsigned>(left < MAX_GRID_Y ? left : MAX_GRID_Y));
            status = GPO_LAUNCH(call, grid, BLOCK, 0, (elementwise_v2_peeled<F>),
                                F::make(plan), static_cast<typename F::R *>(plan.out),
                                operand<typename F::In0>(plan, 0),
                                operand<typename F::In1>(plan, 1),
                                operand<typename F::In2>(plan, 2), rows);
        }
        return status;
    }
};

/* ---- table and choice ---- */

template <typename Rung>
static gpo_status
run_rung(gpo_call *call)
{
    elementwise_plan plan;
    elementwise_make_plan(call, &plan);
    return plan.size == 0 ? GPO_OK : kernel_of<Rung>(plan)(call, plan);
}

#define RUNG(v)                                       \
    template <typename T>                             \
    static gpo_status elementwise_##v(gpo_call *call) \
    {                                                 \
        return run_rung<rung_##v>(call);              \
    }
RUNG(v0)
RUNG(v1)
RUNG(v2)

static const gpo_variant variants[] = {
    {"v0", "one element per thread", "", "run-to-run", GPO_ALL(elementwise_v0)},
    {"v1", "packs of up to 16 bytes, two halves at a time", "", "run-to-run",
     GPO_ALL(elementwise_v1)},
    {"v2", "peeled misalignment, packs in flight, rows", "", "run-to-run",
     GPO_ALL(elementwise_v2)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* By times on an H200, benchmarks/results/h200-elementwise.json. */
static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    elementwise_plan plan;
    elementwise_make_plan(call, &plan);
    if (has_rows(plan)) {
        snprintf(why, GPO_MESSAGE,
                 "v2 reads packs where the last axis is contiguous or repeated");
        return &variants[2];
    }
    snprintf(why, GPO_MESSAGE,
             "an operand has strides on the last axis, or it is short: v0 takes any");
    return &variants[0];
}

extern "C" const gpo_table elementwise_cuda = {variants, choose};
