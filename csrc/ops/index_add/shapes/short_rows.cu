/*
 * short_rows.cu  Rows of at most 16 elements, where nearby rows share a destination.
 * Lanes of a warp with the same destination find each other by __match_any_sync, and
 * the lowest one sends their sum: one atomic instead of several to one address.
 * Cost:  reads the source and, for each element, the index; a match per element, and a
 *        shuffle for each bit of the number of lanes that share a destination.
 */
#include "../frame.cuh"

template <typename T>
__global__ void
__launch_bounds__(BLOCK) index_add_short_rows_kernel(index_add_view<T> a)
{
    using Acc = acc_of<T>;
    const int64_t n = a.outer * a.count * a.inner;
    const int64_t size = a.outer * a.length * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * BLOCK; begin < n;
         begin += step) { /* whole warps: the shuffles below need every lane */
        const int64_t i = begin + threadIdx.x;
        unsigned long long to = NONE_BAD;
        Acc sum = 0;
        if (i < n) {
            const int64_t row = a.inners.of(i), o = a.counts.of(row);
            const int64_t s = row - o * a.count, c = i - row * a.inner;
            const int64_t entry = entry_of(a.index, s);
            sum = scaled(a.source[o * a.by_outer + s * a.by_row + c * a.by_inner],
                         a.alpha);
            wait_for_before();
            const int64_t k = place_of_entry(a.index, entry, s);
            to =
                k < 0
                    ? NONE_BAD
                    : static_cast<unsigned long long>((o * a.length + k) * a.inner + c);
        }
        const bool leads = add_up_key(to, &sum);
        if (leads && to != NONE_BAD) {
            values<T, 1> one;
            one.v[0] = stored_as<T>(sum);
            atomic_add_values<T, 1>(a.out, static_cast<int64_t>(to), size, one);
        }
    }
}

struct index_add_matched : index_add_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        return GPO_FOLLOW(call, a.follows, grid_for(a.outer * a.count * a.inner), BLOCK,
                          0, (index_add_short_rows_kernel<T>), a);
    }
};

template <typename T>
gpo_status
index_add_short_rows(gpo_call *call)
{
    return index_add_with<index_add_matched, T>(call);
}

template gpo_status index_add_short_rows<uint32_t>(gpo_call *call);
template gpo_status index_add_short_rows<uint64_t>(gpo_call *call);
template gpo_status index_add_short_rows<f16>(gpo_call *call);
template gpo_status index_add_short_rows<bf16>(gpo_call *call);
template gpo_status index_add_short_rows<float>(gpo_call *call);
template gpo_status index_add_short_rows<double>(gpo_call *call);
