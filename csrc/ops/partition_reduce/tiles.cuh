/*
 * tiles.cuh  What v3 and short_loops of partition_reduce share: an index split into
 * [high bits][5 lane bits][bits of a 16-byte pack], tiles as a kernel argument, sums of
 * loads and over the reduced bits of packs and lanes.  Kept high bits number tiles;
 * reduced ones are a loop.  short_loops may take some of its lane bits from the high
 * ones, so that neighbouring lanes write neighbouring sums.
 */
#ifndef GPO_PARTITION_REDUCE_TILES_CUH
#define GPO_PARTITION_REDUCE_TILES_CUH

#include "sums.cuh"

constexpr int WARPS = BLOCK / WARP;

/* ---- bits moved to other places ---- */

/* A permutation of bits: each run is moved by one shift. */
struct bit_runs {
    int count;
    int8_t shift[PARTITION_BITS / 2 + 4];  /* to the left; negative to the right */
    uint64_t mask[PARTITION_BITS / 2 + 4]; /* after the shift */
};

/* Bit `from` of the argument becomes bit `to`; called with `from` ascending. */
inline void
push_bit(bit_runs *runs, int from, int to)
{
    const int last = runs->count - 1, shift = to - from;
    if (last < 0 || runs->shift[last] != shift) {
        runs->shift[runs->count] = static_cast<int8_t>(shift);
        runs->mask[runs->count++] = 0;
    }
    runs->mask[runs->count - 1] |= static_cast<uint64_t>(1) << to;
}

__host__ __device__ __forceinline__ int64_t
moved(const bit_runs &runs, int64_t i)
{
    uint64_t out = 0;
    for (int r = 0; r < runs.count; r++) {
        const int s = runs.shift[r];
        const uint64_t u = static_cast<uint64_t>(i);
        out |= (s >= 0 ? u << s : u >> -s) & runs.mask[r];
    }
    return static_cast<int64_t>(out);
}

/* ---- tiles ---- */

struct partition_tiles {
    bool keep_l2;
    int lanes;                    /* that have elements: 32, or fewer for a tiny x */
    int pack_bits;                /* of the index */
    unsigned reduced_packs;       /* reduced bits of a pack */
    unsigned reduced_lanes;       /* and of the lane */
    int64_t lane_at[5];           /* the offset of a lane bit, in elements */
    int8_t lane_to[5];            /* the output bit of a lane bit; -1: reduced */
    int64_t pack_out[8];          /* of element e of a pack */
    bit_runs to_index, to_output; /* of a tile's number */
    int tile_bits, loop_bits;     /* log2 of the tiles, and of a tile's loads */
    int64_t units;                /* warps with work */
    int team, splits;             /* warps and blocks that share a tile */
    uint64_t loop;                /* reduced high bits that the loop counts through */
    int64_t turns, step;          /* of the loop; its step as bits of the index */
    int groups, loads;            /* tiles of a warp; all their loads of a turn */
    int64_t load_at[LOADS];       /* the loads of a turn, as offsets in elements */
    int64_t load_out[LOADS];      /* the output bits of a group */
};

/* The offset of element i of x, in elements: see partition_plan. */
inline int64_t
place_of(const partition_plan &plan, int64_t i)
{
    return (i >> plan.pairs) * plan.stride + (i & plan.pairs);
}

inline int64_t
bit_at(int b)
{
    return static_cast<int64_t>(1) << b;
}

/* log2 of the elements of a 16-byte pack. */
inline int
pack_bits_of(const gpo_call *call)
{
    int bits = 0;
    while (gpo_dtypes[partition_plan_of(call)->dtype].bytes << bits < 16) {
        bits++;
    }
    return bits;
}

/* Whether x is aligned packs of 16 bytes, at least one for each lane of a warp. */
inline bool
is_packed(const gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    return plan.n >= pack_bits_of(call) + 5 && plan.stride == (plan.pairs ? 2 : 1) &&
           reinterpret_cast<uintptr_t>(call->in[0].data) % 16 == 0;
}

/* Bits of an index below the high ones: those of a pack and of a lane. */
inline int
low_bits_of(const gpo_call *call)
{
    const int n = partition_plan_of(call)->n;
    const int bits = (is_packed(call) ? pack_bits_of(call) : 0) + 5;
    return bits < n ? bits : n;
}

/* Whether fewer than LOOP_BITS high bits are reduced, too few for v3's loop. */
inline bool
has_short_loops(const gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    int reduced = 0;
    for (int b = low_bits_of(call); b < plan.n; b++) {
        reduced += plan.to[b] < 0;
    }
    return reduced < LOOP_BITS;
}

/* The bits of an index that number the lanes of a warp: those above a pack. */
struct lane_bits {
    int count;
    int bit[5];
};

inline lane_bits
lanes_of(const gpo_call *call)
{
    const int pack_bits = is_packed(call) ? pack_bits_of(call) : 0;
    lane_bits lanes = {low_bits_of(call) - pack_bits, {}};
    for (int b = 0; b < lanes.count; b++) {
        lanes.bit[b] = pack_bits + b;
    }
    return lanes;
}

inline bool
has_bit(const lane_bits &lanes, int b)
{
    for (int l = 0; l < lanes.count; l++) {
        if (lanes.bit[l] == b) {
            return true;
        }
    }
    return false;
}

/* The tiles, without how the loads of a tile are shared. */
inline partition_tiles
tiles_of(const gpo_call *call, const lane_bits &lanes)
{
    const partition_plan &plan = *partition_plan_of(call);
    const int pack_bits = is_packed(call) ? pack_bits_of(call) : 0;
    partition_tiles t;
    memset(static_cast<void *>(&t), 0, sizeof t);
    t.keep_l2 = bit_at(plan.n) <= KEEP_L2_BYTES / gpo_dtypes[plan.dtype].bytes;
    t.pack_bits = pack_bits;
    for (int b = 0; b < pack_bits; b++) {
        const int64_t e = bit_at(b);
        t.reduced_packs |= plan.to[b] < 0 ? 1u << b : 0;
        for (int64_t k = 0; k < e; k++) {
            t.pack_out[e + k] =
                t.pack_out[k] | (plan.to[b] < 0 ? 0 : bit_at(plan.to[b]));
        }
    }
    t.lanes = 1 << lanes.count;
    for (int b = 0; b < 5; b++) {
        t.lane_to[b] = -1;
        if (b < lanes.count) {
            t.lane_at[b] = place_of(plan, bit_at(lanes.bit[b]));
            t.lane_to[b] = plan.to[lanes.bit[b]];
            t.reduced_lanes |= t.lane_to[b] < 0 ? 1u << b : 0;
        }
    }
    for (int b = pack_bits; b < plan.n; b++) {
        if (has_bit(lanes, b)) {
            continue;
        }
        if (plan.to[b] < 0) {
            t.loop |= static_cast<uint64_t>(bit_at(b));
            t.loop_bits++;
        }
        else {
            push_bit(&t.to_index, t.tile_bits, b);
            push_bit(&t.to_output, t.tile_bits, plan.to[b]);
            t.tile_bits++;
        }
    }
    t.groups = t.loads = t.team = t.splits = 1;
    return t;
}

/* The argument of both kernels. */
template <typename Term>
struct partition_call {
    partition_view<typename Term::T> x;
    typename Term::Out *out;
    part_of<typename Term::Acc> *part; /* splits x outputs */
    unsigned *ticket;                  /* of a tile */
    partition_tiles tiles;
};

template <typename Term>
partition_call<Term>
partition_call_of(const gpo_call *call, const partition_tiles &tiles)
{
    return {view_of<typename Term::T>(call),
            static_cast<typename Term::Out *>(call->out[0].data), nullptr, nullptr,
            tiles};
}

/* ---- loads, and the reduced bits of packs and lanes ---- */

/* Sums over the reduced bits of a pack; the results are the elements without them. */
template <int VEC, typename V>
__device__ __forceinline__ void
sum_packs(V *sum, unsigned reduced_packs)
{
#pragma unroll
    for (int d = VEC / 2; d > 0; d /= 2) {
        if (reduced_packs & d) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & d)) {
                    sum[e] += sum[e | d];
                }
            }
        }
    }
}

/* Sums over reduced bits of the lane; every lane of a sum has the total. */
template <int VEC, typename V>
__device__ __forceinline__ void
sum_lanes(V *sum, unsigned reduced_packs, unsigned lanes)
{
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        if (lanes & d) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & reduced_packs)) {
                    sum[e] += __shfl_xor_sync(ALL_LANES, sum[e], d);
                }
            }
        }
    }
}

template <typename Term, bool PACKED>
__device__ __forceinline__ void
load_elements(const typename Term::T *p, uint64_t policy, typename Term::T *to)
{
    if constexpr (PACKED) {
        const pack<typename Term::T> loaded = load_pack(p, policy);
        memcpy(to, loaded.v, sizeof loaded.v);
    }
    else {
        to[0] = *p;
    }
}

/* The pairwise sum of the terms of element e of N loads. */
template <typename Term, int N, int VEC>
__device__ __forceinline__ typename Term::Acc
sum_loads(const typename Term::T (*v)[VEC], int e, bool square)
{
    if constexpr (N == 1) {
        return Term::of(v[0][e], square);
    }
    else {
        return sum_loads<Term, N / 2, VEC>(v, e, square) +
               sum_loads<Term, N / 2, VEC>(v + N / 2, e, square);
    }
}

/* The output bits of a lane, and its rank among the lanes of one output. */
__device__ __forceinline__ int64_t
lane_output(const int8_t *lane_to, unsigned reduced_lanes, unsigned lane, int *rank)
{
    int64_t o = 0;
    int r = 0, bits = 0;
#pragma unroll
    for (int b = 0; b < 5; b++) {
        const unsigned bit = lane >> b & 1;
        if (reduced_lanes >> b & 1) {
            r |= bit << bits++;
        }
        else if (lane_to[b] >= 0) {
            o |= static_cast<int64_t>(bit) << lane_to[b];
        }
    }
    *rank = r;
    return o;
}

/* ---- short loops: several tiles of a warp ---- */

/* Loads of a warp in flight. */
template <typename Term, bool PACKED>
constexpr int IN_FLIGHT = (PACKED ? pack<typename Term::T>::SIZE : 1) *
                                      sizeof(typename Term::Acc) <=
                                  16
                              ? 8
                              : 4;

/*
 * Leaves each lane one of N groups.  A step over a reduced lane bit hands half of the
 * groups to the other lane and receives its sums of the rest: N - 1 shuffles, not
 * N * log2(N).  Returns this lane's group, whose sum is then sum[0], and removes the
 * used bits from *left.
 */
template <int N, int VEC, typename V>
__device__ __forceinline__ int
share_out(V (*sum)[VEC], unsigned lane, unsigned reduced_packs, unsigned *left)
{
    if constexpr (N == 1) {
        return 0;
    }
    else {
        const unsigned d = *left & (~*left + 1);
        const bool upper = lane & d;
        *left ^= d;
#pragma unroll
        for (int g = 0; g < N / 2; g++) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & reduced_packs)) {
                    const V mine = upper ? sum[g + N / 2][e] : sum[g][e];
                    const V other = upper ? sum[g][e] : sum[g + N / 2][e];
                    sum[g][e] = mine + __shfl_xor_sync(ALL_LANES, other, d);
                }
            }
        }
        return (upper ? N / 2 : 0) +
               share_out<N / 2, VEC>(sum, lane, reduced_packs, left);
    }
}

/* Macro(Term) for each Term that a kernel is compiled for. */
#define PARTITION_REDUCE_EVERY_TERM(Macro)                                         \
    Macro(plain_term<int32_t>) Macro(plain_term<int64_t>) Macro(plain_term<f16>)   \
        Macro(plain_term<bf16>) Macro(plain_term<float>) Macro(plain_term<double>) \
            Macro(norm_term<float>) Macro(norm_term<double>)

/* ---- the shape kernels, for the table and for v3 (shapes/) ---- */

struct short_loops {
    template <typename Term>
    static gpo_status run(gpo_call *call);
};

struct any_order {
    template <typename Term>
    static gpo_status run(gpo_call *call);
};

struct few_bits {
    template <typename Term>
    static gpo_status run(gpo_call *call);
};

struct few_sums {
    template <typename Term>
    static gpo_status run(gpo_call *call);
};

/* Whether any_order, few_bits or few_sums takes a call, and few_sums is the fastest. */
bool has_any_order(const gpo_call *call);
bool has_few_bits(const gpo_call *call);
bool has_few_sums(const gpo_call *call);
bool few_sums_pays(const gpo_call *call);

#endif
