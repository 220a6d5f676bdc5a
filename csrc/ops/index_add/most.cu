/*
 * most.cu  A bound on the rows that go to one destination, for an index that calls use
 * again and again: the rows of each of some groups of destinations are counted, and
 * the largest count is told to the host.  Where a bit for each destination takes little
 * memory, those bits tell whether any destination has a second row; if none has, the
 * bound is 1.  The same look tells how many of 32 neighbouring rows go to a destination
 * of a row before them, as sorted and skewed ones do, and whether all rows are sorted.
 * Cost:  reads the index once; an atomic on 256 KiB of counters (4 MiB for millions of
 *        rows) for each destination of 32 rows, and one on the bits.
 */
#include "../../device/slot.cuh"
#include "../../device/verdict.cuh"
#include "../../device/words.cuh"
#include "frame.cuh"

static constexpr int MOST_BLOCK = 1024;
static constexpr int SLOT_BITS = 16, MANY_SLOT_BITS = 20; /* of the groups' number */
/* Rows from which there are many groups: with few a group has too many destinations. */
static constexpr int64_t FOR_MANY_SLOTS = 1 << 22;
/* Rows: some 10 ps each, once for an index. */
static constexpr int64_t MOST_LOOKED_AT = 1 << 28;
/* Bytes of bits, at most: to clear them takes some 10 us. */
static constexpr int64_t MOST_BITS = 1 << 24;

/* An entry is less than the one before, or counts from the end, so that two entries may be
   one destination; it is that of the 32nd row before. */
static constexpr unsigned DESCENDS = 1, REPEATS = 2;

/* The words that a look counts in, cleared together. */
struct index_add_counters {
    unsigned long long *behind; /* rows with a destination of a row before, in a warp */
    unsigned *slots;            /* rows of a group of destinations, 1 << bits of them */
    int bits;
    unsigned *order; /* DESCENDS, REPEATS: of any entry */
    unsigned
        *second;   /* not 0: a destination has a second row; or NULL: not looked at */
    unsigned *met; /* a bit for each destination */
};

static __global__ void
__launch_bounds__(BLOCK) index_add_clear_counters(unsigned *words, int64_t n)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        words[i] = 0;
    }
}

static __global__ void
__launch_bounds__(BLOCK)
    index_add_count_rows(index_reader index, int64_t count, index_add_counters to)
{
    GPO_SHARED(unsigned, behind, [1]);
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    const unsigned lane = threadIdx.x % WARP;
    if (threadIdx.x == 0) {
        behind[0] = 0;
    }
    __syncthreads();
    unsigned mine = 0;
    bool descends = false, repeats = false;
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * BLOCK; begin < count;
         begin += step) { /* whole warps: a match needs every lane */
        const int64_t s = begin + threadIdx.x;
        const int64_t entry = s < count ? entry_of(index, s) : 0;
        const int64_t k = s < count ? destination_of(index, entry, s) : -1;
        int64_t before = __shfl_up_sync(ALL_LANES, k, 1);
        if (lane == 0 && s > 0 && s < count) {
            before = destination_of(index, entry_of(index, s - 1), s - 1);
        }
        descends = descends || (s < count && ((s > 0 && k < before) || k != entry));
        repeats =
            repeats || (s >= WARP && s < count && entry_of(index, s - WARP) == entry);
        const unsigned same =
            __match_any_sync(ALL_LANES, static_cast<unsigned long long>(k));
        const bool leads = (same & ((1u << lane) - 1)) == 0;
        const unsigned rows = static_cast<unsigned>(__popc(same));
        if (k >= 0 && leads) {
            atomicAdd(&to.slots[slot_of_key(static_cast<uint64_t>(k), to.bits)], rows);
            mine += rows - 1;
            const unsigned bit = 1u << (k & 31);
            if (to.second != nullptr &&
                (rows > 1 || (atomicOr(&to.met[k >> 5], bit) & bit) != 0)) {
                atomicOr(to.second, 1u);
            }
        }
    }
    if (mine > 0) {
        atomicAdd(&behind[0], mine);
    }
    const unsigned order = (__syncthreads_or(descends) != 0 ? DESCENDS : 0) |
                           (__syncthreads_or(repeats) != 0 ? REPEATS : 0);
    if (threadIdx.x == 0 && (load_word(to.order) & order) != order) {
        atomicOr(to.order, order);
    }
    if (threadIdx.x == 0 && behind[0] > 0) {
        atomicAdd(to.behind, static_cast<unsigned long long>(behind[0]));
    }
}

/* The answer is one word: the bound, above it what call->known has of neighbours. */
static constexpr int MOST_BITS_OF_ANSWER = 40, SORTED_BIT = 60;

static __global__ void
__launch_bounds__(MOST_BLOCK)
    index_add_tell_most(index_add_counters from, int64_t count, uint64_t *answer)
{
    GPO_SHARED(unsigned, largest, [1]);
    unsigned mine = 0;
#pragma unroll 8
    for (int k = threadIdx.x; k < 1 << from.bits; k += MOST_BLOCK) {
        const unsigned count = from.slots[k];
        mine = mine > count ? mine : count;
    }
    if (threadIdx.x == 0) {
        largest[0] = 0;
    }
    __syncthreads();
    atomicMax(&largest[0], mine);
    __syncthreads();
    if (threadIdx.x == 0) {
        const bool distinct = from.second != nullptr && *from.second == 0;
        const unsigned long long parts =
            *from.behind * INDEX_ADD_BEHIND_PARTS / static_cast<uint64_t>(count);
        const bool sorted = (*from.order & DESCENDS) == 0;
        unsigned most = distinct ? 1 : largest[0];
        if (*from.order == 0 && most > WARP) { /* sorted: no run is longer */
            most = WARP;
        }
        tell_host(answer, (sorted ? 1ULL << SORTED_BIT : 0) |
                              parts << MOST_BITS_OF_ANSWER | most);
    }
}

/* Whether each row may have a destination of its own, and bits that tell are few. */
static bool
may_be_distinct(const index_add_plan &plan)
{
    return plan.count <= plan.length && plan.length / 8 <= MOST_BITS;
}

/* Whether the answer may change the choice for this call's dtype. */
static bool
look_pays(const gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    const int64_t row = plan.inner * gpo_dtypes[plan.dtype].bytes;
    const bool half = plan.dtype == GPO_F16 || plan.dtype == GPO_BF16;
    const bool is_float = half || plan.dtype == GPO_F32 || plan.dtype == GPO_F64;
    const bool is_hot = index_add_has_many_rows(&plan);
    return !plan.is_deterministic && plan.count > 0 && plan.count <= MOST_LOOKED_AT &&
           (half || (is_float && index_add_fits_own_places(plan)) ||
            (plan.count > INDEX_ADD_FEW_ROWS &&
             (plan.dtype == GPO_F32 || row >= WARP_WIDE || is_hot ||
              plan.count >= MANY_DOUBLES)));
}

gpo_status
index_add_look(gpo_call *call, const index_reader &index)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    if (!look_pays(call) || call->found.most > 0 || gpo_may_wait(call) != GPO_OK) {
        return GPO_OK;
    }
    const bool distinct = may_be_distinct(plan);
    const int bits = plan.count > FOR_MANY_SLOTS ? MANY_SLOT_BITS : SLOT_BITS;
    constexpr int64_t OTHERS = 4; /* behind, second, and order */
    const int64_t slots = INT64_C(1) << bits;
    const int64_t words = OTHERS + slots + (distinct ? ceil_div(plan.length, 32) : 0);
    void *memory = nullptr;
    uint64_t *answer = nullptr, most = 0;
    gpo_status status = gpo_scratch(call, words * sizeof(unsigned), &memory);
    unsigned *const word = static_cast<unsigned *>(memory);
    const index_add_counters counters = {static_cast<unsigned long long *>(memory),
                                         word + OTHERS,
                                         bits,
                                         word + 3,
                                         distinct ? word + 2 : nullptr,
                                         word + OTHERS + slots};
    if (!status) {
        status = gpo_question(call, &answer);
    }
    if (!status) {
        status = GPO_LAUNCH(call, grid_for(words), BLOCK, 0, index_add_clear_counters,
                            word, words);
    }
    if (!status) {
        status = GPO_LAUNCH(call, grid_for(plan.count), BLOCK, 0, index_add_count_rows,
                            index, plan.count, counters);
    }
    if (!status) {
        status = GPO_LAUNCH(call, dim3(1), MOST_BLOCK, 0, index_add_tell_most, counters,
                            plan.count, answer);
    }
    if (!status) {
        status = gpo_answer(call, answer, &most);
    }
    if (!status) {
        const uint64_t rows = most & ((UINT64_C(1) << MOST_BITS_OF_ANSWER) - 1);
        call->found.most = rows > 0 ? static_cast<int64_t>(rows) : 1;
        call->found.behind = static_cast<int>(most >> MOST_BITS_OF_ANSWER) &
                             (2 * INDEX_ADD_BEHIND_PARTS - 1);
        call->found.sorted = (most >> SORTED_BIT & 1) != 0;
    }
    return status;
}
