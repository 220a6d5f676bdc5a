/*
 * sorted_rows.cu  Rows of 16-bit floats that are known to be sorted by destination.
 * The first row of a destination, which differs from the row before it, adds those after
 * it in registers and sends one sum by compare-and-swap, so that it is rounded once: no sums in
 * memory, no sort.  The only row of a destination is sent by an atomic that rounds once, too.
 * A thread takes two elements that share a word of out: compare-and-swap of 16 bits is a loop on
 * that word, and rows of odd length would make neighbours wait for each other.
 * Another index than a sorted one has more such rows, and the sums are right all the same.
 * Rows of one element: sorted_elements.cuh.
 * Cost:  reads the source and, for each pack of a row, two entries of the index; one
 *        atomic for each pack of a destination.
 */
#include "../frame.cuh"
#include "sorted_elements.cuh"

static constexpr int SORTED_AT_ONCE = 4; /* rows of a destination in flight */

/* base[at..at + 2) += sum, a pair of out; of one row that has no factor, as it is. */
template <typename T>
static __device__ __forceinline__ void
add_pair(T *base, int64_t at, const values<T, 2> &first, const acc_of<T> (&sum)[2],
         bool is_alone)
{
    if (is_alone) {
        typename half_pair<T>::type pair;
        pair.x = first.v[0];
        pair.y = first.v[1];
        atomic_add(reinterpret_cast<decltype(pair) *>(base + at), pair);
        return;
    }
    add_rounded_once<T, 2>(base, at, sum, load_halves<T, 2>(base + at));
}

/* base[at] += sum, in an array of n elements. */
template <typename T>
static __device__ __forceinline__ void
add_one(T *base, int64_t at, int64_t n, bool is_there, T first, acc_of<T> sum,
        bool is_alone)
{
    if (is_there && is_alone) {
        fast_atomic_add(base, at, n, first);
    }
    else if (is_there) {
        const acc_of<T> one[1] = {sum};
        add_rounded_once<T, 1>(base, at, one, load_halves<T, 1>(base + at));
    }
}

/*
 * n: threads of two elements, `across` for each row.  PAIRED: rows split into pairs; else a
 * row's pairs begin where those of out do, and its ends are alone.
 */
template <typename T, bool PAIRED>
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
    int64_t c = static_cast<int64_t>(i - s * static_cast<int>(across.by)) * 2;
    const int64_t entry = entry_of(a.index, s);
    if (s > 0 && entry_of(a.index, s - 1) == entry) {
        return;
    }
    /* Whether element k of out is the second of a pair. */
    const auto is_odd = [&](int64_t k) {
        return (reinterpret_cast<uintptr_t>(a.out + k) & 2u) != 0;
    };
    if (!PAIRED && is_odd(entry * a.inner)) {
        c--;
    }
    const bool has_first = PAIRED || (c >= 0 && c < a.inner);
    const bool has_second = PAIRED || c + 1 < a.inner;
    const T *const from = a.source + c * a.by_inner;
    const auto row_at = [&](int r) {
        const T *const at = from + r * a.by_row;
        values<T, 2> v = {};
        if constexpr (PAIRED) {
            v = *reinterpret_cast<const values<T, 2> *>(at);
        }
        else {
            v.v[0] = has_first ? at[0] : T{};
            v.v[1] = has_second ? at[a.by_inner] : T{};
        }
        return v;
    };
    const values<T, 2> first = row_at(s);
    Acc sum[2] = {scaled(first.v[0], a.alpha), scaled(first.v[1], a.alpha)};
    bool is_alone = a.alpha == 1;
    int more = SORTED_AT_ONCE; /* of the rows from r on that go there */
    for (int r = s + 1; r < count && more == SORTED_AT_ONCE; r += SORTED_AT_ONCE) {
        bool is_next[SORTED_AT_ONCE];
        values<T, 2> v[SORTED_AT_ONCE] = {};
#pragma unroll
        for (int j = 0; j < SORTED_AT_ONCE; j++) {
            is_next[j] = r + j < count && entry_of(a.index, r + j) == entry;
        }
        more = 0;
#pragma unroll
        for (int j = 0; j < SORTED_AT_ONCE; j++) {
            if (more == j && is_next[j]) {
                v[j] = row_at(r + j);
                more++;
            }
        }
        is_alone = is_alone && more == 0;
#pragma unroll
        for (int j = 0; j < SORTED_AT_ONCE; j++) {
            sum[0] += j < more ? scaled(v[j].v[0], a.alpha) : Acc{};
            sum[1] += j < more ? scaled(v[j].v[1], a.alpha) : Acc{};
        }
    }
    wait_for_before();
    const int64_t k = place_of_entry(a.index, entry, s);
    if (k < 0 || (!has_first && !has_second)) {
        return;
    }
    const int64_t at = k * a.inner + c;
    if (has_first && has_second && !is_odd(at)) {
        add_pair(a.out, at, first, sum, is_alone);
    }
    else { /* 'wrap' and 'clip', too, may change which elements are pairs */
        const int64_t size = a.length * a.inner;
        add_one(a.out, at, size, has_first, first.v[0], sum[0], is_alone);
        add_one(a.out, at + 1, size, has_second, first.v[1], sum[1], is_alone);
    }
}

struct index_add_runs_of_rows : index_add_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        if (a.inner == 1) {
            return GPO_FOLLOW(call, a.follows, grid_for(a.count), BLOCK, 0,
                              (index_add_sorted_elements_kernel<T>), a,
                              static_cast<int>(a.count));
        }
        const bool paired = index_add_is_paired(a);
        const int64_t across = a.inner / 2 + (paired ? 0 : 1);
        const int64_t n = a.count * across; /* below 2^31 */
        const dim3 grid = grid_for(n);
        return paired ? GPO_FOLLOW(call, a.follows, grid, BLOCK, 0,
                                   (index_add_sorted_rows_kernel<T, true>), a,
                                   divider_of(across), static_cast<int>(n))
                      : GPO_FOLLOW(call, a.follows, grid, BLOCK, 0,
                                   (index_add_sorted_rows_kernel<T, false>), a,
                                   divider_of(across), static_cast<int>(n));
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
