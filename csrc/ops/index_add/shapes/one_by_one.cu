/*
 * one_by_one.cu  One atomic per element, as v0, but for one slice and with no 64-bit
 * division: small calls wait for the kernel's instructions, which come from memory.
 * 16-bit floats are added through the pair that holds them, where v0's atomic is a loop.
 * Cost:  reads the source and, for each element, the index; one atomic per element.
 */
#include "../frame.cuh"

/* ALONE: rows of one element. */
template <typename T, bool ALONE>
__global__ void
__launch_bounds__(BLOCK) index_add_one_by_one_kernel(index_add_view<T> a, int n)
{
    const unsigned place = blockIdx.x * BLOCK + threadIdx.x;
    if (place >= static_cast<unsigned>(n)) {
        return;
    }
    const int i = static_cast<int>(place);
    const int s = ALONE ? i : a.inners.narrow(i);
    const int64_t c = ALONE ? 0 : i - s * a.inner;
    const int64_t entry = entry_of(a.index, s);
    const T v = a.source[s * a.by_row + c * a.by_inner];
    wait_for_before();
    const int64_t k = place_of_entry(a.index, entry, s);
    if (k >= 0) {
        values<T, 1> one;
        one.v[0] = stored_as<T>(scaled(v, a.alpha));
        atomic_add_values<T, 1>(a.out, ALONE ? k : k * a.inner + c, a.length * a.inner,
                                one);
    }
}

struct index_add_elements : index_add_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        const int64_t n = a.count * a.inner; /* below 2^31 */
        return a.inner == 1 ? GPO_FOLLOW(call, a.follows, grid_for(n), BLOCK, 0,
                                         (index_add_one_by_one_kernel<T, true>), a,
                                         static_cast<int>(n))
                            : GPO_FOLLOW(call, a.follows, grid_for(n), BLOCK, 0,
                                         (index_add_one_by_one_kernel<T, false>), a,
                                         static_cast<int>(n));
    }
};

template <typename T>
gpo_status
index_add_one_by_one(gpo_call *call)
{
    return index_add_with<index_add_elements, T>(call);
}

template gpo_status index_add_one_by_one<uint32_t>(gpo_call *call);
template gpo_status index_add_one_by_one<uint64_t>(gpo_call *call);
template gpo_status index_add_one_by_one<f16>(gpo_call *call);
template gpo_status index_add_one_by_one<bf16>(gpo_call *call);
template gpo_status index_add_one_by_one<float>(gpo_call *call);
template gpo_status index_add_one_by_one<double>(gpo_call *call);
