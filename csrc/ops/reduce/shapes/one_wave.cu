/*
 * one_wave.cu  Few elements of any view of up to three kept and two reduced axes: all
 * loads of a thread at once, all threads at once.  The code is short, as it comes from
 * memory in a small call: numbers of 32 bits, one division to find the first element of a
 * thread, additions from there.
 * Threads of a result are neighbours where its elements are nearer to each other than to
 * those of other results, else neighbours are on other results.
 * Cost:  a wait for memory, for the warps where a result has several.
 * Order: the view, the kernel, the launch.
 */
#include "../one_wave.cuh"

/* ---- the view ---- */

/* An axis, and the division by its length as a multiplication (divide.cuh). */
struct wave_axis {
    unsigned magic, shift;
    int length, stride;
};

template <typename T>
struct wave_view {
    const T *x;
    int rows, cols;
    int across, height; /* results of a block, its threads of a result */
    int step;           /* from an element of a thread to its next */
    int low_bits; /* of a thread's number: its result if `apart`, else its place */
    int lanes,
        furthest;     /* to the next place of a result; within a warp, the first fold */
    int part_bits;    /* places of a result in a warp */
    int count_bits;   /* warps that have a result, or 32 of them each */
    bool apart;       /* neighbouring threads are on different results */
    bool in_order;    /* result i is out[i] */
    int jump, along;  /* by such a step: offset, place on the inner axis */
    int outer, carry; /* along the outer reduced axis; at the end of the inner one */
    wave_axis inner;  /* the inner reduced axis */
    wave_axis kept[MOST_WAVE_AXES];
    int places[MOST_WAVE_AXES];
};

__device__ __forceinline__ int
quotient_by(const wave_axis &axis, int n)
{
    const unsigned u = static_cast<unsigned>(n);
    return static_cast<int>((__umulhi(u, axis.magic) + u) >> axis.shift);
}

/* The offset of result number `row`: of its elements, or its own among the results. */
template <bool OWN, typename T>
__device__ __forceinline__ int
offset_of_result(const wave_view<T> &v, int row)
{
    int offset = 0;
#pragma unroll
    for (int d = MOST_WAVE_AXES - 1; d > 0;
         d--) { /* an axis that there is not has length 1 */
        const int above = quotient_by(v.kept[d], row);
        offset +=
            (row - above * v.kept[d].length) * (OWN ? v.places[d] : v.kept[d].stride);
        row = above;
    }
    return offset + row * (OWN ? v.places[0] : v.kept[0].stride);
}

/* ---- the kernel ---- */

template <typename Op>
__global__ void
__launch_bounds__(WAVE_BLOCK, 1)
    reduce_one_wave_kernel(Op op, wave_view<typename Op::T> v,
                           block_parts<typename Op::Part> parts, reduce_result to)
{
    using T = typename Op::T;
    using Part = typename Op::Part;
    constexpr int ITEMS = wave_items(sizeof(T));
    GPO_SHARED(Part, slots, [WAVE_SLOTS]);
    GPO_SHARED(bool, last, [1]);
    const int tid = threadIdx.x, first = blockIdx.x * v.across;
    const int low = tid & ((1 << v.low_bits) - 1), high = tid >> v.low_bits;
    const int own = v.apart ? low : high, y = v.apart ? high : low;
    const int cols = first + own < v.rows ? v.cols : 0;
    const int begin = blockIdx.y * v.height + y;
    const int above = quotient_by(v.inner, begin);
    int inner = begin - above * v.inner.length;
    int offset = offset_of_result<false>(v, first + own) + above * v.outer +
                 inner * v.inner.stride;

    typename Op::Fold fold;
#pragma unroll 1
    for (int k = begin; k < cols; k += ITEMS * v.step) {
        T loaded[ITEMS];
#pragma unroll
        for (int u = 0; u < ITEMS; u++) {
            if (k + u * v.step < cols) {
                loaded[u] = v.x[offset];
            }
            offset += v.jump;
            inner += v.along;
            if (inner >= v.inner.length) {
                inner -= v.inner.length;
                offset += v.carry;
            }
        }
        typename Op::Acc acc = op.lift(loaded[0], k);
#pragma unroll
        for (int u = 1; u < ITEMS; u++) {
            if (k + u * v.step < cols) {
                acc = Op::combine(acc, op.lift(loaded[u], k + u * v.step));
            }
        }
        fold.add(Op::widen(acc));
    }

    Part total;
    int row;
    bool stores;
#pragma unroll 1
    for (unsigned blocks = gridDim.y;; blocks = 1) {
        /* The lanes of a result, then its warps, whose parts go beside each other. */
        total = fold.value();
#pragma unroll 1
        for (int d = v.furthest; d >= v.lanes; d >>= 1) {
            total = Op::combine(total, shuffle_down(total, d));
        }
        row = first + own;
        stores = y == 0;
        if (v.count_bits > 0) {
            const int part = y >> v.part_bits, filled = v.across << v.count_bits;
            if (part << v.part_bits == y) {
                slots[(own << v.count_bits) + part] = total;
            }
            __syncthreads();
            total = slots[tid < filled ? tid : 0];
            row = first + (tid >> v.count_bits);
            stores = tid < filled && (row - first) << v.count_bits == tid;
#pragma unroll 1
            for (int d = 1 << v.count_bits >> 1; d > 0; d >>= 1) {
                total = Op::combine(total, shuffle_down(total, d));
            }
        }
        stores = stores && row < v.rows;
        if (blocks == 1) {
            break;
        }
        if (stores) {
            parts.part[blockIdx.y * v.rows + row] = total;
        }
        if (!is_last_block(&parts.ticket[blockIdx.x], blocks, last)) {
            return;
        }
        fold = typename Op::Fold();
#pragma unroll 1
        for (int b = y; b < static_cast<int>(blocks) && cols > 0; b += v.height) {
            fold.add(parts.part[b * v.rows + first + own]);
        }
    }
    if (stores) {
        op.store(to, v.in_order ? row : offset_of_result<true>(v, row), total, v.cols);
    }
}

/* ---- the launch ---- */

static wave_axis
wave_axis_of(int64_t length, int64_t stride)
{
    const divider by = divider_of(length);
    return {by.magic, by.shift, static_cast<int>(length), static_cast<int>(stride)};
}

struct reduce_one_wave_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        const reduce_plan &plan = *reduce_plan_of(call);
        const wave_grid g = wave_grid_of(call);
        wave_view<T> v = {};
        v.x = origin_of<T>(call);
        v.rows = static_cast<int>(plan.rows);
        v.cols = static_cast<int>(plan.cols);
        v.across = g.across;
        v.height = g.height;
        v.step = g.height * g.split;
        v.apart = g.apart;
        v.low_bits = bits_of(g.apart ? g.across : g.height);
        v.lanes = g.apart ? g.across : 1;
        const int threads = v.lanes * g.height; /* that a result is spread over */
        v.furthest = (threads < WARP ? threads : WARP) / 2;
        v.part_bits = v.lanes < WARP ? bits_of(WARP / v.lanes) : 0;
        v.count_bits = bits_of(threads / (v.lanes > WARP ? v.lanes : WARP));
        place(plan, &v);
        walk(plan.reduced, &v);
        block_parts<typename Op::Part> parts;
        const gpo_status status = parts_for(call, g.split, &parts);
        const dim3 grid(ceil_div(plan.rows, g.across), g.split);
        return status ? status
                      : GPO_LAUNCH(call, grid, g.across * g.height, 0,
                                   (reduce_one_wave_kernel<Op>), op, v, parts,
                                   result_of(call));
    }

  private:
    /* Of a power of two; 0 of none. */
    static int bits_of(int power)
    {
        int bits = 0;
        while (power > 1) {
            power >>= 1;
            bits++;
        }
        return bits;
    }

    /* The kept axes, nearest last where neighbouring threads have different results. */
    template <typename T>
    static void place(const reduce_plan &plan, wave_view<T> *v)
    {
        reduce_axes kept = plan.kept;
        result_places places = {true, {}};
        if (v->apart) {
            places = sort_by_distance(&kept);
        }
        v->in_order = places.in_order;
        for (int d = 0; d < MOST_WAVE_AXES; d++) {
            const bool is_one = d < kept.ndim;
            v->kept[d] = is_one ? wave_axis_of(kept.shape[d], kept.strides[d])
                                : wave_axis_of(1, 0);
            v->places[d] = is_one ? static_cast<int>(places.strides[d]) : 0;
        }
    }

    /* The walk along the reduced axes; a single one is an inner one without an end. */
    template <typename T>
    static void walk(const reduce_axes &reduced, wave_view<T> *v)
    {
        const int last = reduced.ndim - 1;
        const int64_t length = last > 0 ? reduced.shape[last] : INT32_MAX;
        const int64_t stride = last >= 0 ? reduced.strides[last] : 0;
        const int64_t outer = last > 0 ? reduced.strides[0] : 0;
        v->inner = wave_axis_of(length, stride);
        v->outer = static_cast<int>(outer);
        v->along = static_cast<int>(v->step % length);
        v->jump = static_cast<int>(v->step / length * outer + v->along * stride);
        v->carry = last > 0 ? static_cast<int>(outer - length * stride) : 0;
    }
};

template <typename T>
gpo_status
reduce_one_wave(gpo_call *call)
{
    return are_one_wave(*reduce_plan_of(call))
               ? reduce_with<reduce_one_wave_launcher, T>(call)
               : reduce_v9<T>(call); /* a host array, packed since */
}

#define INSTANTIATE(T) template gpo_status reduce_one_wave<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
