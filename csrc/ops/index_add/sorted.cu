/*
 * sorted.cu  The source rows of index_add in the order of their destinations.
 */
#include "sorted.cuh"

/* key[s] = the destination of row s; runs[0..length) = {0, 0} unless `runs` is NULL. */
template <typename Payload>
__global__ void
__launch_bounds__(BLOCK)
    index_add_keys(index_reader index, int64_t count, uint32_t *key,
                   const Payload *values_from, int64_t by_row, Payload *payload,
                   index_add_run<Payload> *runs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t s = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; s < count;
         s += step) {
        const int64_t k = position_of(index, s);
        key[s] = static_cast<uint32_t>(k < 0 ? 0 : k); /* the result is dropped then */
        if (values_from != nullptr) {
            payload[s] = values_from[s * by_row];
        }
    }
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         runs != nullptr && k < index.length; k += step) {
        runs[k] = {0, 0};
    }
}

gpo_status
index_add_check_length(gpo_call *call)
{
    const int64_t length = index_add_plan_of(call)->length;
    return length <= INT64_C(1) << 32
               ? GPO_OK
               : gpo_fail(&call->error, GPO_EUNSUPPORTED,
                          "%s sorts by 32-bit positions; the axis has length %lld",
                          call->variant->name, static_cast<long long>(length));
}

template <typename Payload>
gpo_status
index_add_sort(gpo_call *call, const index_reader &index, void *memory,
               const Payload *carried, int64_t by_row, index_add_run<Payload> *runs,
               sort_pairs<Payload> *pairs)
{
    const int64_t count = index_add_plan_of(call)->count;
    const size_t keys = aligned(count * sizeof(uint32_t));
    const size_t payloads = aligned(count * sizeof(Payload));
    char *const key = static_cast<char *>(memory), *const payload = key + 2 * keys;
    pairs->key = reinterpret_cast<uint32_t *>(key);
    pairs->key_space = reinterpret_cast<uint32_t *>(key + keys);
    pairs->payload = reinterpret_cast<Payload *>(payload);
    pairs->payload_space = reinterpret_cast<Payload *>(payload + payloads);
    const gpo_status status =
        GPO_LAUNCH(call, grid_for(count), BLOCK, 0, (index_add_keys<Payload>), index,
                   count, pairs->key, carried, by_row, pairs->payload, runs);
    return status ? status
                  : sort_by_key(call, pairs, count, static_cast<uint64_t>(index.length),
                                carried == nullptr);
}

#define INSTANTIATE(Payload)                                                \
    template gpo_status index_add_sort<Payload>(                            \
        gpo_call *, const index_reader &, void *, const Payload *, int64_t, \
        index_add_run<Payload> *, sort_pairs<Payload> *);
INSTANTIATE(uint32_t)
INSTANTIATE(uint64_t)
