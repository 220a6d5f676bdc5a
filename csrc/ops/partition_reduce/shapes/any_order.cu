/*
 * any_order.cu  Sums of few elements in any order of the result: fewer than 3 reduced bits
 * above those of a warp's load, as in short_loops.  The tiles of a block are those whose
 * sums are neighbours in the result, wherever they lie in x: its warps read whole lines,
 * put the sums into shared memory in the order of the result, and the block writes them
 * from there.
 * Cost:  reads 2^n elements once, a warp 512 bytes at a time; each sum goes through shared
 *        memory and is written once, in runs of up to 64; one launch, one barrier.
 */
#include "../tiles.cuh"

constexpr int LOG_WARPS = LOG_BLOCK - 5;

/* A sum of a block has a slot: the bits of its output that differ in a block, packed. */
template <typename Term>
struct any_order_call {
    const typename Term::T *x;
    typename Term::Out *out;
    bool square, keep_l2;
    int pack_bits, groups, loads;
    unsigned reduced_packs, reduced_lanes;
    unsigned slots;
    uint64_t low,
        high;      /* the output bits of a slot: its lowest LOG_BLOCK, and others */
    uint64_t loop; /* reduced bits of the index that the loop counts through */
    int64_t turns;
    int64_t warp_at[LOG_WARPS], load_at[LOADS]; /* what bits of a number add in x */
    unsigned warp_slot[LOG_WARPS], lane_slot[5], load_slot[LOADS], pack_slot[8];
    bit_runs to_index, to_output; /* of a block's number */
};

/* One more element for each 32 and each 1,024: slots of a warp are powers of 2 apart. */
__host__ __device__ __forceinline__ unsigned
word_of_slot(unsigned slot)
{
    return slot + (slot >> 5) + (slot >> 10);
}

template <typename Term, typename Out>
__device__ __forceinline__ void
put_sums(const any_order_call<Term> &p, Out *table, unsigned slot,
         const typename Term::Acc *sum)
{
    constexpr int VEC = pack<typename Term::T>::SIZE;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        if (!(e & p.reduced_packs)) {
            table[word_of_slot(slot | p.pack_slot[e])] = result_of<Term>(sum[e]);
        }
    }
}

/* A block for WARPS * groups tiles. */
template <typename Term>
__global__ void
__launch_bounds__(BLOCK, BLOCKS_PER_SM - 1)
    partition_reduce_any_order(any_order_call<Term> p)
{
    using T = typename Term::T;
    using Acc = typename Term::Acc;
    using Out = typename Term::Out;
    constexpr int VEC = pack<T>::SIZE, ALL = IN_FLIGHT<Term, true>;
    GPO_DYN_SHARED(Out, table);
    const unsigned tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    unsigned slot = 0;
    int64_t at = moved(p.to_index, blockIdx.x) | static_cast<int64_t>(lane)
                                                     << p.pack_bits;
    int rank = 0, ranks = 1; /* among the lanes of one sum */
#pragma unroll
    for (int b = 0; b < LOG_WARPS; b++) {
        at += warp >> b & 1 ? p.warp_at[b] : 0;
        slot |= warp >> b & 1 ? p.warp_slot[b] : 0;
    }
#pragma unroll
    for (int b = 0; b < 5; b++) {
        const bool bit = lane >> b & 1;
        slot |= bit ? p.lane_slot[b] : 0;
        if (p.reduced_lanes >> b & 1) {
            rank += bit ? ranks : 0;
            ranks *= 2;
        }
    }
    const T *const base = p.x + at;
    const uint64_t policy = l2_policy(p.keep_l2);

    Acc sum[ALL][VEC];
#pragma unroll
    for (int g = 0; g < ALL; g++) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            sum[g][e] = 0;
        }
    }
    uint64_t turn_at = 0;
    for (int64_t turn = 0; turn < p.turns; turn++) {
        const T *const q = base + turn_at;
        T loaded[ALL][VEC];
#pragma unroll
        for (int g = 0; g < ALL; g++) {
            memset(static_cast<void *>(loaded[g]), 0, sizeof loaded[g]);
            if (g < p.loads) {
                load_elements<Term, true>(q + p.load_at[g], policy, loaded[g]);
            }
        }
        turn_at = (turn_at - p.loop) & p.loop;
#pragma unroll
        for (int g = 0; g < ALL; g++) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                sum[g][e] += Term::of(loaded[g][e], p.square);
            }
        }
    }
#pragma unroll
    for (int half = ALL / 2; half > 0; half /= 2) { /* loads of the same tiles */
        if (half < p.loads && half >= p.groups) {
#pragma unroll
            for (int g = 0; g < half; g++) {
#pragma unroll
                for (int e = 0; e < VEC; e++) {
                    sum[g][e] += sum[g + half][e];
                }
            }
        }
    }
#pragma unroll
    for (int g = 0; g < ALL; g++) {
        sum_packs<VEC>(sum[g], p.reduced_packs);
    }
    if (ranks >= ALL && p.groups == ALL) {
        unsigned left = p.reduced_lanes;
        const int mine = share_out<ALL, VEC>(sum, lane, p.reduced_packs, &left);
        sum_lanes<VEC>(sum[0], p.reduced_packs, left);
#pragma unroll
        for (int g = 1; g < ALL; g *= 2) {
            slot |= mine & g ? p.load_slot[g] : 0;
        }
        if (!(lane & left)) {
            put_sums(p, table, slot, sum[0]);
        }
    }
    else {
#pragma unroll
        for (int g = 0; g < ALL; g++) { /* by the lanes of rank g */
            if (g < p.groups) {
                sum_lanes<VEC>(sum[g], p.reduced_packs, p.reduced_lanes);
                if ((g & (ranks - 1)) == rank) {
                    put_sums(p, table, slot | p.load_slot[g], sum[g]);
                }
            }
        }
    }
    __syncthreads();
    Out *const out = p.out + (moved(p.to_output, blockIdx.x) | deposit(tid, p.low));
    uint64_t to = 0;
    for (unsigned s = tid; s < p.slots; s += BLOCK) {
        out[to] = table[word_of_slot(s)];
        to = (to - p.high) & p.high;
    }
}

/* The kept bits of an index above a warp's load. */
static int
kept_high_bits(const gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    int kept = 0;
    for (int b = low_bits_of(call); b < plan.n; b++) {
        kept += plan.to[b] >= 0;
    }
    return kept;
}

bool
has_any_order(const gpo_call *call)
{
    return is_packed(call) && has_short_loops(call) &&
           kept_high_bits(call) >= LOG_WARPS;
}

/* Of the high bits of the index that are not in `taken`, that of the lowest output bit. */
static int
lowest_output(const gpo_call *call, uint64_t taken)
{
    const partition_plan &plan = *partition_plan_of(call);
    int found = -1;
    for (int b = low_bits_of(call); b < plan.n; b++) {
        if (plan.to[b] >= 0 && !(taken >> b & 1) &&
            (found < 0 || plan.to[b] < plan.to[found])) {
            found = b;
        }
    }
    return found;
}

/* The lowest `count` bits that are set. */
static uint64_t
lowest_bits(uint64_t mask, int count)
{
    uint64_t found = 0;
    for (; count > 0 && mask; count--, mask &= mask - 1) {
        found |= mask & (~mask + 1);
    }
    return found;
}

/* The slot of output bit `to`; none of a reduced bit. */
static unsigned
slot_of(uint64_t outputs, int to)
{
    int rank = 0;
    for (int b = 0; b < to; b++) {
        rank += outputs >> b & 1;
    }
    return to < 0 ? 0 : 1u << rank;
}

/*
 * Tiles of a warp and loads of each in flight: as many tiles as leave work to every warp of
 * the GPU, then loads.
 */
template <typename Term>
static void
share_tiles(const gpo_call *call, any_order_call<Term> *p)
{
    constexpr int MOST = IN_FLIGHT<Term, true>;
    const partition_plan &plan = *partition_plan_of(call);
    const int low = low_bits_of(call), high_kept = kept_high_bits(call);
    const int64_t tiles = bit_at(high_kept);
    const int64_t turns = bit_at(plan.n - low - high_kept);
    const int64_t room =
        static_cast<int64_t>(gpo_processors(call)) * (BLOCKS_PER_SM - 1) * WARPS;
    p->groups = 1;
    while (2 * p->groups <= MOST && tiles / (2 * p->groups) >= room) {
        p->groups *= 2;
    }
    int deep = 1;
    while (2 * p->groups * deep <= MOST && 2 * deep <= turns) {
        deep *= 2;
    }
    p->loads = p->groups * deep;
    p->turns = turns / deep;
}

template <typename Term>
gpo_status
any_order::run(gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    const int low = low_bits_of(call), pack_bits = pack_bits_of(call);
    any_order_call<Term> p;
    memset(static_cast<void *>(&p), 0, sizeof p);
    p.x = static_cast<const typename Term::T *>(call->in[0].data);
    p.out = static_cast<typename Term::Out *>(call->out[0].data);
    p.square = plan.square;
    p.keep_l2 = bit_at(plan.n) <= KEEP_L2_BYTES / gpo_dtypes[plan.dtype].bytes;
    p.pack_bits = pack_bits;
    share_tiles(call, &p);

    /* The tiles of a block: its warps, then each warp's groups. */
    uint64_t taken = 0, outputs = 0;
    int warp_bit[LOG_WARPS], group_bit[LOADS] = {}, groups = 0;
    for (int b = 0; b < LOG_WARPS; b++) {
        warp_bit[b] = lowest_output(call, taken);
        taken |= static_cast<uint64_t>(1) << warp_bit[b];
        outputs |= static_cast<uint64_t>(1) << plan.to[warp_bit[b]];
    }
    while (1 << groups < p.groups) {
        group_bit[groups] = lowest_output(call, taken);
        taken |= static_cast<uint64_t>(1) << group_bit[groups];
        outputs |= static_cast<uint64_t>(1) << plan.to[group_bit[groups++]];
    }
    for (int b = 0; b < low; b++) {
        outputs |= plan.to[b] >= 0 ? static_cast<uint64_t>(1) << plan.to[b] : 0;
    }
    for (int b = 0; b < LOG_WARPS; b++) {
        p.warp_at[b] = bit_at(warp_bit[b]);
        p.warp_slot[b] = slot_of(outputs, plan.to[warp_bit[b]]);
    }
    for (int b = 0; b < 5; b++) {
        p.lane_slot[b] = slot_of(outputs, plan.to[pack_bits + b]);
        p.reduced_lanes |= plan.to[pack_bits + b] < 0 ? 1u << b : 0;
    }
    for (int b = 0; b < pack_bits; b++) {
        p.reduced_packs |= plan.to[b] < 0 ? 1u << b : 0;
        for (int k = 0; k < 1 << b; k++) {
            p.pack_slot[1 << b | k] = p.pack_slot[k] | slot_of(outputs, plan.to[b]);
        }
    }
    int blocks = 0;
    for (int b = low; b < plan.n; b++) {
        if (plan.to[b] < 0) {
            p.loop |= static_cast<uint64_t>(bit_at(b));
        }
        else if (!(taken >> b & 1)) {
            push_bit(&p.to_index, blocks, b);
            push_bit(&p.to_output, blocks++, plan.to[b]);
        }
    }
    for (int l = 0; l < p.loads; l++) {
        p.load_at[l] = deposit(l >> groups, p.loop);
        for (int g = 0; g < groups; g++) {
            p.load_at[l] |= l >> g & 1 ? bit_at(group_bit[g]) : 0;
            p.load_slot[l] |= l >> g & 1 ? slot_of(outputs, plan.to[group_bit[g]]) : 0;
        }
    }
    p.loop &= ~static_cast<uint64_t>(deposit(p.loads / p.groups - 1, p.loop));
    p.low = lowest_bits(outputs, LOG_BLOCK);
    p.high = outputs & ~p.low;
    int bits = 0;
    for (uint64_t left = outputs; left; left &= left - 1) {
        bits++;
    }
    p.slots = 1u << bits;
    const size_t bytes = sizeof(typename Term::Out) * word_of_slot(p.slots);
    const dim3 grid(static_cast<unsigned>(bit_at(blocks)));
    return GPO_LAUNCH(call, grid, BLOCK, bytes, (partition_reduce_any_order<Term>), p);
}

#define INSTANTIATE(Term) template gpo_status any_order::run<Term>(gpo_call * call);
PARTITION_REDUCE_EVERY_TERM(INSTANTIATE)
