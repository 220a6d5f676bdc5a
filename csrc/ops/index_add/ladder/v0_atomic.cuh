/*
 * v0  One atomic per element.
 * Now:   one thread per element of the source; it finds slice, row and column by 64-bit
 *        division, reads the index and adds.
 * Cost:  reads the source and, for each element, the index; one atomic per element.
 * Left:  every lane issues its own 4-byte atomic -> v1.
 */
#ifndef GPO_INDEX_ADD_V0_ATOMIC_CUH
#define GPO_INDEX_ADD_V0_ATOMIC_CUH

#include "../frame.cuh"

template <typename T>
__global__ void
__launch_bounds__(BLOCK) index_add_v0_atomic(index_add_view<T> a)
{
    const int64_t n = a.outer * a.count * a.inner, slice = a.count * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        const int64_t o = i / slice;
        const int64_t s = (i - o * slice) / a.inner;
        const int64_t c = i - o * slice - s * a.inner;
        const int64_t k = position_of(a.index, s);
        if (k >= 0) {
            const T v = a.source[o * a.by_outer + s * a.by_row + c * a.by_inner];
            atomic_add(a.out + (o * a.length + k) * a.inner + c,
                       stored_as<T>(scaled(v, a.alpha)));
        }
    }
}

struct index_add_v0 : index_add_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        return GPO_LAUNCH(call, grid_for(a.outer * a.count * a.inner), BLOCK, 0,
                          (index_add_v0_atomic<T>), a);
    }
};

#endif
