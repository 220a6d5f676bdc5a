/*
 * v1  Vector atomics.
 * Was:   v0 adds 2 to 8 bytes per atomic.
 * Now:   a thread takes 16 bytes of a row.  On sm_90 one atomic adds four floats or
 *        eight 16-bit floats; older GPUs add floats one by one and 16-bit floats in
 *        pairs.  Where rows do not split into such packs, a thread takes one element; a
 *        16-bit float is added through the aligned pair that holds it.  Each thread has
 *        four packs in flight and divides by multiplying with constants from the host.
 * Cost:  as v0 with up to a quarter of the atomic instructions.
 * Left:  atomics to the same destination are serialized in L2 -> v2.
 */
#ifndef GPO_INDEX_ADD_V1_VECTOR_CUH
#define GPO_INDEX_ADD_V1_VECTOR_CUH

#include "../frame.cuh"

constexpr int PACKS_IN_FLIGHT = 4; /* of a thread */

template <typename T, int V>
__global__ void
__launch_bounds__(BLOCK, 4) index_add_v1_vector(index_add_view<T> a, divider across)
{
    const int64_t n = a.outer * a.count * across.by;
    const int64_t size = a.outer * a.length * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK * PACKS_IN_FLIGHT);
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * (BLOCK * PACKS_IN_FLIGHT);
         begin < n; begin += step) {
        values<T, V> v[PACKS_IN_FLIGHT];
        int64_t to[PACKS_IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < PACKS_IN_FLIGHT; j++) {
            const int64_t i = begin + j * BLOCK + threadIdx.x;
            to[j] = -1;
            if (i < n) {
                const int64_t row = across.of(i), o = a.counts.of(row);
                const int64_t s = row - o * a.count, c = (i - row * across.by) * V;
                const int64_t k = position_of(a.index, s);
                v[j] = load_scaled<T, V>(
                    a.source + o * a.by_outer + s * a.by_row + c * a.by_inner, a.alpha);
                to[j] = k < 0 ? -1 : (o * a.length + k) * a.inner + c;
            }
        }
#pragma unroll
        for (int j = 0; j < PACKS_IN_FLIGHT; j++) {
            if (to[j] >= 0) {
                atomic_add_values<T, V>(a.out, to[j], size, v[j]);
            }
        }
    }
}

struct index_add_v1 : index_add_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        constexpr int V = pack<T>::SIZE;
        const int64_t n = a.outer * a.count * a.inner;
        return is_packed(a)
                   ? GPO_LAUNCH(call, grid_for(ceil_div(n / V, PACKS_IN_FLIGHT)), BLOCK,
                                0, (index_add_v1_vector<T, V>), a,
                                divider_of(a.inner / V))
                   : GPO_LAUNCH(call, grid_for(ceil_div(n, PACKS_IN_FLIGHT)), BLOCK, 0,
                                (index_add_v1_vector<T, 1>), a, a.inners);
    }
};

#endif
