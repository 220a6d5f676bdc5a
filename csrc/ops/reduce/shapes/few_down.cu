/*
 * few_down.cu  Results of a few elements each, in the order of memory: a thread has one,
 * or where there are many as many neighbours as a load of 16 bytes holds, with up to
 * FEW_DOWN loads in flight.  Code is short, as it is on the way of a small call: offsets
 * of elements come as arguments, places of results by multiplications of 32 bits, and no
 * thread waits for another.  Where argmin and argmax have one element each, results are
 * zeros, and nothing is read.
 * Cost:  reads n * sizeof(T) bytes once; twice as many where neighbours are two apart.
 * Order: the view, the fold, the store, the kernel, results apart, copies, zeros, the
 * launch.
 */
#include "../few_down.cuh"
#include "../packs.cuh"

/* Packs of results of one element each that a thread has on their way.  Estimated. */
constexpr int FEW_COPIES = 4;

/* Kept axes as threads take them, where their results are, and the elements of a row. */
template <typename T>
struct few_view {
    const T *x;
    int threads, rows, cols, ndim;
    divider length[MOST_FEW_AXES];  /* in steps of a thread */
    int64_t strides[MOST_FEW_AXES]; /* of such a step */
    int64_t offsets[FEW_DOWN];
    int64_t round; /* from element k to element k + FEW_DOWN */
    bool in_order; /* result i is out[i] */
    bool in_packs; /* so are the neighbours of a thread, in aligned packs */
    int out_ndim;
    divider out_length[MOST_FEW_AXES];
    int64_t places[MOST_FEW_AXES];
};

/* The place of result number `row`, along the axes in the order of memory. */
template <typename T>
__device__ __forceinline__ int64_t
place_of(const few_view<T> &v, int row)
{
    if (v.in_order) {
        return row;
    }
    int64_t place = 0;
#pragma unroll
    for (int d = MOST_FEW_AXES - 1; d > 0; d--) {
        if (d < v.out_ndim) {
            const int above = v.out_length[d].narrow(row);
            place += (row - above * static_cast<int>(v.out_length[d].by)) * v.places[d];
            row = above;
        }
    }
    return place + row * v.places[0];
}

/* The first element of thread `number`. */
template <typename T>
__device__ __forceinline__ const T *
first_of(const few_view<T> &v, int number)
{
    const T *p = v.x;
#pragma unroll
    for (int d = MOST_FEW_AXES - 1; d > 0; d--) {
        if (d < v.ndim) {
            const int above = v.length[d].narrow(number);
            p += (number - above * static_cast<int>(v.length[d].by)) * v.strides[d];
            number = above;
        }
    }
    return p + number * v.strides[0];
}

/* ---- the fold ---- */

/* A load of a thread: an element, or a word with COUNT of them that are STEP apart.
   They stay in words until they are used, as each would take a register. */
template <int COUNT, int STEP, typename T>
using few_word =
    std::conditional_t<COUNT == 1, T,
                       std::conditional_t<COUNT * STEP * sizeof(T) == 8, uint2, uint4>>;

template <int COUNT, int STEP, typename T>
__device__ __forceinline__ void
unpack_beside(const few_word<COUNT, STEP, T> &word, T (&beside)[COUNT])
{
    if constexpr (COUNT == 1) {
        beside[0] = word;
    }
    else {
        T all[COUNT * STEP];
        memcpy(static_cast<void *>(all), &word, sizeof word);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            beside[i] = all[i * STEP];
        }
    }
}

/*
 * Whether a thread adds neutral elements where a row has none: of single loads of 16-bit
 * floats, which ptxas 13.0 would else put behind each other, a sum behind each.
 */
template <int COUNT, typename Op>
constexpr bool
    FILLS_UP = COUNT == 1 && sizeof(typename Op::T) == 2 && IS_FLOAT<typename Op::T>
                   ? std::is_same_v<typename Op::Part, double>
                   : false;

/* Folds the elements of COUNT neighbouring results, the first of which begins at p. */
template <int COUNT, int STEP, typename Op>
__device__ __forceinline__ void
fold_down(const Op &op, const few_view<typename Op::T> &v, const typename Op::T *p,
          typename Op::Fold (&fold)[COUNT])
{
    using T = typename Op::T;
    using Word = few_word<COUNT, STEP, T>;
    Word loaded[FEW_DOWN];
#pragma unroll 1
    for (int first = 0; first < v.cols; first += FEW_DOWN) {
#pragma unroll
        for (int k = 0; k < FEW_DOWN; k++) {
            if (first + k < v.cols) {
                loaded[k] = *reinterpret_cast<const Word *>(p + v.offsets[k]);
            }
            else if constexpr (FILLS_UP<COUNT, Op>) {
                loaded[k] = Word{};
            }
        }
        if constexpr (FILLS_UP<COUNT, Op>) {
#pragma unroll
            for (int k = 0; k < FEW_DOWN; k++) {
                const typename Op::Acc lifted = op.lift(loaded[k], first + k);
                fold[0].add(Op::widen(first + k < v.cols ? lifted : Op::identity()));
            }
        }
        else {
#pragma unroll
            for (int k = 0; k < FEW_DOWN; k++) {
                if (first + k < v.cols) {
                    T beside[COUNT];
                    unpack_beside<COUNT, STEP>(loaded[k], beside);
#pragma unroll
                    for (int i = 0; i < COUNT; i++) {
                        fold[i].add(Op::widen(op.lift(beside[i], first + k)));
                    }
                }
            }
        }
        p += v.round;
    }
}

/* ---- the store ---- */

/* Bytes of a result; of whole numbers in packs, which are 8 bytes wide. */
template <typename Op>
constexpr int result_bytes =
    std::is_same_v<typename Op::Part, unsigned>          ? 1
    : std::is_same_v<Op, reduce_extreme<typename Op::T>> ? sizeof(typename Op::T)
    : IS_COMPLEX<typename Op::T>                         ? sizeof(typename Op::T)
    : std::is_same_v<typename Op::Part, double> &&IS_FLOAT<typename Op::T>
        ? sizeof(typename Op::T)
        : 8;

/* COUNT neighbouring results, by stores of up to 16 bytes. */
template <typename Op, int COUNT>
__device__ __forceinline__ void
store_packs(const Op &op, const reduce_result &to, int64_t row,
            const typename Op::Fold (&fold)[COUNT], int64_t cols)
{
    constexpr int BYTES = result_bytes<Op>;
    constexpr int SIZE = COUNT * BYTES < 16 ? COUNT : 16 / BYTES;
    using Word = std::conditional_t<
        SIZE * BYTES == 16, uint4,
        std::conditional_t<SIZE * BYTES == 8, uint2,
                           std::conditional_t<SIZE * BYTES == 4, uint32_t, uint16_t>>>;
    static_assert(sizeof(Word) == SIZE * BYTES, "results fill a word");
    Word *out = static_cast<Word *>(to.out) + row / SIZE;
#pragma unroll
    for (int first = 0; first < COUNT; first += SIZE) {
        alignas(16) unsigned char staged[16];
        const reduce_result here = {
            staged, std::is_same_v<typename Op::Part, uint64_t> ? GPO_I64 : to.dtype,
            to.mean, to.initial};
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            op.store(here, i, fold[first + i].value(), cols);
        }
        Word bits;
        memcpy(static_cast<void *>(&bits), staged, sizeof bits);
        out[first / SIZE] = bits;
    }
}

/* ---- the kernel ---- */

/* Blocks per SM, for the launch bound: FEW_DOWN loads of a thread take registers. */
template <typename Op, int COUNT, int STEP>
__host__ __device__ constexpr int
few_blocks()
{
    constexpr int ELEMENT = sizeof(typename Op::T), FOLD = sizeof(typename Op::Fold);
    constexpr int BYTES = ELEMENT + FOLD / 8;
    constexpr int LOADS = FEW_DOWN * COUNT * STEP * ELEMENT / 4,
                  SUMS = COUNT * FOLD / 4;
    return COUNT > 1   ? 65536 / FEW_BLOCK / (40 + LOADS + SUMS)
           : BYTES > 8 ? 6
           : BYTES > 4 ? 8
                       : 12;
}

/* A thread has COUNT results, whose elements are STEP apart. */
template <typename Op, int COUNT, int STEP>
__global__ void
__launch_bounds__(FEW_BLOCK, (few_blocks<Op, COUNT, STEP>()))
    reduce_few_down_kernel(Op op, few_view<typename Op::T> v, reduce_result to)
{
    const int number = blockIdx.x * FEW_BLOCK + threadIdx.x, row = number * COUNT;
    if (number >= v.threads) {
        return;
    }
    const typename Op::T *p = first_of(v, number);
    if constexpr (COUNT > 1) {
        if (v.rows - row < COUNT + STEP - 1) { /* a load could end beyond x */
#pragma unroll 1
            for (int i = row; i < v.rows; i++, p += STEP) {
                typename Op::Fold fold[1];
                fold_down<1, 1>(op, v, p, fold);
                op.store(to, place_of(v, i), fold[0].value(), v.cols);
            }
            return;
        }
    }
    typename Op::Fold fold[COUNT];
    fold_down<COUNT, STEP>(op, v, p, fold);
    if constexpr (COUNT > 1) {
        if (v.in_packs) {
            store_packs<Op, COUNT>(op, to, row, fold, v.cols);
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        op.store(to, place_of(v, row + i), fold[i].value(), v.cols);
    }
}

/* ---- results that share no loads, several of a thread ---- */

/* Blocks per SM, for the launch bound. */
template <typename Op>
constexpr int apart_blocks = sizeof(typename Op::T) <= 4   ? 8
                             : sizeof(typename Op::T) <= 8 ? 6
                                                           : 4;

/*
 * A thread has results number, number + threads, ..., FEW_APART of them: parts of the
 * outermost axis, so that their elements are `jump` apart.
 */
template <typename Op>
__global__ void
__launch_bounds__(FEW_BLOCK, apart_blocks<Op>)
    reduce_few_apart(Op op, few_view<typename Op::T> v, int64_t jump, reduce_result to)
{
    using T = typename Op::T;
    const int number = blockIdx.x * FEW_BLOCK + threadIdx.x;
    if (number >= v.threads) {
        return;
    }
    const T *const p = first_of(v, number);
    T loaded[FEW_APART][FEW_IN_APART];
#pragma unroll
    for (int g = 0; g < FEW_APART; g++) {
#pragma unroll
        for (int k = 0; k < FEW_IN_APART; k++) {
            loaded[g][k] = T{};
            if (k < v.cols && number + g * v.threads < v.rows) {
                loaded[g][k] = p[g * jump + v.offsets[k]];
            }
        }
    }
#pragma unroll 1 /* one copy of the store */
    for (int row = number; row < v.rows; row += v.threads) {
        typename Op::Fold fold;
#pragma unroll
        for (int k = 0; k < FEW_IN_APART; k++) {
            const typename Op::Acc lifted = op.lift(loaded[0][k], k);
            fold.add(Op::widen(k < v.cols ? lifted : Op::identity()));
        }
        op.store(to, place_of(v, row), fold.value(), v.cols);
#pragma unroll
        for (int g = 1; g < FEW_APART; g++) {
#pragma unroll
            for (int k = 0; k < FEW_IN_APART; k++) {
                loaded[g - 1][k] = loaded[g][k];
            }
        }
    }
}

/* ---- results of one element each, in the order of memory: almost a copy ---- */

/* A thread has FEW_COPIES packs of COUNT results, all on their way at once. */
template <typename Op, int COUNT>
__global__ void
__launch_bounds__(FEW_BLOCK)
    reduce_few_copies(Op op, const typename Op::T *x, int rows, reduce_result to)
{
    using T = typename Op::T;
    using Word = few_word<COUNT, 1, T>;
    const int packs = rows / COUNT, rest = packs * COUNT + threadIdx.x;
    const int first = blockIdx.x * FEW_BLOCK * FEW_COPIES + threadIdx.x;
    Word loaded[FEW_COPIES];
#pragma unroll
    for (int u = 0; u < FEW_COPIES; u++) {
        if (first + u * FEW_BLOCK < packs) {
            loaded[u] = reinterpret_cast<const Word *>(x)[first + u * FEW_BLOCK];
        }
    }
    const int64_t end = first + FEW_COPIES * FEW_BLOCK;
#pragma unroll 1 /* one copy of a store, which has a case for every dtype of results */
    for (int64_t i = first; i < end && i < packs; i += FEW_BLOCK) {
        T beside[COUNT];
        typename Op::Fold fold[COUNT];
        unpack_beside<COUNT, 1>(loaded[0], beside);
#pragma unroll
        for (int k = 0; k < COUNT; k++) {
            fold[k].add(Op::widen(op.lift(beside[k], 0)));
        }
        store_packs<Op, COUNT>(op, to, i * COUNT, fold, 1);
#pragma unroll
        for (int u = 1; u < FEW_COPIES; u++) {
            loaded[u - 1] = loaded[u];
        }
    }
    if (blockIdx.x == 0 && rest < rows) {
        typename Op::Fold fold;
        fold.add(Op::widen(op.lift(x[rest], 0)));
        op.store(to, rest, fold.value(), 1);
    }
}

/* ---- zeros ---- */

__global__ void
__launch_bounds__(FEW_BLOCK) reduce_few_zeros(int64_t *out, int64_t rows)
{
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * FEW_BLOCK * FEW_DOWN + threadIdx.x;
#pragma unroll
    for (int k = 0; k < FEW_DOWN; k++) {
        if (first + k * FEW_BLOCK < rows) {
            out[first + k * FEW_BLOCK] = 0;
        }
    }
}

/* ---- the launch ---- */

struct reduce_few_down_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        constexpr int ELEMENT = sizeof(T), COUNT = ELEMENT == 1 ? 8 : 16 / ELEMENT;
        const reduce_plan &plan = *reduce_plan_of(call);
        few_view<T> v = {};
        v.x = origin_of<T>(call);
        reduce_axes kept = plan.kept;
        place(kept, &v);
        kept = merged(kept);
        few_beside beside = few_beside_of(plan, kept, ELEMENT);
        if (plan.rows <= gpo_processors(call) * FEW_AT_ONCE || !is_aligned(v.x)) {
            beside = {1, 1};
        }
        walk(plan, kept, beside, &v);
        const int width = gpo_dtypes[call->out[0].dtype].bytes;
        v.in_packs =
            v.in_order && is_aligned(call->out[0].data) && width == result_bytes<Op>;
        const reduce_result to = result_of(call);
        if (beside.count == 1 && plan.cols <= FEW_IN_APART &&
            plan.rows > gpo_processors(call) * FEW_AT_ONCE &&
            kept.shape[0] >= FEW_APART * FEW_APART) {
            const int64_t part = ceil_div(kept.shape[0], FEW_APART);
            v.threads = static_cast<int>(part * (plan.rows / kept.shape[0]));
            return GPO_LAUNCH(call, grid_of(ceil_div(v.threads, FEW_BLOCK)), FEW_BLOCK,
                              0, (reduce_few_apart<Op>), op, v, part * kept.strides[0],
                              to);
        }
        const dim3 grid = grid_of(ceil_div(v.threads, FEW_BLOCK));
        if constexpr (ELEMENT < 8) {
            if (beside.step == 2) {
                return GPO_LAUNCH(call, grid, FEW_BLOCK, 0,
                                  (reduce_few_down_kernel<Op, 8 / ELEMENT, 2>), op, v,
                                  to);
            }
        }
        if constexpr (COUNT > 1 && !std::is_same_v<Op, reduce_arg<T>>) {
            if (beside.count == COUNT && plan.cols == 1 && kept.ndim == 1 &&
                v.in_packs) {
                return GPO_LAUNCH(
                    call, grid_of(ceil_div(v.threads, FEW_BLOCK * FEW_COPIES)),
                    FEW_BLOCK, 0, (reduce_few_copies<Op, COUNT>), op, v.x, v.rows, to);
            }
        }
        if (beside.count > 1) {
            return GPO_LAUNCH(call, grid, FEW_BLOCK, 0,
                              (reduce_few_down_kernel<Op, COUNT, 1>), op, v, to);
        }
        return GPO_LAUNCH(call, grid, FEW_BLOCK, 0, (reduce_few_down_kernel<Op, 1, 1>),
                          op, v, to);
    }

  private:
    /* Sorts the axes, and says where results are. */
    template <typename T>
    static void place(reduce_axes &kept, few_view<T> *v)
    {
        const result_places places = sort_by_distance(&kept);
        v->in_order = places.in_order;
        v->out_ndim = kept.ndim;
        for (int d = 0; d < kept.ndim; d++) {
            v->out_length[d] = divider_of(kept.shape[d]);
            v->places[d] = places.strides[d];
        }
    }

    /* The steps of threads along the axes, and those of a thread along its rows. */
    template <typename T>
    static void walk(const reduce_plan &plan, const reduce_axes &kept,
                     const few_beside &beside, few_view<T> *v)
    {
        const reduce_axes &reduced = plan.reduced;
        v->rows = static_cast<int>(plan.rows);
        v->threads = static_cast<int>(ceil_div(plan.rows, beside.count));
        v->cols = static_cast<int>(plan.cols);
        v->ndim = kept.ndim;
        for (int d = 0; d < kept.ndim; d++) {
            const int count = d == kept.ndim - 1 ? beside.count : 1;
            v->length[d] = divider_of(ceil_div(kept.shape[d], count));
            v->strides[d] = kept.strides[d] * count;
        }
        for (int k = 0; k < v->cols && k < FEW_DOWN; k++) {
            int64_t rest = k;
            for (int d = reduced.ndim - 1; d >= 0; d--) {
                v->offsets[k] += rest % reduced.shape[d] * reduced.strides[d];
                rest /= reduced.shape[d];
            }
        }
        v->round = reduced.ndim == 1 ? reduced.strides[0] * FEW_DOWN : 0;
    }
};

template <typename T>
gpo_status
reduce_few_down(gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    if (are_zeros(plan)) {
        return GPO_LAUNCH(call, grid_of(ceil_div(plan.rows, FEW_BLOCK * FEW_DOWN)),
                          FEW_BLOCK, 0, reduce_few_zeros,
                          static_cast<int64_t *>(call->out[0].data), plan.rows);
    }
    return are_few_down(plan) ? reduce_with<reduce_few_down_launcher, T>(call)
                              : reduce_v9<T>(call); /* a host array, packed since */
}

#define INSTANTIATE(T) template gpo_status reduce_few_down<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
