/*
 * sorted_rows.cu  Rows of 16-bit floats that are known to be sorted by destination.
 * The first row of a destination, which differs from the row before it, adds those after
 * it in registers and sends one sum by compare-and-swap, so that it is rounded once: no sums in
 * memory, no sort.  The only row of a destination is sent by an atomic that rounds once, too.
 * A thread takes two elements that share a word of out: compare-and-swap of 16 bits is a loop on
 * that word, and rows of odd length would make neighbours wait for each other.
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
    add_rounded_once<T, 2>(base, at, sum);
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
        add_rounded_once<T, 1>(base, at, one);
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

/*
 * ---- rows of one element ----
 *
 * A kernel of its own, in a quarter of the code, which comes from memory as data does: 34,130
 * into 90,000 bfloat16 in place took 8.4 us on an H100, torch 7.0.
 */

/* What a thread sends to the word that holds elements [at, at + 2) of out. */
template <typename T>
struct half_sums {
    int64_t at;
    acc_of<T> sum[2];  /* -0, which changes nothing, for an element that takes none */
    bool is_alone;     /* each is a row's element */
    values<T, 2> seen; /* what out holds, or held a while ago */
};

/* Adds both, each rounded once, in an array of n elements. */
template <typename T>
static __device__ __forceinline__ void
add_halves(T *base, int64_t n, const half_sums<T> &v)
{
    using Pair = typename half_pair<T>::type;
    if (v.at < 0 || v.at + 1 >= n) { /* the word is not all of the array's */
        const int j = v.at < 0;
        const acc_of<T> one[1] = {v.sum[j]};
        add_rounded_once<T, 1>(base, v.at + j, one);
        return;
    }
    if (v.is_alone) {
        Pair pair;
        pair.x = stored_as<T>(v.sum[0]);
        pair.y = stored_as<T>(v.sum[1]);
        atomic_add(reinterpret_cast<Pair *>(base + v.at), pair);
        return;
    }
    unsigned *const word = reinterpret_cast<unsigned *>(base + v.at);
    unsigned seen, before;
    memcpy(&seen, &v.seen, sizeof seen);
    do {
        before = seen;
        values<T, 2> both;
        memcpy(&both, &before, sizeof both);
        both.v[0] = sum_stored(both.v[0], v.sum[0]);
        both.v[1] = sum_stored(both.v[1], v.sum[1]);
        unsigned after;
        memcpy(&after, &both, sizeof after);
        seen = atomicCAS(word, before, after);
    } while (seen != before);
}

/* The 16 bits at p, which other threads may change. */
template <typename T>
static __device__ __forceinline__ T
load_half(const T *p)
{
    const unsigned short bits = load_word(reinterpret_cast<const unsigned short *>(p));
    T v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/*
 * Where the next run of a warp has the other element of a word, the first sends both:
 * compare-and-swaps of one word would wait for each other.
 */
template <typename T>
__global__ void
__launch_bounds__(BLOCK) index_add_sorted_elements_kernel(index_add_view<T> a, int n)
{
    using Acc = acc_of<T>;
    const int i = static_cast<int>(blockIdx.x * BLOCK + threadIdx.x);
    const unsigned lane = threadIdx.x % WARP;
    int64_t entry = i < n ? entry_of(a.index, i) : -1;
    const bool leads = i < n && (i == 0 || entry_of(a.index, i - 1) != entry);
    const bool is_odd = (reinterpret_cast<uintptr_t>(a.out + entry) & 2u) != 0;
    half_sums<T> mine = {entry - is_odd, {Acc{-0.0f}, Acc{-0.0f}}, a.alpha == 1, {}};
    Acc sum = {};
    if (leads) {
        sum = scaled(a.source[i * a.by_row], a.alpha);
        if (mine.at >= 0 && mine.at + 1 < a.length) { /* out is x, or will be */
            mine.seen.v[0] = load_half(a.base + mine.at);
            mine.seen.v[1] = load_half(a.base + mine.at + 1);
        }
#pragma unroll 1
        for (int r = i + 1; r < n && entry_of(a.index, r) == entry; r++) {
            sum += scaled(a.source[r * a.by_row], a.alpha);
            mine.is_alone = false;
        }
    }
    wait_for_before();
    const int64_t k = leads ? place_of_entry(a.index, entry, i) : -1;
    if (k != entry) { /* it counts from the end, or is clipped */
        mine.at = k - ((reinterpret_cast<uintptr_t>(a.out + k) & 2u) != 0);
    }
    const bool sends = k >= 0, is_second = k != mine.at;
    mine.sum[is_second ? 1 : 0] = sum;
    const unsigned senders = __ballot_sync(ALL_LANES, sends);
    const unsigned after = senders >> lane >> 1, before = senders & ((1u << lane) - 1);
    const int next = after != 0
                         ? static_cast<int>(lane) + __ffs(static_cast<int>(after))
                         : static_cast<int>(lane);
    const int last = before != 0 ? WARP - 1 - __clz(static_cast<int>(before)) : 0;
    const int64_t to_next = shuffle_from(k, next), to_last = shuffle_from(k, last);
    const Acc sum_next = shuffle_from(sum, next);
    const bool next_is_alone = __shfl_sync(ALL_LANES, mine.is_alone, next) != 0;
    if (!is_second && after != 0 && to_next == k + 1) {
        mine.sum[1] = sum_next;
        mine.is_alone = mine.is_alone && next_is_alone;
    }
    if (sends && !(is_second && before != 0 && to_last == k - 1)) {
        add_halves(a.out, a.length, mine);
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
