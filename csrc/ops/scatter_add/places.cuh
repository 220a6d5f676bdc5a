/*
 * places.cuh  The sort of v4: the places of all elements, with the elements' positions.
 */
#ifndef GPO_SCATTER_ADD_PLACES_CUH
#define GPO_SCATTER_ADD_PLACES_CUH

#include "../../device/sort.cuh"
#include "copies.cuh"

/* key[i] = the place of element i; an index out of bounds sorts after all places. */
template <typename Input>
__global__ void
scatter_add_v4_places(Input x, uint32_t *key)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < x.n;
         i += step) {
        const int64_t at = x.place(x.raw(i), i);
        key[i] = static_cast<uint32_t>(at >= 0 ? at : x.size);
    }
}

/* The index alone, so that the kernel does not depend on the type of the values. */
template <typename Input>
scatter_add_input<uint8_t, typename Input::I>
index_of(const Input &x)
{
    scatter_add_input<uint8_t, typename Input::I> index = {};
    index.index = x.index;
    index.index_stride = x.index_stride;
    index.is_wide = x.is_wide;
    index.n = x.n;
    index.size = x.size;
    index.mode = x.mode;
    index.is_unsigned = x.is_unsigned;
    index.bad = x.bad;
    return index;
}

/* The values alone, so that the kernel does not depend on the type of the index. */
template <typename Input>
scatter_add_input<typename Input::T, int64_t>
values_of(const Input &x)
{
    scatter_add_input<typename Input::T, int64_t> values = {};
    values.values = x.values;
    values.values_stride = x.values_stride;
    values.n = x.n;
    values.size = x.size;
    values.truth = x.truth;
    values.sign = x.sign;
    return values;
}

/* Key: the place; payload: the position.  Equal places stay in order. */
template <typename Index>
gpo_status
sort_places(gpo_call *call, const Index &index, sort_pairs<uint32_t> *pairs)
{
    const size_t bytes = static_cast<size_t>(index.n) * sizeof(uint32_t);
    uint32_t **const words[] = {&pairs->key, &pairs->key_space, &pairs->payload,
                                &pairs->payload_space};
    gpo_status status = GPO_OK;
    for (int k = 0; k < 4 && !status; k++) {
        void *memory = nullptr;
        status = gpo_scratch(call, bytes, &memory);
        *words[k] = static_cast<uint32_t *>(memory);
    }
    if (!status) {
        const int64_t blocks = clamp(ceil_div(index.n, BLOCK), 0, 1 << 16);
        status = GPO_LAUNCH(call, dim3(static_cast<unsigned>(blocks)), BLOCK, 0,
                            (scatter_add_v4_places<Index>), index, pairs->key);
    }
    return status ? status
                  : sort_by_key(call, pairs, index.n,
                                static_cast<uint64_t>(index.size) + 1, true);
}

#endif
