/*
 * sorted_rows.cu  Rows of 16-bit floats that are known to be sorted by destination.
 * The first row of a destination, which differs from the row before it, adds those after
 * it in registers and sends one sum by compare-and-swap, so that it is rounded once: no sums in
 * memory, no sort.
 * Another index than a sorted one has more such rows, and the sums are right all the same.
 * Cost:  reads the source and, for each pack of a row, two entries of the index; one
 *        atomic for each pack of a destination.
 */
#include "../../../device/words.cuh"
#include "../frame.cuh"

static constexpr int SORTED_AT_ONCE = 4; /* rows of a destination in flight */

/* base[at..at + V) += sum, rounded once. */
template <typename T, int V>
static __device__ __forceinline__ void
add_rounded_once(T *base, int64_t at, const acc_of<T> (&sum)[V])
{
    using Word = std::conditional_t<V == 2, unsigned, unsigned short>;
    static_assert(V <= 2, "a word of compare-and-swap");
    Word *const word = reinterpret_cast<Word *>(base + at);
    Word seen = load_word(word), before;
    do {
        before = seen;
        values<T, V> v;
        memcpy(&v, &before, sizeof v);
#pragma unroll
        for (int e = 0; e < V; e++) {
            v.v[e] = sum_stored(v.v[e], sum[e]);
        }
        Word after;
        memcpy(&after, &v, sizeof after);
        seen = atomicCAS(word, before, after);
    } while (seen != before);
}

/* n: packs of V elements, `across` of them in a row. */
template <typename T, int V>
__global__ void
__launch_bounds__(BLOCK)
    index_add_sorted_rows_kernel(index_add_view<T> a, divider across, int n)
{
    using Acc = acc_of<T>;
    const unsigned place = blockIdx.x * BLOCK + threadIdx.x;
    if (place >= static_cast<unsigned>(n)) {
        return;
    }
    const int i = static_cast<int>(place), count = static_cast<int>(a.count);
    const int s = across.narrow(i);
    const int64_t c = static_cast<int64_t>(i - s * static_cast<int>(across.by)) * V;
    const int64_t entry = entry_of(a.index, s);
    if (s > 0 && entry_of(a.index, s - 1) == entry) {
        return;
    }
    const T *const from = a.source + c * a.by_inner;
    Acc sum[V];
    const auto first = *reinterpret_cast<const values<T, V> *>(from + s * a.by_row);
#pragma unroll
    for (int e = 0; e < V; e++) {
        sum[e] = scaled(first.v[e], a.alpha);
    }
    int more = SORTED_AT_ONCE; /* of the rows from r on that go there */
    for (int r = s + 1; r < count && more == SORTED_AT_ONCE; r += SORTED_AT_ONCE) {
        bool is_next[SORTED_AT_ONCE];
        values<T, V> v[SORTED_AT_ONCE] = {};
#pragma unroll
        for (int j = 0; j < SORTED_AT_ONCE; j++) {
            is_next[j] = r + j < count && entry_of(a.index, r + j) == entry;
        }
        more = 0;
#pragma unroll
        for (int j = 0; j < SORTED_AT_ONCE; j++) {
            if (more == j && is_next[j]) {
                v[j] =
                    *reinterpret_cast<const values<T, V> *>(from + (r + j) * a.by_row);
                more++;
            }
        }
#pragma unroll
        for (int j = 0; j < SORTED_AT_ONCE; j++) {
#pragma unroll
            for (int e = 0; e < V; e++) {
                sum[e] += j < more ? scaled(v[j].v[e], a.alpha) : Acc{};
            }
        }
    }
    const int64_t k = place_of_entry(a.index, entry, s);
    if (k >= 0) {
        add_rounded_once<T, V>(a.out, k * a.inner + c, sum);
    }
}

struct index_add_runs_of_rows : index_add_atomics {
    template <typename T, int V>
    static gpo_status launch(gpo_call *call, const index_add_view<T> &a)
    {
        const int64_t n = a.count * (a.inner / V); /* below 2^31 */
        return GPO_LAUNCH(call, grid_for(n), BLOCK, 0,
                          (index_add_sorted_rows_kernel<T, V>), a,
                          divider_of(a.inner / V), static_cast<int>(n));
    }

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        return index_add_is_paired(a) ? launch<T, 2>(call, a) : launch<T, 1>(call, a);
    }
};

template <typename T>
gpo_status
index_add_sorted_rows(gpo_call *call)
{
    return index_add_with<index_add_runs_of_rows, T>(call);
}

template gpo_status index_add_sorted_rows<f16>(gpo_call *call);
template gpo_status index_add_sorted_rows<bf16>(gpo_call *call);
