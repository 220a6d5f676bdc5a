/*
 * v8  16-byte packs.
 * Was:   v7 loads one element per instruction.
 * Now:   one load fetches 16 bytes; the first threads load the elements before the
 *        first 16-byte boundary and after the last one by one.  A row that is not
 *        contiguous is read as in v7.
 * Cost:  as v7 with 16 / sizeof(T) times fewer load instructions.
 * Left:  one load in flight per thread, and a second kernel to finish -> v9.
 */
#ifndef GPO_REDUCE_V8_PACKS_CUH
#define GPO_REDUCE_V8_PACKS_CUH

#include "../packs.cuh"
#include "v6_fixed_grid.cuh"

template <typename T>
__device__ __forceinline__ bool
is_contiguous(const reduce_rows<T> &x)
{
    return x.reduced.ndim == 0 || (x.reduced.ndim == 1 && x.reduced.strides[0] == 1);
}

template <typename Op>
__global__ void
reduce_v8_packs(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    using T = typename Op::T;
    constexpr int SIZE = pack<T>::SIZE;
    GPO_SHARED(typename Op::Acc, slots, [BLOCK / WARP]);
    const int64_t row = x.first_row + blockIdx.y;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;

    typename Op::Acc v = Op::identity();
    if (is_contiguous(x)) {
        const T *p = x.x + offset_of(x.kept, row);
        const int64_t head = elements_to_boundary(p, x.cols);
        const int64_t packs = (x.cols - head) / SIZE;
        const int64_t tail = head + packs * SIZE;
        for (int64_t i = first; i < packs; i += step) {
            const int64_t k = head + i * SIZE;
            const pack<T> loaded = load_pack(p + k);
            v = Op::combine(v, combine_pack<Op, SIZE>(op, loaded.v, k));
        }
        if (first < head) {
            v = Op::combine(v, op.lift(p[first], first));
        }
        if (first < x.cols - tail) {
            v = Op::combine(v, op.lift(p[tail + first], tail + first));
        }
    }
    else {
        v = combine_strided(op, x, row);
    }
    v = block_combine<Op, BLOCK>(v, slots);
    if (threadIdx.x == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(v);
    }
}

struct reduce_v8_launcher {
    template <typename Op>
    static gpo_status launch(gpo_call *call, dim3 grid, const Op &op,
                             const reduce_rows<typename Op::T> &x,
                             typename Op::Part *part)
    {
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v8_packs<Op>), op, x, part);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return reduce_in_chunks(call, op, fixed_grid(call), launch<Op>);
    }
};

template <typename T>
gpo_status
reduce_v8(gpo_call *call)
{
    return reduce_with<reduce_v8_launcher, T>(call);
}

#endif
