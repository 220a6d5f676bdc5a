/*
 * v1  Shared-memory atomics, then global ones: the source's method C.
 * Was:   v0 sends each element to L2.
 * Now:   a fixed grid; each block adds into tables in shared memory and at the end does
 *        one global atomic per place.  A shared-memory atomic on floats is a
 *        compare-and-swap loop that retries when another warp changed the word, so a
 *        block has up to one table per warp, and neighbours of one place are added up
 *        before, in a thread and in a warp.  Indices are loaded in 16-byte packs, values
 *        in groups of as many, several of both in flight.
 * Cost:  as v0, with n shared atomics and blocks * size global ones.  Where the result
 *        does not fit into a table, its later part is added as in v0.
 * Left:  the order of additions, here and in v0, is up to the hardware -> v2, v3.
 */
#ifndef GPO_SCATTER_ADD_V1_SHARED_CUH
#define GPO_SCATTER_ADD_V1_SHARED_CUH

#include <math.h>

#include "../copies.cuh"
#include "../neighbours.cuh"

constexpr int SHARED_WARPS = SHARED_BLOCK / WARP;

template <typename Input, typename Sum>
__global__ void
__launch_bounds__(SHARED_BLOCK, 2)
    scatter_add_v1_shared(Input x, Sum *total, int64_t width, int copies)
{
    using T = typename Input::T;
    using I = typename Input::I;
    constexpr int N = pack<I>::SIZE;
    constexpr int AT_ONCE = sizeof(Sum) > sizeof(double) ? 1 : GROUPS_AT_ONCE;
    GPO_DYN_SHARED(Sum, tables);
    const int tid = threadIdx.x, warp = tid / WARP;
    Sum *const table = tables + warp % copies * width;

    for (int64_t b = tid; b < width * copies; b += SHARED_BLOCK) {
        tables[b] = Sum{};
    }
    __syncthreads();

    const auto add = [&](int64_t at, Sum sum) {
        if (static_cast<uint64_t>(at) < static_cast<uint64_t>(width)) {
            atomic_add(&table[at], sum);
        }
        else if (at >= 0) {
            atomic_add(&total[at], sum);
        }
    };
    /* Adds all runs of equal places but the last, which is returned. */
    const auto add_group = [&](const group<T, N> &v, const group<I, N> &raw,
                               int64_t i) {
        place_and_sum<Sum> run = {x.place(raw.v[0], i), x.lift(v.v[0])};
#pragma unroll
        for (int k = 1; k < N; k++) {
            const int64_t at = x.place(raw.v[k], i + k);
            if (at != run.at) {
                add(run.at, run.sum);
                run = {at, Sum{}};
            }
            run.sum = run.sum + x.lift(v.v[k]);
        }
        return run;
    };

    const bool line = x.index_stride == 1;
    const int64_t head = line ? elements_to_boundary(x.index, x.n) : 0;
    const int64_t groups = line ? (x.n - head) / N : 0;
    const bool packed =
        x.values_stride == 1 &&
        reinterpret_cast<uintptr_t>(x.values + head) % alignof(group<T, N>) == 0;
    constexpr int64_t TILE = SHARED_BLOCK * AT_ONCE;
    for (int64_t first = blockIdx.x * TILE; first < groups; first += gridDim.x * TILE) {
        const int64_t g = first + tid;
        if (first + TILE <= groups) {
            group<T, N> v[AT_ONCE];
            group<I, N> raw[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                const int64_t i = head + (g + u * SHARED_BLOCK) * N;
                raw[u] = load_group<I, N>(x.index, 1, i, true);
                v[u] = load_group<T, N>(x.values, x.values_stride, i, packed);
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                const int64_t i = head + (g + u * SHARED_BLOCK) * N;
                place_and_sum<Sum> run = add_group(v[u], raw[u], i);
                if (joined(&run)) {
                    add(run.at, run.sum);
                }
            }
            continue;
        }
#pragma unroll 1
        for (int64_t last = g; last < groups; last += SHARED_BLOCK) {
            const int64_t i = head + last * N;
            const auto run =
                add_group(load_group<T, N>(x.values, x.values_stride, i, packed),
                          load_group<I, N>(x.index, 1, i, true), i);
            add(run.at, run.sum);
        }
    }
    /* Before the first pack and after the last; all of an index with a stride. */
    const int64_t loose = x.n - groups * N;
#pragma unroll 1
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * SHARED_BLOCK + tid; k < loose;
         k += static_cast<int64_t>(gridDim.x) * SHARED_BLOCK) {
        const int64_t i = k < head ? k : groups * N + k;
        add(x.place(x.raw(i), i), x.lift(x.values[i * x.values_stride]));
    }
    __syncthreads();

    for (int64_t b = tid; b < width; b += SHARED_BLOCK) {
        Sum sum = tables[b];
        for (int c = 1; c < copies; c++) {
            sum = sum + tables[c * width + b];
        }
        atomic_add(&total[b], sum);
    }
}

/* The tables of a block, and the grid. */
struct table_launch {
    int64_t width; /* places of a table */
    int copies;    /* tables */
    size_t bytes;  /* of all tables */
    dim3 grid;
};

/* For n elements into `size` sums of `sum_bytes`; a pack holds `group` indices. */
inline table_launch
table_launch_of(const gpo_call *call, int64_t n, int64_t size, int64_t sum_bytes,
                int group)
{
    const int64_t room = gpo_shared_room(call);
    const int64_t width = size < room / sum_bytes ? size : room / sum_bytes;
    int copies = 1;
    while (copies < SHARED_WARPS && 2 * copies * width * sum_bytes <= COPIES_BYTES) {
        copies *= 2;
    }
    const int64_t bytes = copies * width * sum_bytes;
    const int64_t per_sm = clamp((room + 1024) / (bytes + 1024), 1, 2);
    const int64_t tile = SHARED_BLOCK * GROUPS_AT_ONCE * group;
    /* The time of n / blocks elements, and that of blocks * width additions to L2. */
    const int64_t even = static_cast<int64_t>(
        sqrt(static_cast<double>(n) * static_cast<double>(width) / STEPS_OF_MERGE));
    const int64_t least = even > tile ? even : tile;
    const int64_t blocks = clamp(ceil_div(n, least), 0, per_sm * gpo_processors(call));
    return {width, copies, static_cast<size_t>(bytes),
            dim3(static_cast<unsigned>(blocks))};
}

struct scatter_add_v1 {
    static constexpr bool DETERMINISTIC = false;

    template <typename T, typename I, typename Sum>
    static gpo_status launch(gpo_call *call, const scatter_add_input<T, I> &x,
                             Sum *total)
    {
        using Input = scatter_add_input<T, I>;
        const table_launch t =
            table_launch_of(call, x.n, x.size, sizeof(Sum), pack<I>::SIZE);
        gpo_allow_shared(scatter_add_v1_shared<Input, Sum>, t.bytes);
        const gpo_status status =
            clear(call, total, x.size * static_cast<int64_t>(sizeof(Sum)), x.fresh);
        return status ? status
                      : GPO_LAUNCH(call, t.grid, SHARED_BLOCK, t.bytes,
                                   (scatter_add_v1_shared<Input, Sum>), x, total,
                                   t.width, t.copies);
    }

    /* Packs of indices have a type: a kernel for each width. */
    template <typename T, typename Sum>
    static gpo_status run(gpo_call *call, const scatter_add_input<T, int64_t> &x,
                          Sum *total)
    {
        return x.is_wide ? launch(call, x, total) : launch(call, narrow(x), total);
    }
};

#endif
