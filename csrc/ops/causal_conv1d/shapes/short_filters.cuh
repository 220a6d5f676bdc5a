/*
 * short_filters.cuh  Code shared by the kernels of short filters: SiLU and its slope,
 * chunks of neighbouring elements, rows of packs over the lanes of a warp, and the
 * launchers that cuda.cu puts into its tables.
 * Order: SiLU, chunks, packs of a row, lanes, products of a pack, parts, launchers.
 */
#ifndef GPO_CAUSAL_CONV1D_SHORT_FILTERS_CUH
#define GPO_CAUSAL_CONV1D_SHORT_FILTERS_CUH

#include "../../../device/block.cuh"
#include "../../../device/divide.cuh"
#include "../../../device/smooth.cuh"
#include "../segments.cuh"
#include "../states.cuh"

/* ---- SiLU ---- */

/*
 * 1 / (1 + exp(-v)), to a few units of the last place and |v| u.  exp(-|v|) is a power
 * of two of a product in two parts, which is not above 1, so the quotient is safe.
 */
__device__ __forceinline__ float
silu_share(float v)
{
    constexpr float REST = 1.92596303e-8F;
    const float a = -fabsf(v);
    const float e = exp2f(__fmaf_rn(a, LOG2_E, a * REST));
    return __fdividef(v < 0 ? e : 1.0F, 1.0F + e);
}

__device__ __forceinline__ double
silu_share(double v)
{
    const double e = exp(v < 0 ? v : -v);
    return (v < 0 ? e : 1.0) / (1.0 + e);
}

template <typename T, typename V>
__device__ __forceinline__ V
share_for(V v)
{
    if constexpr (sizeof(T) == 2) {
        return short_sigmoid(v);
    }
    else {
        return silu_share(v);
    }
}

/* v / (1 + exp(-v)) for a result of type T. */
template <typename T, typename V>
__device__ __forceinline__ V
silu(V v)
{
    return v * share_for<T>(v);
}

template <typename T, typename V>
__device__ __forceinline__ V
silu_slope(V v)
{
    const V share = share_for<T>(v);
    return share * (1 + v * (1 - share));
}

/* ---- chunks: W neighbouring elements in one access ---- */

template <int BYTES>
struct chunk_bits;
template <>
struct chunk_bits<16> {
    using type = uint4;
};
template <>
struct chunk_bits<8> {
    using type = uint2;
};
template <>
struct chunk_bits<4> {
    using type = unsigned;
};
template <>
struct chunk_bits<2> {
    using type = unsigned short;
};

/*
 * The bits of a chunk.  What is loaded ahead stays in this form: elements of 16 bits that
 * are loaded under a condition would be moved, and waited for, one by one.
 */
template <typename T, int W>
using chunk = typename chunk_bits<W * sizeof(T)>::type;

template <int W, typename T>
__device__ __forceinline__ chunk<T, W>
load_chunk(const T *p)
{
    return *reinterpret_cast<const chunk<T, W> *>(p);
}

template <typename T, int W>
__device__ __forceinline__ void
values_of_chunk(value_type<T> (&to)[W], const chunk<T, W> &bits)
{
    T elements[W];
    memcpy(static_cast<void *>(elements), &bits, sizeof(bits));
#pragma unroll
    for (int i = 0; i < W; i++) {
        to[i] = value_of(elements[i]);
    }
}

template <typename T, int W>
__device__ __forceinline__ chunk<T, W>
chunk_of_values(const value_type<T> (&from)[W])
{
    T elements[W];
#pragma unroll
    for (int i = 0; i < W; i++) {
        elements[i] = stored_as<T>(from[i]);
    }
    chunk<T, W> bits;
    memcpy(static_cast<void *>(&bits), static_cast<const void *>(elements),
           sizeof(bits));
    return bits;
}

/* The widest chunk of which N elements are a whole number. */
template <typename T, int N>
constexpr int CHUNK_OF = (N & -N) * sizeof(T) <= 16 ? (N & -N) : pack<T>::SIZE;

/* N neighbouring elements, as chunks. */
template <typename T, int N>
struct chunked {
    static constexpr int W = CHUNK_OF<T, N>;
    chunk<T, W> bits[N / W];

    __device__ __forceinline__ void load(const T *p)
    {
#pragma unroll
        for (int k = 0; k < N / W; k++) {
            bits[k] = load_chunk<W>(p + k * W);
        }
    }

    __device__ __forceinline__ void store(T *p) const
    {
#pragma unroll
        for (int k = 0; k < N / W; k++) {
            *reinterpret_cast<chunk<T, W> *>(p + k * W) = bits[k];
        }
    }

    /* The last element first. */
    __device__ __forceinline__ void put_turned(T *to) const
    {
        T elements[N];
        memcpy(static_cast<void *>(elements), bits, sizeof(bits));
#pragma unroll
        for (int i = 0; i < N; i++) {
            to[i] = elements[N - 1 - i];
        }
    }

    __device__ __forceinline__ void set_turned(const T *from)
    {
        T elements[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            elements[i] = from[N - 1 - i];
        }
        memcpy(static_cast<void *>(bits), static_cast<const void *>(elements),
               sizeof(bits));
    }
};

/* Whether N neighbouring elements of each row are whole chunks. */
template <int N, typename T>
bool
has_chunked_steps(const row_view<T> &rows)
{
    constexpr int W = CHUNK_OF<std::remove_const_t<T>, N>;
    return N == 1 || (rows.t == 1 && rows.b % W == 0 && rows.c % W == 0 &&
                      reinterpret_cast<uintptr_t>(rows.p) % (W * sizeof(T)) == 0);
}

/* ---- packs of a row ---- */

/*
 * A row whose packs begin at steps that are SIZE apart.  `wholes`: a pack at a step below
 * it is 16 bytes of memory inside the row; other packs are moved element by element.
 */
template <typename T>
struct pack_row {
    T *p;
    int64_t t;
    int steps;
    unsigned wholes;
    static constexpr int SIZE = 16 / sizeof(T);

    __device__ __forceinline__ bool whole(int u) const
    {
        return static_cast<unsigned>(u) < wholes;
    }

    __device__ __forceinline__ bool partial(int u) const
    {
        return u + SIZE > 0 && u < steps && !whole(u);
    }
};

/* Elements from the 16-byte boundary before p to p, for a row whose packs are aligned. */
template <typename T>
__device__ __forceinline__ int
elements_past_boundary(const T *p, int64_t stride)
{
    const unsigned past = static_cast<unsigned>(reinterpret_cast<uintptr_t>(p) & 15u);
    return stride == 1 ? static_cast<int>(past / sizeof(T)) : 0;
}

/* The row from p on; its packs begin `past` elements before it. */
template <typename T>
__device__ __forceinline__ pack_row<T>
row_of_packs(T *p, int64_t stride, int steps, int past)
{
    const bool wide =
        stride == 1 && reinterpret_cast<uintptr_t>(p) % 16 == past * sizeof(T);
    const int wholes = wide ? steps - pack_row<T>::SIZE + 1 : 0;
    return {p, stride, steps, static_cast<unsigned>(wholes > 0 ? wholes : 0)};
}

/* The pack at step u if it is whole, else zeros. */
template <typename T>
__device__ __forceinline__ uint4
whole_pack(const pack_row<const T> &row, int u)
{
    return row.whole(u) ? load_streamed(reinterpret_cast<const uint4 *>(row.p + u))
                        : uint4{0, 0, 0, 0};
}

/* Fills in the steps of a pack that is partly inside the row, or not in one piece. */
template <typename T>
__device__ __forceinline__ void
fill_pack(uint4 *to, const pack_row<const T> &row, int u)
{
    if (row.partial(u)) {
        pack<T> got = pack_of<T>(*to);
#pragma unroll
        for (int i = 0; i < pack<T>::SIZE; i++) {
            if (u + i >= 0 && u + i < row.steps) {
                got.v[i] = row.p[(u + i) * row.t];
            }
        }
        memcpy(static_cast<void *>(to), static_cast<const void *>(got.v), 16);
    }
}

template <typename T>
__device__ __forceinline__ void
store_pack(const pack_row<T> &row, int u, const uint4 &from)
{
    if (row.whole(u)) {
        *reinterpret_cast<uint4 *>(row.p + u) = from;
    }
    else if (row.partial(u)) {
        const pack<T> put = pack_of<T>(from);
#pragma unroll
        for (int i = 0; i < pack<T>::SIZE; i++) {
            if (u + i >= 0 && u + i < row.steps) {
                row.p[(u + i) * row.t] = put.v[i];
            }
        }
    }
}

/* ---- lanes ---- */

/*
 * Packs of rows over the lanes of a warp: 1 << shift lanes have a row each, an item is
 * one pack of each lane.  Rows of several items have all 32 lanes.
 */
struct lane_group {
    int lane, place; /* in the warp, in the row */
    bool all;        /* the warp has one row */

    __device__ __forceinline__ lane_group(int shift)
        : lane(threadIdx.x % WARP), place(lane & ((1 << shift) - 1)), all(shift == 5)
    {
    }
};

/*
 * Words FIRST to 3 of the pack `d` lanes before; it is in `before`, the pack of the item
 * before, where there is no such lane.  Zeros before the row.
 */
template <int FIRST>
__device__ __forceinline__ uint4
pack_before(const uint4 &own, const uint4 &before, int d, lane_group at)
{
    const unsigned mine[4] = {own.x, own.y, own.z, own.w};
    const unsigned old[4] = {before.x, before.y, before.z, before.w};
    const bool there = at.all || at.place >= d;
    unsigned got[4] = {0, 0, 0, 0};
#pragma unroll
    for (int k = FIRST; k < 4; k++) {
        const unsigned give = at.lane >= WARP - d ? old[k] : mine[k];
        const unsigned taken = __shfl_sync(ALL_LANES, give, (at.lane - d) & (WARP - 1));
        got[k] = there ? taken : 0;
    }
    return {got[0], got[1], got[2], got[3]};
}

/* The LAGS - 1 values before a lane's pack, and those of the pack. */
template <int LAGS, typename T>
__device__ __forceinline__ void
values_of_lane(value_type<T> (&value)[LAGS - 1 + pack<T>::SIZE], const uint4 &own,
               const uint4 &before, lane_group at)
{
    constexpr int SIZE = pack<T>::SIZE, HALO = (LAGS - 2 + SIZE) / SIZE;
    constexpr int FAR = (HALO * SIZE - (LAGS - 1)) * static_cast<int>(sizeof(T)) / 4;
    const pack<T> mine = pack_of<T>(own);
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        value[LAGS - 1 + i] = value_of(mine.v[i]);
    }
#pragma unroll
    for (int d = 1; d <= HALO; d++) {
        const pack<T> got = pack_of<T>(d < HALO ? pack_before<0>(own, before, d, at)
                                                : pack_before<FAR>(own, before, d, at));
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            if (LAGS - 1 + i >= d * SIZE) {
                value[LAGS - 1 + i - d * SIZE] = value_of(got.v[i]);
            }
        }
    }
}

/* ---- which products of a pack there are ---- */

/* All: steps LAGS before the pack and after it are in its row, and of one segment. */
struct in_the_middle {
    static __device__ __forceinline__ bool is_step(int)
    {
        return true;
    }

    static __device__ __forceinline__ bool has_back(int, int)
    {
        return true;
    }

    static __device__ __forceinline__ bool has_ahead(int, int)
    {
        return true;
    }

    /* Completes the LAGS - 1 values before a pack, and those of the pack. */
    template <typename Values>
    static __device__ __forceinline__ void add_earlier(Values &)
    {
    }
};

/* All forward at the start of a row: the steps before 0 are those of a state. */
template <typename T>
struct behind_a_state : in_the_middle {
    const T *state; /* step 0, if the steps before it were before it in memory */
    int64_t t;
    int lags, u; /* u: the first step of the pack */

    template <typename V, int N>
    __device__ __forceinline__ void add_earlier(V (&value)[N]) const
    {
        constexpr int BEFORE = N - pack<T>::SIZE; /* values before the pack */
#pragma unroll
        for (int i = 0; i < N; i++) {
            const int step = u - BEFORE + i;
            if (step < 0 && step > -lags) {
                value[i] = value_of(state[step * t]);
            }
        }
    }
};

/* Those of the row: `before` steps before the pack, `after` from its first step on. */
struct at_an_edge {
    int before, after;

    /* Whether step i of the pack is one of the row. */
    __device__ __forceinline__ bool is_step(int i) const
    {
        return i >= -before && i < after;
    }

    /* Whether step i and the step s before it are; the latter, for a step of the row. */
    __device__ __forceinline__ bool has_back(int i, int s) const
    {
        return s <= before + i;
    }

    /* Whether the step s after step i is. */
    __device__ __forceinline__ bool has_ahead(int i, int s) const
    {
        return i + s < after;
    }

    template <typename Values>
    __device__ __forceinline__ void add_earlier(Values &) const
    {
    }
};

/*
 * Those of one segment, given where segments begin: bit k of `marks` is step k - (LAGS - 1)
 * of the pack, bit k of `later` step k.  The row's first step and those after its last
 * one are begins.
 */
template <int LAGS>
struct in_a_segment {
    at_an_edge row;
    unsigned marks, later;

    __device__ __forceinline__ bool is_step(int i) const
    {
        return row.is_step(i);
    }

    __device__ __forceinline__ bool has_back(int i, int s) const
    {
        return s == 0 || (marks & (((1u << s) - 1) << (LAGS + i - s))) == 0;
    }

    __device__ __forceinline__ bool has_ahead(int i, int s) const
    {
        return s == 0 || (later & (((1u << s) - 1) << (i + 1))) == 0;
    }

    template <typename Values>
    __device__ __forceinline__ void add_earlier(Values &) const
    {
    }
};

/* The bits of `marks` between two steps of which one may be the other's earlier one. */
template <int LAGS, typename T>
constexpr unsigned SEEN = ((1u << (LAGS - 2 + pack<T>::SIZE)) - 1) << 1;

/* sum[i] += the products of lags with the values up to step i, of those there are. */
template <int LAGS, int SIZE, typename V, typename Where>
__device__ __forceinline__ void
add_lags(V (&sum)[SIZE], const V (&tap)[LAGS], const V (&value)[LAGS - 1 + SIZE],
         int lags, const Where &where)
{
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        if (s < lags) {
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                if (where.has_back(i, s)) {
                    sum[i] += tap[s] * value[LAGS - 1 + i - s];
                }
            }
        }
    }
}

/* The taps of a channel, lag 0 first. */
template <int LAGS, typename T>
__device__ __forceinline__ void
load_taps(value_type<T> (&tap)[LAGS], const conv_view<T> &v, int64_t c)
{
    const T *const w = v.w + c * v.w_c;
    const int lags = static_cast<int>(v.lags);
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        tap[s] = s < lags ? value_of(w[s * v.w_s]) : value_type<T>(0);
    }
}

/* Packs of a row of results, one more where a row may begin between two boundaries. */
template <typename T>
int64_t
packs_of_row(const row_view<T> &out, int64_t steps)
{
    constexpr int64_t SIZE = pack<T>::SIZE;
    const bool even = reinterpret_cast<uintptr_t>(out.p) % 16 == 0 &&
                      out.b % SIZE == 0 && out.c % SIZE == 0;
    return ceil_div(steps + (out.t == 1 && !even ? SIZE - 1 : 0), SIZE);
}

/* log2 of the lanes of a row. */
inline int
lanes_of_row(int64_t packs)
{
    int shift = 0;
    while (shift < 5 && int64_t{1} << shift < packs) {
        shift++;
    }
    return shift;
}

/* ---- parts of dw and dbias ---- */

/* Writes a part of dw or, at s == lags, of dbias: the result if there is one part. */
template <typename T, typename V>
__device__ __forceinline__ void
put_short_part(const lag_view<T> &to, int64_t parts, int64_t part, int64_t c, int64_t s,
               V sum)
{
    if (parts > 1) {
        to.parts[(part * (to.lags + 1) + s) * to.channels + c] = sum;
    }
    else if (s < to.lags) {
        to.put(c, s, sum);
    }
    else if (to.dbias) {
        to.dbias[c] = stored_as<T>(sum);
    }
}

/* Sum s of W neighbouring channels: a part, or the result if there is one part. */
template <int W, typename T, typename V>
__device__ __forceinline__ void
put_chunk_sums(const lag_view<T> &to, int64_t parts, int64_t part, int64_t c, int s,
               const V (&sum)[W])
{
    if (parts > 1) {
        V *const first = to.parts + (part * (to.lags + 1) + s) * to.channels + c;
        *reinterpret_cast<chunk<V, W> *>(first) = chunk_of_values<V>(sum);
    }
    else {
#pragma unroll
        for (int i = 0; i < W; i++) {
            put_short_part(to, 1, 0, c + i, s, sum[i]);
        }
    }
}

/* Memory for the sums of `parts` parts, if there is more than one. */
template <typename T>
gpo_status
make_short_parts(gpo_call *call, int64_t parts, lag_view<T> *to)
{
    void *memory = nullptr;
    gpo_status status = GPO_OK;
    if (parts > 1) {
        const int64_t bytes = to->channels * (to->lags + 1) * sizeof(value_type<T>);
        status = gpo_scratch(call, parts * bytes, &memory);
    }
    to->parts = static_cast<value_type<T> *>(memory);
    return status;
}

/* ---- launchers ---- */

/* The kernels are compiled for filters of up to 4, 8 and SHORT taps, and each of these. */
enum short_rows { PLAIN, CUT /* into segments */, BEHIND /* a state, forward */ };

#define GPO_BY_LAGS(lags, rows, launch) \
    ((lags) <= 4 ? launch(4, rows) : (lags) <= 8 ? launch(8, rows) : launch(16, rows))
#define GPO_BY_LAGS_AND_CUT(lags, cut, launch) \
    ((cut) ? GPO_BY_LAGS(lags, CUT, launch) : GPO_BY_LAGS(lags, PLAIN, launch))
static_assert(SHORT == 16, "GPO_BY_LAGS");

constexpr int FEW_OUTPUT_LAGS = 8; /* of few_outputs, at most */

template <typename T>
gpo_status conv_few_outputs(gpo_call *call, const conv_view<T> &v);
template <typename T>
gpo_status conv_short_filters(gpo_call *call, const conv_view<T> &v);
template <typename T>
gpo_status conv_short_filters_channels_last(gpo_call *call, const conv_view<T> &v);
template <typename T>
gpo_status conv_short_filters_chunks(gpo_call *call, const conv_view<T> &v);

/* All gradients; `v` is the forward pass with dx as its result, g of `lags` is dy. */
template <typename T>
gpo_status gradients_short_filters(gpo_call *call, const conv_view<T> &v,
                                   const lag_view<T> &lags);
template <typename T>
gpo_status gradients_short_filters_channels_last(gpo_call *call, const conv_view<T> &v,
                                                 const lag_view<T> &lags);

/*
 * dw and dbias from parts[group][s][c], s up to lags, of which the last is the sum of g, and
 * the zeros of dw for taps beyond the row's length.
 */
template <typename T>
gpo_status add_short_parts(gpo_call *call, const lag_view<T> &v, int64_t groups);

#endif
