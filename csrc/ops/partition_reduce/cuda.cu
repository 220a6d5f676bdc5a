/*
 * cuda.cu  The ladder of partition_reduce on CUDA, v0 to v3, then the table and the
 * choice.  v0, v1 and v2 are methods B, C and A of the source document, in the order of
 * what they ask of the atomics; v3 needs none.
 * Not here: terms and indices (sums.cuh), the contract (op.c).
 */
#include "sums.cuh"

#include <stdio.h>

/*
 * v0  One global atomic per element (method B).
 * Was:   nothing; the first kernel one would write.
 * Now:   a thread per element: find the output from the bits, add to it.
 * Cost:  2^n atomics in L2; with few outputs they queue at a few addresses.
 * Left:  every element goes to L2 -> v1.
 */
template <typename Term>
__global__ void
partition_reduce_v0_global_atomics(partition_view<typename Term::T> x,
                                   typename Term::Acc *sums)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >> x.n == 0) {
        atomic_add(&sums[output_of(x, i)], Term::of(x.x[x.place(i)], x.square));
    }
}

struct rung_v0 {
    template <typename Term>
    static gpo_status run(gpo_call *call, const partition_plan &plan)
    {
        typename Term::Acc *sums;
        gpo_status status = zeroed_sums<Term>(call, plan, 1, &sums);
        if (!status) {
            const dim3 grid(ceil_div(static_cast<int64_t>(1) << plan.n, BLOCK));
            status = GPO_LAUNCH(call, grid, BLOCK, 0,
                                (partition_reduce_v0_global_atomics<Term>),
                                view_of<typename Term::T>(plan), sums);
        }
        return status ? status : finish_sums<Term>(call, plan, 1, sums);
    }
};

/*
 * v1  Shared-memory atomics, then global ones (method C).
 * Was:   v0 sends every element to L2.
 * Now:   a block adds its elements to a copy of the outputs in shared memory, and that
 *        copy to the result.  A copy holds 2^12 sums at most: where there are more, the
 *        highest kept bits number windows of them, and a block reads the elements of its
 *        window alone.
 * Cost:  2^n atomics in shared memory, blocks * outputs in L2.
 * Left:  lanes of a warp still meet at an address; 32 KiB hold back other blocks -> v2.
 */
constexpr int WINDOW_BITS = 12;
constexpr int64_t V1_ITEMS =
    16; /* elements of a thread at least, if there are as many */

/* The kept bits of a window, and those that number the windows. */
struct partition_windows {
    int bits;              /* inside a window */
    int from[WINDOW_BITS]; /* bit b of a sum's place in the window is from[b] of i */
    int to[WINDOW_BITS];   /* and to[b] of its output's index */
    uint64_t outer, inner; /* bits of i that number windows; all others */
    int64_t elements, windows; /* of a window; how many */
};

inline partition_windows
windows_of(const partition_plan &plan)
{
    partition_windows w = {0, {}, {}, 0, 0, 0, 0};
    for (int b = 0; b < plan.n; b++) {
        const uint64_t bit = static_cast<uint64_t>(1) << b;
        if (plan.to[b] >= 0 && w.bits == WINDOW_BITS) {
            w.outer |= bit;
            continue;
        }
        w.inner |= bit;
        if (plan.to[b] >= 0) {
            w.from[w.bits] = b;
            w.to[w.bits++] = plan.to[b];
        }
    }
    w.windows = static_cast<int64_t>(1) << (plan.k - w.bits);
    w.elements = static_cast<int64_t>(1) << (plan.n - (plan.k - w.bits));
    return w;
}

template <typename Term>
__global__ void
partition_reduce_v1_shared_atomics(partition_view<typename Term::T> x,
                                   partition_windows w, typename Term::Acc *sums)
{
    GPO_DYN_SHARED(typename Term::Acc, copy); /* 2^w.bits sums */
    const int size = 1 << w.bits;
    for (int s = threadIdx.x; s < size; s += BLOCK) {
        copy[s] = 0;
    }
    __syncthreads();

    const int64_t step = gridDim.x / w.windows * BLOCK;
    const int64_t window = deposit(blockIdx.x % w.windows, w.outer);
    for (int64_t j = blockIdx.x / w.windows * BLOCK + threadIdx.x; j < w.elements;
         j += step) {
        const int64_t i = w.windows == 1 ? j : deposit(j, w.inner) | window;
        int s = 0;
        for (int b = 0; b < w.bits; b++) {
            s |= static_cast<int>(i >> w.from[b] & 1) << b;
        }
        atomic_add(&copy[s], Term::of(x.x[x.place(i)], x.square));
    }
    __syncthreads();

    const int64_t first = output_of(x, window);
    for (int s = threadIdx.x; s < size; s += BLOCK) {
        int64_t o = first;
        for (int b = 0; b < w.bits; b++) {
            o |= static_cast<int64_t>(s >> b & 1) << w.to[b];
        }
        atomic_add(&sums[o], copy[s]);
    }
}

struct rung_v1 {
    template <typename Term>
    static gpo_status run(gpo_call *call, const partition_plan &plan)
    {
        typename Term::Acc *sums;
        gpo_status status = zeroed_sums<Term>(call, plan, 1, &sums);
        if (!status) {
            const partition_windows w = windows_of(plan);
            const int64_t room = static_cast<int64_t>(gpo_processors(call)) * 8;
            const int64_t most = ceil_div(w.elements, BLOCK * V1_ITEMS);
            const int64_t fill = ceil_div(room, w.windows);
            const dim3 grid(w.windows * (fill < most ? fill : most));
            const size_t shared_bytes = sizeof(typename Term::Acc) << w.bits;
            status = GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                (partition_reduce_v1_shared_atomics<Term>),
                                view_of<typename Term::T>(plan), w, sums);
        }
        return status ? status : finish_sums<Term>(call, plan, 1, sums);
    }
};

/*
 * v2  Private copies per block, then a second kernel (method A).
 * Was:   v1's copies must fit shared memory and end in atomics of all blocks.
 * Now:   each block has a copy of the outputs in device memory, of any size; a second
 *        kernel adds the copies up, in order and without atomics.
 * Cost:  2^n atomics in L2 that only a block shares; copies * outputs written and read.
 * Left:  the atomics; but which elements meet is known before the start -> v3.
 */
constexpr int64_t COPIES_BYTES = static_cast<int64_t>(64) << 20;

template <typename Term>
__global__ void
partition_reduce_v2_private_copies(partition_view<typename Term::T> x,
                                   typename Term::Acc *copies)
{
    typename Term::Acc *own = copies + (static_cast<int64_t>(blockIdx.x) << x.k);
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         i >> x.n == 0; i += step) {
        atomic_add(&own[output_of(x, i)], Term::of(x.x[x.place(i)], x.square));
    }
}

struct rung_v2 {
    template <typename Term>
    static gpo_status run(gpo_call *call, const partition_plan &plan)
    {
        using Acc = typename Term::Acc;
        const int64_t fit = COPIES_BYTES / static_cast<int64_t>(sizeof(Acc)) >> plan.k;
        const int64_t room = static_cast<int64_t>(gpo_processors(call)) * 8;
        const int64_t most = ceil_div(static_cast<int64_t>(1) << plan.n, BLOCK);
        int64_t copies = fit < room ? fit : room;
        copies = copies < most ? copies : most;
        copies = copies > 1 ? copies : 1;
        Acc *sums;
        gpo_status status = zeroed_sums<Term>(call, plan, copies, &sums);
        if (!status) {
            status = GPO_LAUNCH(call, copies, BLOCK, 0,
                                (partition_reduce_v2_private_copies<Term>),
                                view_of<typename Term::T>(plan), sums);
        }
        return status ? status : finish_sums<Term>(call, plan, copies, sums);
    }
};

/*
 * v3  Atomic-free.
 * Was:   v2 asks atomics to find out which elements meet; the bits say it beforehand.
 * Now:   an index is [high bits][5 lane bits][bits of a 16-byte pack].  Kept high bits
 *        number tiles, each the work of a team of warps; reduced high bits are a loop
 *        with 8 loads in flight; reduced bits of a pack add in registers, reduced lane
 *        bits by xor shuffle.  Where tiles are few, a team is a block and the loop is
 *        split over blocks, whose parts the last one to arrive adds in a fixed order.
 *        Where the loop is short, a warp takes several tiles to have 8 loads in flight.
 * Cost:  reads 2^n elements once, a warp 512 bytes at a time; one launch.
 * Left:  x that is not packed or not on a 16-byte boundary is read element by element.
 */
constexpr int WARPS = BLOCK / WARP;
constexpr int LOOP_BITS = 3, LOADS = 1 << LOOP_BITS;
constexpr int BLOCKS_PER_PROCESSOR = 4;

/* Up to here reads leave L2 what was in it: see reduce's notes on evict-first. */
constexpr int64_t KEEP_L2_BYTES = static_cast<int64_t>(256) << 20;

/* A permutation of bits: each run moves neighbours by one shift. */
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

template <typename Term>
struct v3_plan {
    partition_view<typename Term::T> x;
    typename Term::Out *out;
    part_of<typename Term::Acc> *part; /* splits x outputs */
    unsigned *ticket;                  /* of a tile */
    bool keep_l2;
    int lanes;                    /* with elements: 32, or fewer for a tiny x */
    int pack_bits;                /* of the index */
    unsigned reduced_packs;       /* reduced bits of a pack */
    unsigned reduced_lanes;       /* and of the lane */
    int8_t lane_to[5];            /* the output bit of a lane bit; -1: reduced */
    int64_t pack_out[8];          /* of element e of a pack */
    bit_runs to_index, to_output; /* of a tile's number */
    int units_bits; /* log2 of the tiles, or groups of tiles, of a split */
    int64_t units;  /* warps with work */
    int team, splits;
    uint64_t loop;           /* reduced high bits that the loop counts through */
    int64_t turns, step;     /* of the loop; its step as bits of the index */
    int groups;              /* tiles of a warp */
    int64_t load_at[LOADS];  /* where the loads of a turn lie, in elements of memory */
    int64_t load_out[LOADS]; /* the output bits of a group */
};

/* Sums the reduced bits of a pack away; what is left are elements without them. */
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

/* Sums lane bits away; every lane of a sum has the total. */
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

/* The terms of element e of N loads, pairwise. */
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

/* Which output bits a lane stands for, and its rank among the lanes of one output. */
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

/* Blocks a processor is to hold: 8 elements of a pack take more registers. */
template <typename Term, bool PACKED>
constexpr int LONG_BLOCKS = PACKED && sizeof(typename Term::T) == 2
                                ? BLOCKS_PER_PROCESSOR - 1
                                : BLOCKS_PER_PROCESSOR;

/* The loop is long: a team of warps per tile and split. */
template <typename Term, bool PACKED>
__global__ void
__launch_bounds__(BLOCK, (LONG_BLOCKS<Term, PACKED>))
    partition_reduce_v3_long_loops(v3_plan<Term> p)
{
    using T = typename Term::T;
    using Part = part_of<typename Term::Acc>;
    constexpr int VEC = PACKED ? pack<T>::SIZE : 1;
    GPO_SHARED(Part, slots, [WARPS][VEC][WARP]);
    GPO_SHARED(bool, last, [1]);
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t unit = static_cast<int64_t>(blockIdx.x) * WARPS + warp;
    const int member = static_cast<int>(unit & (p.team - 1));
    const int64_t rest = unit / p.team;
    const int64_t split = rest >> p.units_bits;
    const int64_t tile = rest & ((static_cast<int64_t>(1) << p.units_bits) - 1);
    const bool active = unit < p.units && static_cast<int>(lane) < p.lanes;
    int rank;
    const int64_t o =
        moved(p.to_output, tile) | lane_output(p.lane_to, p.reduced_lanes, lane, &rank);
    const T *base = p.x.x + p.x.place(moved(p.to_index, tile) |
                                      static_cast<int64_t>(lane) << p.pack_bits);
    const uint64_t policy = l2_policy(p.keep_l2);

    chain<typename Term::Acc> chains[VEC];
    const int64_t step = static_cast<int64_t>(p.splits) * p.team;
    int64_t turn = split * p.team + member;
    uint64_t at = static_cast<uint64_t>(deposit(turn, p.loop));
    for (; turn < (active ? p.turns : 0); turn += step) {
        const T *q = base + p.x.place(static_cast<int64_t>(at));
        T loaded[LOADS][VEC];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            load_elements<Term, PACKED>(q + p.load_at[u], policy, loaded[u]);
        }
        at = ((at | ~p.loop) + static_cast<uint64_t>(p.step)) & p.loop;
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            chains[e].add(sum_loads<Term, LOADS, VEC>(loaded, e, p.x.square));
        }
    }

    /* The lanes of an output meet in registers, the warps of a team in shared memory. */
    Part sum[VEC];
    const auto meet = [&](int team, int place) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            sum[e] = chains[e].value();
        }
        sum_packs<VEC>(sum, p.reduced_packs);
        sum_lanes<VEC>(sum, p.reduced_packs, p.reduced_lanes);
        if (team > 1) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                slots[warp][e][lane] = sum[e];
            }
            __syncthreads();
            if (place == 0) {
                for (int m = 1; m < team; m++) {
#pragma unroll
                    for (int e = 0; e < VEC; e++) {
                        sum[e] += slots[warp + m][e][lane];
                    }
                }
            }
        }
    };
    meet(p.team, member);
    if (p.splits > 1) { /* then a team is a block */
        const int64_t outputs = static_cast<int64_t>(1) << p.x.k;
        if (warp == 0 && rank == 0) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & p.reduced_packs)) {
                    p.part[split * outputs + (o | p.pack_out[e])] = sum[e];
                }
            }
        }
        if (!is_last_block(&p.ticket[tile], p.splits, last)) {
            return;
        }
        const int64_t ranks = 1 << __popc(p.reduced_lanes);
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            chains[e] = chain<typename Term::Acc>();
        }
#pragma unroll 4
        for (int64_t s = warp * ranks + rank; s < p.splits; s += WARPS * ranks) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & p.reduced_packs)) {
                    chains[e].add(p.part[s * outputs + (o | p.pack_out[e])]);
                }
            }
        }
        meet(WARPS, warp);
    }
    if (active && member == 0 && rank == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            if (!(e & p.reduced_packs)) {
                p.out[o | p.pack_out[e]] = result_of<Term>(sum[e]);
            }
        }
    }
}

/* Tiles that a warp takes at once: one load of each is in flight. */
template <typename Term, bool PACKED>
constexpr int GROUPS = (PACKED ? pack<typename Term::T>::SIZE : 1) *
                                   sizeof(typename Term::Acc) <=
                               16
                           ? 8
                           : 4;

/*
 * One of N groups for each lane: a step over a reduced lane bit hands half of the groups
 * to the other lane and takes its share of the rest, N - 1 shuffles instead of
 * N * log2(N).  Gives this lane's group, whose sum is then sum[0]; takes the bits used
 * from *left.
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

/* The loop has 4 turns at most: a warp per group of tiles. */
template <typename Term, bool PACKED>
__global__ void
__launch_bounds__(BLOCK, BLOCKS_PER_PROCESSOR - 1)
    partition_reduce_v3_short_loops(v3_plan<Term> p)
{
    using T = typename Term::T;
    using Acc = typename Term::Acc;
    constexpr int VEC = PACKED ? pack<T>::SIZE : 1, ALL = GROUPS<Term, PACKED>;
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t unit = static_cast<int64_t>(blockIdx.x) * WARPS + warp;
    if (unit >= p.units) {
        return;
    }
    const bool active = static_cast<int>(lane) < p.lanes;
    const int64_t tile = unit * p.groups;
    int rank;
    const int64_t o =
        moved(p.to_output, tile) | lane_output(p.lane_to, p.reduced_lanes, lane, &rank);
    const T *base =
        p.x.x + p.x.place(moved(p.to_index, tile) |
                          static_cast<int64_t>(active ? lane : 0) << p.pack_bits);
    const uint64_t policy = l2_policy(p.keep_l2);

    Acc sum[ALL][VEC];
#pragma unroll
    for (int g = 0; g < ALL; g++) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            sum[g][e] = 0;
        }
    }
    uint64_t at = 0;
    for (int64_t turn = 0; turn < p.turns; turn++) {
        const T *q = base + p.x.place(static_cast<int64_t>(at));
        T loaded[ALL][VEC];
#pragma unroll
        for (int g = 0; g < ALL;
             g++) { /* without a tile of their own: the first again */
            load_elements<Term, PACKED>(q + p.load_at[g], policy, loaded[g]);
        }
        at = (at - p.loop) & p.loop;
#pragma unroll
        for (int g = 0; g < ALL; g++) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                sum[g][e] += Term::of(loaded[g][e], p.x.square);
            }
        }
    }
    const int ranks = 1 << __popc(p.reduced_lanes);
#pragma unroll
    for (int g = 0; g < ALL; g++) {
        sum_packs<VEC>(sum[g], p.reduced_packs);
    }
    if (ranks >= ALL) {
        unsigned left = p.reduced_lanes;
        const int mine = share_out<ALL, VEC>(sum, lane, p.reduced_packs, &left);
        sum_lanes<VEC>(sum[0], p.reduced_packs, left);
        int64_t to = o;
#pragma unroll
        for (int g = 1; g < ALL; g *= 2) {
            to |= mine & g ? p.load_out[g] : 0;
        }
        if (active && mine < p.groups && !(lane & left)) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & p.reduced_packs)) {
                    p.out[to | p.pack_out[e]] = result_of<Term>(sum[0][e]);
                }
            }
        }
        return;
    }
#pragma unroll
    for (int g = 0; g < ALL; g++) { /* written by the lanes of rank g */
        sum_lanes<VEC>(sum[g], p.reduced_packs, p.reduced_lanes);
        if (active && g < p.groups && (g & (ranks - 1)) == rank) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & p.reduced_packs)) {
                    p.out[o | p.load_out[g] | p.pack_out[e]] =
                        result_of<Term>(sum[g][e]);
                }
            }
        }
    }
}

struct rung_v3 {
    template <typename Term>
    static gpo_status run(gpo_call *call, const partition_plan &plan)
    {
        using T = typename Term::T;
        const int pack_bits = pack<T>::SIZE == 8   ? 3
                              : pack<T>::SIZE == 4 ? 2
                              : pack<T>::SIZE == 2 ? 1
                                                   : 0;
        const bool packed = plan.n >= pack_bits + 5 &&
                            plan.stride == (plan.pairs ? 2 : 1) &&
                            reinterpret_cast<uintptr_t>(plan.x) % 16 == 0;
        return packed ? launch<Term, true>(call, plan, pack_bits)
                      : launch<Term, false>(call, plan, 0);
    }

  private:
    static int64_t bit(int b)
    {
        return static_cast<int64_t>(1) << b;
    }

    template <typename Term, bool PACKED>
    static gpo_status launch(gpo_call *call, const partition_plan &plan, int pack_bits)
    {
        using T = typename Term::T;
        v3_plan<Term> p;
        memset(static_cast<void *>(&p), 0, sizeof p);
        p.x = view_of<T>(plan);
        p.out = static_cast<typename Term::Out *>(plan.out);
        p.keep_l2 = bit(plan.n) <= KEEP_L2_BYTES / static_cast<int64_t>(sizeof(T));
        p.pack_bits = pack_bits;

        /* Low bits: the pack and the lanes. */
        for (int b = 0; b < pack_bits; b++) {
            const int64_t e = bit(b);
            p.reduced_packs |= plan.to[b] < 0 ? 1u << b : 0;
            for (int64_t k = 0; k < e; k++) {
                p.pack_out[e + k] =
                    p.pack_out[k] | (plan.to[b] < 0 ? 0 : bit(plan.to[b]));
            }
        }
        const int lane_bits = plan.n - pack_bits < 5 ? plan.n - pack_bits : 5;
        p.lanes = 1 << lane_bits;
        for (int b = 0; b < 5; b++) {
            p.lane_to[b] = b < lane_bits ? plan.to[pack_bits + b] : -1;
            if (b < lane_bits && p.lane_to[b] < 0) {
                p.reduced_lanes |= 1u << b;
            }
        }

        /* High bits: the lowest reduced ones, or kept ones, are loads of one turn. */
        int tile_bits = 0, loop_bits = 0;
        uint64_t reduced = 0, kept = 0;
        for (int b = pack_bits + lane_bits; b < plan.n; b++) {
            if (plan.to[b] < 0) {
                reduced |= static_cast<uint64_t>(bit(b));
                loop_bits++;
            }
            else {
                kept |= static_cast<uint64_t>(bit(b));
                push_bit(&p.to_index, tile_bits, b);
                push_bit(&p.to_output, tile_bits, plan.to[b]);
                tile_bits++;
            }
        }
        p.loop = reduced;
        p.groups = p.team = p.splits = 1;
        if (loop_bits < LOOP_BITS) {
            constexpr int64_t ALL = GROUPS<Term, PACKED>;
            p.groups = static_cast<int>(bit(tile_bits) < ALL ? bit(tile_bits) : ALL);
            for (int64_t g = 0; g < p.groups; g++) {
                p.load_at[g] = p.x.place(moved(p.to_index, g));
                p.load_out[g] = moved(p.to_output, g);
            }
            p.turns = bit(loop_bits);
            p.units = bit(tile_bits) / p.groups;
            const dim3 grid(ceil_div(p.units, WARPS));
            return GPO_LAUNCH(call, grid, BLOCK, 0,
                              (partition_reduce_v3_short_loops<Term, PACKED>), p);
        }
        for (int64_t u = 0; u < LOADS; u++) {
            p.load_at[u] = p.x.place(deposit(u, reduced));
        }
        p.loop &= ~static_cast<uint64_t>(deposit(LOADS - 1, reduced));
        p.turns = bit(loop_bits - LOOP_BITS);
        p.units_bits = tile_bits;
        const gpo_status status = share(call, &p);
        if (status) {
            return status;
        }
        const dim3 grid(ceil_div(p.units, WARPS));
        return GPO_LAUNCH(call, grid, BLOCK, 0,
                          (partition_reduce_v3_long_loops<Term, PACKED>), p);
    }

    /* How many warps of a block, then blocks, share a tile: as many as fill the card. */
    template <typename Term>
    static gpo_status share(gpo_call *call, v3_plan<Term> *p)
    {
        using Part = part_of<typename Term::Acc>;
        const int64_t room =
            static_cast<int64_t>(gpo_processors(call)) * BLOCKS_PER_PROCESSOR * WARPS;
        const int64_t tiles = bit(p->units_bits);
        while (p->team < WARPS && 2 * tiles * p->team <= room &&
               2 * p->team <= p->turns) {
            p->team *= 2;
        }
        const int64_t fits =
            GPO_PARTIALS / static_cast<int64_t>(sizeof(Part)) >> p->x.k;
        int64_t splits = room / (tiles * p->team);
        splits = splits < p->turns / p->team ? splits : p->turns / p->team;
        splits = splits < fits ? splits : fits;
        gpo_status status = GPO_OK;
        if (p->team == WARPS && splits > 1 && tiles <= GPO_TICKETS) {
            p->splits = static_cast<int>(splits);
            status = gpo_tickets(call, &p->ticket);
            if (!status) {
                p->part = reinterpret_cast<Part *>(p->ticket + GPO_TICKETS);
            }
        }
        p->step = deposit(static_cast<int64_t>(p->splits) * p->team, p->loop);
        p->units = tiles * p->team * p->splits;
        return status;
    }
};

/* ---- table and choice ---- */

#define RUNG(v)                                            \
    template <typename T>                                  \
    static gpo_status partition_reduce_##v(gpo_call *call) \
    {                                                      \
        return run_rung<rung_##v, T>(call);                \
    }
RUNG(v0)
RUNG(v1)
RUNG(v2)
RUNG(v3)

/* run[] in the order of dtypes.def: i32, i64 and from f16 on all. */
#define ROW(f)                                                                        \
    {                                                                                 \
        nullptr, nullptr, nullptr, nullptr, nullptr, f<int32_t>, nullptr, f<int64_t>, \
            nullptr, f<f16>, f<bf16>, f<float>, f<double>, f<c64>, f<c128>            \
    }

static const gpo_variant variants[] = {
    {"v0", "one global atomic per element", "", "no", ROW(partition_reduce_v0)},
    {"v1", "shared-memory atomics, then global ones", "", "no",
     ROW(partition_reduce_v1)},
    {"v2", "private copies per block, then a second kernel", "", "no",
     ROW(partition_reduce_v2)},
    {"v3", "atomic-free: kept and reduced bits told apart", "", "run-to-run",
     ROW(partition_reduce_v3)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose(const gpo_call *, char why[GPO_MESSAGE])
{
    snprintf(why, GPO_MESSAGE,
             "v3 reads x once, needs no atomics and gives the same bits each run");
    return &variants[3];
}

extern "C" const gpo_table partition_reduce_cuda = {variants, choose};
