/*
 * v1  Pairs of halves.
 * Was:   v0 loads, multiplies and adds single halves.
 * Now:   4-byte loads, two products per instruction, and one packed atomic: the sum of
 *        the even elements goes to one half of a pair, that of the odd ones to the
 *        other.  (The source adds one sum to both.)  A last kernel adds the halves.
 * Cost:  as v0 with half the instructions; arrays that start on different halves of a
 *        word, or have gaps, are read one element at a time.
 * Left:  an array of results has no spare pair for every half -> v2.
 */
#ifndef GPO_DOT_V1_PAIRS_CUH
#define GPO_DOT_V1_PAIRS_CUH

#include "../atomic_sum.cuh"

template <typename Half, bool PACKED>
__device__ __forceinline__ typename half_pair<Half>::type
sum_pairs(const dot_view<Half> &a)
{
    using Pair = typename half_pair<Half>::type;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    /* PACKED: elements before the first whole word, as many in both arrays */
    const int64_t head = PACKED && (reinterpret_cast<uintptr_t>(a.x) & 2u) ? 1 : 0;
    const int64_t pairs = a.n > head ? (a.n - head) / 2 : 0;
    Pair mine;
    mine.x = mine.y = stored_as<Half>(0.0f);
    for (int64_t k = first; k < pairs; k += step) {
        Pair p, q;
        if constexpr (PACKED) {
            const unsigned *x = reinterpret_cast<const unsigned *>(a.x + head);
            const unsigned *y = reinterpret_cast<const unsigned *>(a.y + head);
            const unsigned x_word = x[k], y_word = y[k];
            memcpy(&p, &x_word, sizeof p);
            memcpy(&q, &y_word, sizeof q);
        }
        else {
            p.x = a.x[2 * k * a.x_stride];
            p.y = a.x[(2 * k + 1) * a.x_stride];
            q.x = a.y[2 * k * a.y_stride];
            q.y = a.y[(2 * k + 1) * a.y_stride];
        }
        mine = multiply_add(mine, p, q);
    }
    if (first == 0) {
        if (head && a.n > 0) {
            mine.y = multiply_add(mine.y, a.x[0], a.y[0]);
        }
        const int64_t tail = head + 2 * pairs;
        if (tail < a.n) {
            mine.x =
                multiply_add(mine.x, a.x[tail * a.x_stride], a.y[tail * a.y_stride]);
        }
    }
    return mine;
}

template <typename Half, bool PACKED>
__global__ void
__launch_bounds__(BLOCK)
    dot_v1_pairs(dot_view<Half> a, typename half_pair<Half>::type *sum)
{
    atomic_add(sum, sum_pairs<Half, PACKED>(a));
}

/* The result: the sum of the pair's halves. */
template <typename Half>
__global__ void
dot_v1_finish(const typename half_pair<Half>::type *sum, Half *out)
{
    *out = add_halves(*sum);
}

/* Clears a pair, calls launch(grid, packed, a, pair) to add to it, adds its halves. */
template <typename Half, typename Launch>
gpo_status
in_a_pair(gpo_call *call, Launch launch)
{
    using Pair = typename half_pair<Half>::type;
    const dot_view<Half> a = view_of<Half>(call);
    const uintptr_t apart =
        reinterpret_cast<uintptr_t>(a.x) ^ reinterpret_cast<uintptr_t>(a.y);
    const bool packed = a.x_stride == 1 && a.y_stride == 1 && apart % sizeof(Pair) == 0;
    void *memory = nullptr;
    gpo_status status = gpo_scratch(call, sizeof(Pair), &memory);
    Pair *sum = static_cast<Pair *>(memory);
    if (!status) {
        status = GPO_LAUNCH(call, 1, 1, 0, (dot_clear<unsigned>),
                            static_cast<unsigned *>(memory));
    }
    if (!status) {
        status = launch(atomic_grid(call, ceil_div(a.n, 2)), packed, a, sum);
    }
    return status ? status
                  : GPO_LAUNCH(call, 1, 1, 0, (dot_v1_finish<Half>), sum,
                               static_cast<Half *>(call->out[0].data));
}

template <typename Half>
static gpo_status
dot_v1(gpo_call *call)
{
    return in_a_pair<Half>(
        call, [=](unsigned grid, bool packed, const auto &a, auto *sum) {
            return packed ? GPO_LAUNCH(call, grid, BLOCK, 0, (dot_v1_pairs<Half, true>),
                                       a, sum)
                          : GPO_LAUNCH(call, grid, BLOCK, 0,
                                       (dot_v1_pairs<Half, false>), a, sum);
        });
}

#endif
