/*
 * walked_columns.cu  Scans down many columns or short ones: a thread walks down a pack
 * of neighbouring columns from the first row to the last, STEP rows at a time, and
 * waits for no other.  Of short columns it loads all before it stores the first.
 * Cost:  reads x once, writes out once; a view not in the order of out is copied first.
 * Order: the rows above a step, the kernels, the launch.
 */
#include "../../../device/divide.cuh"
#include "../../../device/sum.cuh"
#include "../column_packs.cuh"
#include "../prepare.cuh"

/* ---- the rows above a step, combined ---- */

/* In Part, which is wider than Acc for float32. */
template <typename Fold, typename Part>
struct rows_above {
    Part total;

    __device__ __forceinline__ void start(Part first)
    {
        total = first;
    }

    __device__ __forceinline__ void add(Part step)
    {
        total = Fold::combine(total, step);
    }

    __device__ __forceinline__ Part value() const
    {
        return total;
    }
};

/* Nothing is wider than float64: long columns need the rounding errors, too. */
template <>
struct rows_above<total_fold<double, false>, double> : compensated_sum<double> {
};

template <>
struct rows_above<total_fold<c128, false>, c128> {
    compensated_sum<double> re, im;

    __device__ __forceinline__ void start(c128 first)
    {
        re.start(first.re);
        im.start(first.im);
    }

    __device__ __forceinline__ void add(c128 step)
    {
        re.add(step.re);
        im.add(step.im);
    }

    __device__ __forceinline__ c128 value() const
    {
        return {re.value(), im.value()};
    }
};

/* ---- the kernels ---- */

/* Where the columns number `outer` along the axes before begin in x and in out. */
template <typename Out>
__device__ __forceinline__ row_offset
pack_offset(const scan_view<Out> &a, int64_t width, int64_t outer)
{
    /* the last axis is that of the columns, most calls have one before it or none */
    return a.ndim > 2   ? offset_of(a, outer * width)
           : a.ndim > 1 ? row_offset{outer * a.x_strides[0], outer * a.out_strides[0]}
                        : row_offset{0, 0};
}

/* VEC columns per thread: a pack of them where there are many and they are aligned. */
template <typename Op, int VEC>
__global__ void
__launch_bounds__(WALKERS)
    scan_walked_columns_kernel(Op op, scan_view<typename Op::Out> a, int64_t width,
                               divider packs_across, int64_t packs, int64_t first)
{
    using Acc = typename Op::Acc;
    using Raw = typename Op::Raw;
    using Out = typename Op::Out;
    using Fold = typename Op::Fold;
    constexpr bool BRANCHES = VEC == 1; /* else they take 30 registers more */
    const int64_t id = (first + blockIdx.x) * WALKERS + threadIdx.x;
    if (id >= packs) {
        return;
    }
    const int64_t outer = packs_across.of(id);
    const int64_t column = (id - outer * packs_across.by) * VEC;
    const row_offset at = pack_offset(a, width, outer);
    const bool whole = column + VEC <= width;

    rows_above<typename Op::PartFold, typename Op::Part> above[VEC];
#pragma unroll
    for (int v = 0; v < VEC; v++) {
        above[v].start(Op::widen(op.first));
    }
    const auto load_row = [&](int64_t k, Raw(&raw)[VEC]) {
        if constexpr (VEC == 1) {
            raw[0] = op.read(a.x, at.x + column + k * a.stride);
        }
        else {
            load_columns<VEC>(op, a, at.x + k * a.stride, column, width, whole, raw);
        }
    };
    const auto walk_row = [&](int64_t k, const Raw(&raw)[VEC], const Acc(&start)[VEC],
                              Acc(&sum)[VEC]) {
        Out result[VEC];
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            const Acc next = Fold::combine(sum[v], op.lift(raw[v]));
            result[v] = op.finish(Fold::combine(start[v], a.exclusive ? sum[v] : next));
            sum[v] = next;
        }
        if constexpr (VEC == 1) {
            a.out[at.out + column + k * a.step] = result[0];
        }
        else {
            store_columns<VEC>(a.out + at.out + k * a.step, column, width, whole,
                               result);
        }
    };
    for (int64_t k = 0; k < a.cols; k += STEP) {
        Raw raw[STEP][VEC];
        Acc start[VEC], sum[VEC];
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            start[v] = k > 0 ? Op::narrow(above[v].value()) : op.first;
            sum[v] = Fold::identity();
        }
        /* a step is whole or cut off by the end, alike for all threads */
        if (BRANCHES && k + STEP <= a.cols) {
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                load_row(k + i, raw[i]);
            }
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                walk_row(k + i, raw[i], start, sum);
            }
        }
        else {
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                if (k + i < a.cols) {
                    load_row(k + i, raw[i]);
                }
            }
#pragma unroll
            for (int i = 0; i < STEP; i++) {
                if (k + i < a.cols) {
                    walk_row(k + i, raw[i], start, sum);
                }
            }
        }
        if (k + STEP < a.cols) { /* conversions of a single step would cost as much */
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                above[v].add(Op::widen(sum[v]));
            }
        }
    }
}

/* Columns of at most ROWS elements, PACKS packs of VEC per thread, all loaded at once. */
template <typename Op, int VEC, int ROWS, int PACKS>
__global__ void
__launch_bounds__(WALKERS)
    scan_short_columns_kernel(Op op, scan_view<typename Op::Out> a, int64_t width,
                              divider packs_across, int64_t packs, int64_t first)
{
    using Acc = typename Op::Acc;
    using Fold = typename Op::Fold;
    const int64_t id = (first + blockIdx.x) * PACKS * WALKERS + threadIdx.x;
    const int cols = static_cast<int>(a.cols);
    typename Op::Raw raw[PACKS][ROWS][VEC];
    row_offset at[PACKS];
    int64_t column[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        const int64_t number = id + p * WALKERS;
        const int64_t outer = packs_across.of(number < packs ? number : 0);
        at[p] = pack_offset(a, width, outer);
        column[p] = number < packs ? (number - outer * packs_across.by) * VEC : width;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (i < cols) {
                load_columns<VEC>(op, a, at[p].x + i * a.stride, column[p], width,
                                  column[p] + VEC <= width, raw[p][i]);
            }
        }
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        Acc sum[VEC];
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            sum[v] = op.first;
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (i < cols) {
                typename Op::Out result[VEC];
#pragma unroll
                for (int v = 0; v < VEC; v++) {
                    const Acc next = Fold::combine(sum[v], op.lift(raw[p][i][v]));
                    result[v] = op.finish(a.exclusive ? sum[v] : next);
                    sum[v] = next;
                }
                store_columns<VEC>(a.out + at[p].out + i * a.step, column[p], width,
                                   column[p] + VEC <= width, result);
            }
        }
    }
}

/* ---- the launch ---- */

struct walked_columns {
    /* Columns of at most ROWS elements, at once, or of any number if ROWS is 0. */
    template <int VEC, int ROWS, int PACKS, typename Op>
    static gpo_status launch(gpo_call *call, const scan_view<typename Op::Out> &a,
                             const Op &op)
    {
        const int64_t width = scan_plan_of(call)->inner;
        const int64_t across = ceil_div(width, VEC), packs = a.rows / width * across;
        const int64_t blocks = ceil_div(packs, PACKS * WALKERS);
        gpo_status status = GPO_OK;
        for (int64_t first = 0; !status && first < blocks; first += MAX_GRID_X) {
            if constexpr (ROWS > 0) {
                status = GPO_LAUNCH(call, grid_of(blocks - first), WALKERS, 0,
                                    (scan_short_columns_kernel<Op, VEC, ROWS, PACKS>),
                                    op, a, width, divider_of(across), packs, first);
            }
            else {
                status = GPO_LAUNCH(call, grid_of(blocks - first), WALKERS, 0,
                                    (scan_walked_columns_kernel<Op, VEC>), op, a, width,
                                    divider_of(across), packs, first);
            }
        }
        return status;
    }

    template <typename Op>
    static gpo_status view(gpo_call *call, const scan_view<typename Op::Out> &a,
                           const Op &op)
    {
        constexpr int ROWS = FEWEST_IN_COLUMN;
        /* of 8 bytes lanes need no packs, but the ninth row would wait for the first 8 */
        constexpr bool IS_WIDE = Op::AS_READ && sizeof(typename Op::Raw) == 8;
        const int64_t many = 2 * PACKS_PER_SM * gpo_processors(call);
        if constexpr (IS_WIDE) {
            if (a.cols <= ROWS && a.rows >= many * ROWS) {
                return launch<1, ROWS, ROWS>(call, a, op);
            }
            return a.cols <= SHORT_COLUMN ? launch<1, SHORT_COLUMN, 1>(call, a, op)
                                          : launch<1, 0, 1>(call, a, op);
        }
        else {
            constexpr int VEC = column_pack<Op>;
            const bool packed = a.rows >= many * VEC && are_packed(a, VEC, op.bytes());
            if (a.cols <= ROWS && a.rows >= many * ROWS && !packed) {
                return launch<1, ROWS, ROWS>(call, a, op);
            }
            if (a.cols <= ROWS && packed) {
                return launch<VEC, ROWS, 1>(call, a, op);
            }
            return packed ? launch<VEC, 0, 1>(call, a, op)
                          : launch<1, 0, 1>(call, a, op);
        }
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return for_each_ordered_view(
            call, op, has_columns_in_order(call),
            [&](const scan_view<typename Op::Out> &a) { return view(call, a, op); });
    }
};

template <typename T>
gpo_status
scan_walked_columns(gpo_call *call)
{
    return scan_with<walked_columns, T>(call);
}

#define INSTANTIATE(T) template gpo_status scan_walked_columns<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
