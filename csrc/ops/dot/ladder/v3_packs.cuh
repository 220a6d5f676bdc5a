/*
 * v3  Wide sums, many loads in flight.
 * Was:   v2 adds in half precision, in an order that differs from run to run, and waits
 *        for two 4-byte loads at a time.
 * Now:   4 packs of 16 bytes per array and thread in flight; products are added in
 *        float within a tile, then in double; blocks store their parts and the last one
 *        adds them in order.  If y is misaligned relative to x, a pack of y is cut out
 *        of two aligned ones.
 * Cost:  reads 2 * n * sizeof(T) bytes once, one launch.
 * Left:  it is bandwidth-bound; small arrays pay for the launch.  Arrays with gaps have
 *        no packs and run shapes/strided.cu, which takes every dtype as v3 does.
 */
#ifndef GPO_DOT_V3_PACKS_CUH
#define GPO_DOT_V3_PACKS_CUH

#include "../packs.cuh"
#include "../parts.cuh"

template <typename S, bool SHIFTED>
__global__ void
__launch_bounds__(BLOCK, BLOCKS_PER_SM)
    dot_v3_packs(dot_packs<typename S::T> a, block_parts<typename S::Part> parts,
                 typename S::T *out)
{
    using T = typename S::T;
    constexpr int N = SHIFTED ? SHIFTED_ITEMS : ITEMS;
    constexpr int64_t TILE = BLOCK * N;
    const uint64_t policy = l2_policy(a.keep_l2);
    const int64_t tid = threadIdx.x, tiles = a.packs / TILE;
    const char *const start = reinterpret_cast<const char *>(a.y + a.head);
    const uint4 *const x = reinterpret_cast<const uint4 *>(a.x + a.head);
    const uint4 *const y =
        reinterpret_cast<const uint4 *>(SHIFTED ? start - a.shift : start);

    typename S::Fold fold;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t k = tile * TILE + tid;
        fold.add(S::widen(sum_packs<S, SHIFTED, N, true>(x + k, y + k, BLOCK, N * BLOCK,
                                                         a.shift, policy)));
    }
    if (blockIdx.x == tiles % gridDim.x) { /* the block that is next has the rest */
        const int64_t k = tiles * TILE + tid;
        dot_ends<S> ends;
        ends.load(a, tid);
        fold.add(S::widen(sum_packs<S, SHIFTED, N, false>(
            x + k, y + k, BLOCK, a.packs - k, a.shift, policy)));
        fold.add(S::widen(ends.sum()));
    }
    finish<S>(fold.value(), parts, out);
}

template <typename T>
static gpo_status
dot_v3(gpo_call *call)
{
    using S = sum_of<T>;
    using E = typename S::T;
    dot_view<E> a = view_of<E>(call);
    if (has_gaps(*dot_plan_of(call)) || !peels(&a)) {
        return dot_strided<T>(call);
    }
    const dot_packs<E> packs = packs_of(a);
    const int items = packs.shift ? SHIFTED_ITEMS : ITEMS;
    const unsigned grid =
        resident_grid(call, ceil_div(packs.n, BLOCK * items * pack<E>::SIZE));
    block_parts<typename S::Part> parts;
    const gpo_status status = parts_for(call, grid, &parts);
    if (status) {
        return status;
    }
    E *out = static_cast<E *>(call->out[0].data);
    return packs.shift ? GPO_LAUNCH(call, grid, BLOCK, 0, (dot_v3_packs<S, true>),
                                    packs, parts, out)
                       : GPO_LAUNCH(call, grid, BLOCK, 0, (dot_v3_packs<S, false>),
                                    packs, parts, out);
}

#endif
