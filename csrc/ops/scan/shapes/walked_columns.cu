/*
 * walked_columns.cu  Scans down many columns or short ones: a thread walks down a pack
 * of neighbouring columns from the first row to the last, STEP rows at a time, and
 * waits for no other.
 * Cost:  reads x once, writes out once; a view not in the order of out is copied first.
 * Order: the rows above a step, the kernel, the launch.
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

/* ---- the kernel ---- */

/*
 * VEC columns per thread: a pack of them where there are many and they are aligned.
 * AHEAD: the next rows are on their way while these are combined and stored, half as
 * many at a time.
 */
template <typename Op, int VEC, bool AHEAD>
__global__ void
__launch_bounds__(WALKERS)
    scan_walked_columns_kernel(Op op, scan_view<typename Op::Out> a, int64_t width,
                               divider packs_across, int64_t packs, int64_t first)
{
    using Acc = typename Op::Acc;
    using Raw = typename Op::Raw;
    using Out = typename Op::Out;
    using Fold = typename Op::Fold;
    constexpr int ROWS = AHEAD ? STEP / 2 : STEP;
    constexpr bool BRANCHES = AHEAD || VEC == 1; /* else they take 30 registers more */
    const int64_t id = (first + blockIdx.x) * WALKERS + threadIdx.x;
    if (id >= packs) {
        return;
    }
    const int64_t outer = packs_across.of(id);
    const int64_t column = (id - outer * packs_across.by) * VEC;
    /* the last axis is that of the columns, most calls have one before it or none */
    const row_offset at =
        a.ndim > 2   ? offset_of(a, outer * width)
        : a.ndim > 1 ? row_offset{outer * a.x_strides[0], outer * a.out_strides[0]}
                     : row_offset{0, 0};
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
    /* a step is whole or cut off by the end, alike for all threads: no tests of rows */
    const auto load = [&](int64_t k, Raw(&raw)[ROWS][VEC]) {
        if (BRANCHES && k + ROWS <= a.cols) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                load_row(k + i, raw[i]);
            }
        }
        else if (k < a.cols) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (k + i < a.cols) {
                    load_row(k + i, raw[i]);
                }
            }
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
    const auto walk = [&](int64_t k, const Raw(&raw)[ROWS][VEC]) {
        if (k >= a.cols) {
            return;
        }
        Acc start[VEC], sum[VEC];
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            start[v] = k > 0 ? Op::narrow(above[v].value()) : op.first;
            sum[v] = Fold::identity();
        }
        if (BRANCHES && k + ROWS <= a.cols) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                walk_row(k + i, raw[i], start, sum);
            }
        }
        else {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (k + i < a.cols) {
                    walk_row(k + i, raw[i], start, sum);
                }
            }
        }
        if (k + ROWS < a.cols) { /* conversions of a single step would cost as much */
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                above[v].add(Op::widen(sum[v]));
            }
        }
    };
    if constexpr (AHEAD) {
        Raw even[ROWS][VEC], odd[ROWS][VEC];
        load(0, even);
        for (int64_t k = 0; k < a.cols; k += 2 * ROWS) {
            load(k + ROWS, odd);
            walk(k, even);
            load(k + 2 * ROWS, even);
            walk(k + ROWS, odd);
        }
    }
    else {
        for (int64_t k = 0; k < a.cols; k += ROWS) {
            Raw raw[ROWS][VEC];
            load(k, raw);
            walk(k, raw);
        }
    }
}

/* ---- the launch ---- */

template <bool AHEAD>
struct walked_columns {
    template <typename Op, int VEC, bool LOADS_AHEAD>
    static gpo_status launch(gpo_call *call, const scan_view<typename Op::Out> &a,
                             const Op &op)
    {
        const int64_t width = scan_plan_of(call)->inner;
        const int64_t across = ceil_div(width, VEC), packs = a.rows / width * across;
        const int64_t blocks = ceil_div(packs, WALKERS);
        gpo_status status = GPO_OK;
        for (int64_t first = 0; !status && first < blocks; first += MAX_GRID_X) {
            status = GPO_LAUNCH(call, grid_of(blocks - first), WALKERS, 0,
                                (scan_walked_columns_kernel<Op, VEC, LOADS_AHEAD>), op,
                                a, width, divider_of(across), packs, first);
        }
        return status;
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return for_each_ordered_view(
            call, op, has_columns_in_order(call),
            [&](const scan_view<typename Op::Out> &a) {
                constexpr int VEC = column_pack<Op>;
                const int64_t many = 2 * PACKS_PER_SM * gpo_processors(call);
                const bool packed =
                    a.rows >= many * VEC && are_packed(a, VEC, op.bytes());
                if (AHEAD || a.cols <= STEP / 2) { /* or one step, and shorter */
                    return packed ? launch<Op, VEC, true>(call, a, op)
                                  : launch<Op, 1, true>(call, a, op);
                }
                return packed ? launch<Op, VEC, false>(call, a, op)
                              : launch<Op, 1, false>(call, a, op);
            });
    }
};

template <typename T>
gpo_status
scan_walked_columns(gpo_call *call)
{
    return scan_with<walked_columns<false>, T>(call);
}

template <typename T>
gpo_status
scan_walked_columns_b(gpo_call *call)
{
    return scan_with<walked_columns<true>, T>(call);
}

#define INSTANTIATE(T)                                           \
    template gpo_status scan_walked_columns<T>(gpo_call * call); \
    template gpo_status scan_walked_columns_b<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
