/*
 * any_strides.cu  Operands of any strides, and rows too short for v2.
 * A thread makes one pack of neighbouring results, in whatever rows they are, and stores
 * it at once.  An operand is read by wide loads where the pack lies in one of its rows,
 * aligned, and the last axis is contiguous or takes every second element; else all
 * elements of the pack are loaded before the first is used.  Offsets are computed for all
 * elements together, by a multiplication per axis and element, in 31 bits: larger calls
 * take several launches.  Where an operand is transposed, the threads of a block have packs
 * below each other, of rows that share its lines.  Elements of 8 bytes and more are left to
 * v0's kernel, as they take longer to move than to find, but for two operands of float64,
 * of which one may be transposed.
 * Cost:  one store of 8 or 16 bytes per thread; reads each sector once from memory.
 */
#include "../any_strides.cuh"
#include "../gathers.cuh"

/*
 * One axis: r / length = (r * magic) >> (32 + shift) for 0 <= r < 2^31 and length > 1
 * (Granlund and Montgomery).  `jump` is what an operand's offset gains beside steps on
 * the last axis for each whole axis passed: the stride of the axis before it, less the
 * axis itself; modulo 2^32, as are the sums.
 */
struct strided_axis {
    unsigned magic, shift;
    unsigned jump[ELEMENTWISE_INPUTS];
};

/* The axes of a call; for each operand the stride of the last one and its ends. */
struct strided_axes {
    int ndim, n;
    unsigned held, dense; /* bit k: operand k is a scalar, lies as the result */
    int step[ELEMENTWISE_INPUTS], low[ELEMENTWISE_INPUTS], high[ELEMENTWISE_INPUTS];
    unsigned rows, across; /* of all tiles; tiles side by side */
    unsigned turn,
        apart; /* rows of a tile, 1: no tiles; from one of them to the next */
    strided_axis axis[FEW_AXES];
};

/* Elements of a thread's pack: 8 of one byte, as more would fill the registers. */
template <typename F>
__host__ __device__ constexpr int
strided_pack()
{
    return pack_size<F>() > 8 ? 8 : pack_size<F>();
}

/*
 * at[k][j] = the offset in operand k of result first + j, or of the last result; returns
 * whether the results are neighbours in one row.
 */
template <int INPUTS, int SIZE>
__device__ __forceinline__ bool
offsets_of(const strided_axes &axes, int first, int (&at)[INPUTS][SIZE])
{
    const int last = axes.ndim - 1;
    unsigned rest[SIZE];
#pragma unroll
    for (int j = 0; j < SIZE; j++) {
        rest[j] = static_cast<unsigned>(min(first + j, axes.n - 1));
#pragma unroll
        for (int k = 0; k < INPUTS; k++) {
            at[k][j] = static_cast<int>(rest[j] * static_cast<unsigned>(axes.step[k]));
        }
    }
    bool in_row = first <= axes.n - SIZE;
#pragma unroll 1
    for (int d = last; d > 0; d--) {
#pragma unroll
        for (int j = 0; j < SIZE; j++) {
            rest[j] = __umulhi(rest[j], axes.axis[d].magic) >> axes.axis[d].shift;
#pragma unroll
            for (int k = 0; k < INPUTS; k++) {
                at[k][j] = static_cast<int>(static_cast<unsigned>(at[k][j]) +
                                            rest[j] * axes.axis[d].jump[k]);
            }
        }
        in_row = in_row && (d < last || rest[0] == rest[SIZE - 1]);
    }
    return in_row;
}

/*
 * The pack of thread i in tiles of `turn` rows, row by row; beyond all packs for some.  A
 * pack is of the row that its first result is in.
 */
template <int SIZE>
__device__ __forceinline__ unsigned
turned_pack(const strided_axes &axes, unsigned i)
{
    const unsigned tile = i / TURNED_PACKS / axes.turn, group = tile / axes.across;
    const unsigned above = group / axes.apart;
    const unsigned below = above * axes.turn + i / TURNED_PACKS % axes.turn;
    const unsigned row = below * axes.apart + group - above * axes.apart;
    if (row >= axes.rows) {
        return UINT32_MAX;
    }
    const unsigned length = static_cast<unsigned>(axes.n) / axes.rows;
    const unsigned begin = (row * length + SIZE - 1) / SIZE;
    const unsigned end = ((row + 1) * length + SIZE - 1) / SIZE;
    const unsigned pack =
        begin + (tile - group * axes.across) * TURNED_PACKS + i % TURNED_PACKS;
    return pack < end ? pack : UINT32_MAX;
}

/* The pack of operand k. */
template <typename T, int INPUTS, int SIZE>
__device__ __forceinline__ void
gather(gathered<T, SIZE> &to, const strided_axes &axes, int k, const T *x,
       number<T> given, const int (&at)[INPUTS][SIZE], bool whole, bool in_row)
{
    if (axes.held >> k & 1u) {
        to.hold(given.or_at(x));
    }
    else {
        to.load(x, at[k], axes.dense >> k & 1u ? whole : in_row, axes.step[k],
                axes.low[k], axes.high[k]);
    }
}

template <typename F>
__global__ void
__launch_bounds__(STRIDED_BLOCK)
    elementwise_any_strides_kernel(F f, typename F::R *out, const typename F::In0 *a,
                                   const typename F::In1 *b, const typename F::In2 *c,
                                   numbers<F> given, strided_axes axes)
{
    constexpr int SIZE = strided_pack<F>();
    unsigned number = blockIdx.x * STRIDED_BLOCK + threadIdx.x;
    if (axes.turn > 1) {
        number = turned_pack<SIZE>(axes, number);
    }
    if (number > static_cast<unsigned>(axes.n - 1) / SIZE) {
        return;
    }
    const int first = static_cast<int>(number * SIZE);
    const bool whole = first <= axes.n - SIZE;
    int at[F::N][SIZE];
    const bool in_row = offsets_of(axes, first, at);

    gathered<typename F::In0, SIZE> x;
    gathered<typename F::In1, SIZE> y;
    gathered<typename F::In2, SIZE> z;
    gather(x, axes, 0, a, given.a, at, whole, in_row);
    if constexpr (F::N > 1) {
        gather(y, axes, 1, b, given.b, at, whole, in_row);
    }
    if constexpr (F::N > 2) {
        gather(z, axes, 2, c, given.c, at, whole, in_row);
    }

    const elements<typename F::In0, SIZE> p = x.pack();
    elements<typename F::In1, SIZE> q = {};
    elements<typename F::In2, SIZE> r = {};
    if constexpr (F::N > 1) {
        q = y.pack();
    }
    if constexpr (F::N > 2) {
        r = z.pack();
    }
    const elements<typename F::R, SIZE> result = apply_pack<SIZE>(f, p, q, r);
    out += first;
    if (whole && reinterpret_cast<uintptr_t>(out) % sizeof result == 0) {
        store_elements<SIZE>(out, result);
        return;
    }
#pragma unroll
    for (int j = 0; j < SIZE; j++) {
        if (first < axes.n - j) {
            out[j] = result.v[j];
        }
    }
}

/* The axes of a launch for `rows` indices of the first one, without tiles. */
static strided_axes
axes_of(const elementwise_plan &plan, int64_t rows)
{
    const int last = plan.ndim - 1;
    strided_axes axes = {};
    axes.ndim = plan.ndim;
    axes.n = static_cast<int>(last < 0 ? 1 : plan.size / plan.shape[0] * rows);
    axes.held = elementwise_scalars(plan);
    axes.rows = static_cast<unsigned>(last < 0 ? 1 : axes.n / plan.shape[last]);
    const elementwise_turn turn = elementwise_turn_of(plan);
    axes.turn = static_cast<unsigned>(turn.rows);
    axes.apart = static_cast<unsigned>(turn.apart);
    for (int d = 1; d <= last; d++) {
        const uint64_t length = static_cast<uint64_t>(plan.shape[d]);
        const int bits = floor_log2(plan.shape[d] - 1); /* length <= 2^(bits + 1) */
        axes.axis[d].magic =
            static_cast<unsigned>((uint64_t{1} << 32 << bits) / length + 1);
        axes.axis[d].shift = static_cast<unsigned>(bits);
    }
    for (int k = 0; k < plan.inputs; k++) {
        const int64_t *const stride = plan.strides[k];
        for (int d = 1; d <= last; d++) {
            axes.axis[d].jump[k] =
                static_cast<unsigned>(stride[d - 1] - plan.shape[d] * stride[d]);
        }
        int64_t low, high;
        elementwise_reach(plan, k, rows, &low, &high);
        axes.step[k] = last < 0 ? 0 : static_cast<int>(stride[last]);
        axes.low[k] = static_cast<int>(low);
        axes.high[k] = static_cast<int>(high);
        axes.dense |= elementwise_lies_as_result(plan, k) ? 1u << k : 0u;
    }
    return axes;
}

/* Launches results from `first` on; at[k] is where operand k begins. */
using launch_rows = gpo_status (*)(gpo_call *, const strided_axes &, int64_t first,
                                   const int64_t *at);

/* Calls launch for as many indices of the first axis at a time as it takes. */
static gpo_status
in_launches(gpo_call *call, launch_rows launch)
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    const int64_t length = plan.ndim > 0 ? plan.shape[0] : 1;
    const int64_t step = elementwise_rows_at_once(plan);
    gpo_status status = GPO_OK;
    for (int64_t begin = 0; begin < length && !status; begin += step) {
        int64_t at[ELEMENTWISE_INPUTS] = {0, 0, 0};
        for (int k = 0; k < plan.inputs && plan.ndim > 0; k++) {
            at[k] = begin * plan.strides[k][0];
        }
        const int64_t left = length - begin;
        status = launch(call, axes_of(plan, left < step ? left : step),
                        begin * (plan.size / length), at);
    }
    return status;
}

struct any_strides_launcher {
    template <typename F>
    static gpo_status launch(gpo_call *call, const strided_axes &all, int64_t first,
                             const int64_t *at)
    {
        constexpr int SIZE = strided_pack<F>();
        strided_axes axes = all;
        int64_t threads = ceil_div(axes.n, SIZE);
        if (axes.turn > 1) { /* tiles as tall as each other */
            const int64_t near =
                axes.rows / axes.apart; /* rows of one tile or another */
            const int64_t groups = ceil_div(near, axes.turn);
            const int64_t packs = ceil_div(axes.n / axes.rows, SIZE);
            axes.turn = static_cast<unsigned>(ceil_div(near, groups));
            axes.across = static_cast<unsigned>(ceil_div(packs, TURNED_PACKS));
            threads = groups * axes.apart * axes.across * axes.turn * TURNED_PACKS;
        }
        return GPO_LAUNCH(
            call, dim3(static_cast<unsigned>(ceil_div(threads, STRIDED_BLOCK))),
            STRIDED_BLOCK, 0, (elementwise_any_strides_kernel<F>), F::make(call),
            result<typename F::R>(call) + first,
            operand<typename F::In0>(call, 0) + at[0],
            operand<typename F::In1>(call, 1) + at[1],
            operand<typename F::In2>(call, 2) + at[2], numbers_of<F>(call), axes);
    }

    template <typename F>
    static gpo_status run(gpo_call *call)
    {
        constexpr bool DOUBLES = F::N == 2 && is_same<typename F::In0, double>::value &&
                                 is_same<typename F::R, double>::value;
        if constexpr (pack_size<F>() >= STRIDED_PACK || DOUBLES) {
            return in_launches(call, launch<F>);
        }
        else {
            return elementwise_v0(call);
        }
    }
};

gpo_status
elementwise_any_strides(gpo_call *call)
{
    return run_kernel<any_strides_launcher>(call);
}
