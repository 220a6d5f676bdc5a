/*
 * few_bits.cu  Sums over 1 to 4 bits, whose other bits stay in order.  The index of a
 * sum is that of its first element without the summed bits: each is put back by an
 * addition.  A thread has all elements of a sum in flight, or of a 16-byte pack of sums,
 * and no lane needs another.
 * Cost:  reads 2^n elements once and writes each sum once, 16 bytes at a time where the
 *        summed bits are above a sector; one launch, no barrier, no shuffle, no loop.
 */
#include "../tiles.cuh"

template <typename Term>
struct few_bits_call {
    const typename Term::T *x;
    typename Term::Out *out;
    int64_t sums, stride;
    int64_t above[FEW_BITS]; /* the index bits from a summed one on, the lowest first */
    int64_t jump[FEW_BITS];  /* from an element to that with the summed bit, in x */
    int pairs;
    bool square, keep_l2;
};

/* Neighbouring sums, stored at once. */
template <typename Out, int N>
struct alignas(N * sizeof(Out) < 16 ? N * sizeof(Out) : 16) sums_of_thread {
    Out v[N];
};

template <typename Term, int BITS, bool PACKED>
__global__ void
__launch_bounds__(BLOCK) partition_reduce_few_bits(few_bits_call<Term> p)
{
    using T = typename Term::T;
    using Out = typename Term::Out;
    constexpr int VEC = PACKED ? pack<T>::SIZE : 1, N = 1 << BITS;
    const int64_t first =
        (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) * VEC;
    if (first >= p.sums) {
        return;
    }
    int64_t i = first;
#pragma unroll
    for (int b = 0; b < BITS; b++) {
        i += i & p.above[b];
    }
    const T *const x = p.x + (i >> p.pairs) * p.stride + (i & p.pairs);
    const uint64_t policy = PACKED ? l2_policy(p.keep_l2) : 0;
    T loaded[N][VEC];
    int64_t at[N] = {};
#pragma unroll
    for (int k = 0; k < N; k++) {
#pragma unroll
        for (int b = 0; b < BITS; b++) {
            at[k] += k >> b & 1 ? p.jump[b] : 0;
        }
        load_elements<Term, PACKED>(x + at[k], policy, loaded[k]);
    }
    sums_of_thread<Out, VEC> sums;
#pragma unroll
    for (int e = 0; e < VEC; e++) {
        sums.v[e] = result_of<Term>(sum_loads<Term, N, VEC>(loaded, e, p.square));
    }
    *reinterpret_cast<sums_of_thread<Out, VEC> *>(p.out + first) = sums;
}

/* Whether packs of x give packs of sums, from whole sectors: whatever `out` is. */
static bool
has_packs(const gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    const int bytes = gpo_dtypes[plan.dtype].bytes;
    for (int b = 0; b < plan.n && bytes << b < SECTOR_BYTES; b++) {
        if (plan.to[b] < 0) {
            return false;
        }
    }
    return is_packed(call);
}

bool
has_few_bits(const gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    const int summed = plan.n - plan.k;
    if (summed < 1 || summed > FEW_BITS) {
        return false;
    }
    for (int b = 0, kept = 0; b < plan.n; b++) {
        if (plan.to[b] >= 0 && plan.to[b] != kept++) {
            return false;
        }
    }
    return true;
}

template <typename Term, bool PACKED>
static gpo_status
launch(gpo_call *call, const few_bits_call<Term> &p, int bits)
{
    constexpr int VEC = PACKED ? pack<typename Term::T>::SIZE : 1;
    const dim3 grid(static_cast<unsigned>(ceil_div(p.sums, VEC * BLOCK)));
    switch (bits) {
        case 1:
            return GPO_LAUNCH(call, grid, BLOCK, 0,
                              (partition_reduce_few_bits<Term, 1, PACKED>), p);
        case 2:
            return GPO_LAUNCH(call, grid, BLOCK, 0,
                              (partition_reduce_few_bits<Term, 2, PACKED>), p);
        case 3:
            return GPO_LAUNCH(call, grid, BLOCK, 0,
                              (partition_reduce_few_bits<Term, 3, PACKED>), p);
        default:
            return GPO_LAUNCH(call, grid, BLOCK, 0,
                              (partition_reduce_few_bits<Term, 4, PACKED>), p);
    }
}

template <typename Term>
gpo_status
few_bits::run(gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    void *const out = call->out[0].data;
    few_bits_call<Term> p = {};
    p.x = static_cast<const typename Term::T *>(call->in[0].data);
    p.out = static_cast<typename Term::Out *>(out);
    p.sums = bit_at(plan.k);
    p.stride = plan.stride;
    p.pairs = plan.pairs;
    p.square = plan.square;
    p.keep_l2 = bit_at(plan.n) <= KEEP_L2_BYTES / gpo_dtypes[plan.dtype].bytes;
    int bits = 0;
    for (int b = 0; b < plan.n; b++) {
        if (plan.to[b] < 0) {
            p.above[bits] = -bit_at(b);
            p.jump[bits++] = place_of(plan, bit_at(b));
        }
    }
    const int64_t packs = p.sums >> pack_bits_of(call);
    const bool packed = has_packs(call) && reinterpret_cast<uintptr_t>(out) % 16 == 0 &&
                        packs >= static_cast<int64_t>(gpo_processors(call)) * BLOCK;
    return packed ? launch<Term, true>(call, p, bits)
                  : launch<Term, false>(call, p, bits);
}

#define INSTANTIATE(Term) template gpo_status few_bits::run<Term>(gpo_call * call);
PARTITION_REDUCE_EVERY_TERM(INSTANTIATE)
