/*
 * one_wave.cu  Few rows of middling length, whose blocks all run at once: a block publishes
 * its total, waits for those of all blocks before it in its row and adds them up, a thread
 * for each, in a fixed order.  No block waits for a prefix that another has waited for.
 * Cost:  reads x once, writes out once; a word or more per block (device/exchange.cuh); per 16 bytes of x, 16 bytes of shared memory are written once and
 *        read twice.  A view not in the order of out is copied first.
 */
#include "../../../device/exchange.cuh"
#include "../lookback.cuh"
#include "../parked_packs.cuh"
#include "../prepare.cuh"

/* Combines the totals of blocks [0, t) of a row, in order; all threads get it. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
sum_of_blocks(const uint64_t *words, int t, typename Op::Part (&slots)[WARP])
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int tid = threadIdx.x, warp = tid / WARP;
    if (warp * WARP < t) {
        Part v = Fold::identity();
        if (tid < t) {
            status_value<Acc> seen;
            do { /* without a pause: the blocks before run already */
                seen = peek<Acc>(words + tid * WORDS<Acc>, 1);
            } while (!seen.complete());
            v = Op::widen(seen.value());
        }
        v = warp_scan<Fold>(v);
        if (tid % WARP == WARP - 1) {
            slots[warp] = v;
        }
    }
    __syncthreads();
    Part before = Fold::identity();
#pragma unroll 1
    for (int w = 0; w * WARP < t; w++) {
        before = Fold::combine(before, slots[w]);
    }
    return before;
}

template <typename Op>
__global__ void
__launch_bounds__(WAVE_THREADS)
    scan_one_wave_kernel(Op op, scan_view<typename Op::Out> a, int packs,
                         unsigned across, uint64_t *exchange)
{
    using Acc = typename Op::Acc;
    GPO_DYN_SHARED(pack<typename Op::Raw>, memory);
    GPO_SHARED(Acc, slots, [WARP]);
    GPO_SHARED(typename Op::Part, earlier, [WARP]);
    GPO_SHARED(unsigned long long, slot, [1]);
    const exchange_turn turn = take_turn(exchange, slot);
    const unsigned row = turn.number / across;
    const int t = static_cast<int>(turn.number - row * across);
    const parked_packs<Op> mine(op, a, row, t, packs, memory);
    clear_for_next(turn);
    await_copies();
    const Acc sums = mine.sums_of_warps(op, slots);
    uint64_t *const words = turn.words + row * across * WORDS<Acc>;
    if (threadIdx.x == WARP - 1) {
        publish(words + t * WORDS<Acc>, 1, sums);
    }
    const Acc before = Op::narrow(sum_of_blocks<Op>(words, t, earlier));
    mine.store(op, a, sums, before);
}

struct one_wave {
    template <typename Op>
    static gpo_status rows(gpo_call *call, const scan_view<typename Op::Out> &a,
                           const Op &op)
    {
        const one_wave_blocks b =
            one_wave_blocks_of(call, a.rows, tiles_across<Op>(a, Op::VEC));
        const int64_t blocks = a.rows * b.across;
        const size_t bytes = static_cast<size_t>(b.packs) * b.threads * 16;
        uint64_t *exchange = nullptr;
        gpo_allow_shared(scan_one_wave_kernel<Op>, bytes);
        const gpo_status failed = exchange_for(call, &exchange);
        return failed ? failed
                      : GPO_LAUNCH(call, dim3(static_cast<unsigned>(blocks)), b.threads,
                                   bytes, (scan_one_wave_kernel<Op>), op, a, b.packs,
                                   static_cast<unsigned>(b.across), exchange);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        if constexpr (Op::AS_READ) {
            return for_each_row_view<one_wave>(call, op);
        }
        else {
            return gpo_fail(&call->error, GPO_ETYPE, "scan() keeps no such element");
        }
    }
};

/* Only for calls where has_one_wave is true. */
template <typename T>
gpo_status
scan_one_wave(gpo_call *call)
{
    return scan_with<one_wave, T, true>(call);
}

#define INSTANTIATE(T) template gpo_status scan_one_wave<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
