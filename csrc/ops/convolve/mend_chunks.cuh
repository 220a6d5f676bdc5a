/*
 * mend_chunks.cuh  Which sums of large_transforms a transform may compute, and the
 * kernel that adds up all others term by term, with v2's window.
 */
#ifndef GPO_CONVOLVE_MEND_CHUNKS_CUH
#define GPO_CONVOLVE_MEND_CHUNKS_CUH

#include "amounts.cuh"
#include "signal_stage.cuh"
#include "tuning.cuh"
#include "ladder/v2_register_window.cuh"

/*
 * What the windows of a chunk of sums share: the whole chunks between the last window's
 * first input and the first one's last.  The energy of the block may be `growth` times
 * theirs.
 */
template <typename T>
struct shared_windows {
    const amount *chunks; /* of the row */
    int64_t low, high;    /* those that are shared */
    double needed;        /* energy of these, over 4^exponent */
    int exponent;
    bool is_finite; /* the block, the filter, and the sums so far */

    __device__ __forceinline__ shared_windows(const large_pass<T> &pass, int64_t row,
                                              int64_t sums)
        : chunks(pass.chunks + row * pass.n.chunks)
    {
        const int64_t block = quotient(sums * CHUNK - pass.l.begin, pass.l.step);
        const amount all = pass.blocks_of_rows[row * pass.l.blocks + block];
        const amount taps = pass.filters_alone[pass.filter_of(row)];
        is_finite = all.exponent < amount::INFINITE &&
                    taps.exponent < amount::INFINITE &&
                    !pass.spoiled[row * pass.n.sums + sums];
        exponent = all.exponent;
        needed = all.energy / static_cast<double>(pass.growth);
        const int64_t first = (sums + 1) * CHUNK - pass.c.m; /* input */
        low = first > 0 ? ceil_div(first, CHUNK) : 0;
        high = sums < pass.n.chunks ? sums : pass.n.chunks;
    }

    /* For one thread: whether a few chunks have the energy, as where rows are plain. */
    __device__ __forceinline__ bool have_it_plainly() const
    {
        double found = 0;
        for (int64_t i = high - 1; i >= low && i > high - 4 && found < needed; i--) {
            found += amounts_added::energy_at(chunks[i], exponent);
        }
        return is_finite && found >= needed;
    }

    /* For one warp: the energy of the chunks, or as much of it as is needed. */
    __device__ __forceinline__ double found_by_warp() const
    {
        double found = 0;
        for (int64_t end = high; found < needed && end > low; end -= WARP) {
            const int64_t mine = end - 1 - threadIdx.x % WARP;
            double own = 0;
            if (mine >= low) {
                own = amounts_added::energy_at(chunks[mine], exponent);
            }
            found += shuffle_from(warp_combine<doubles_added>(own), 0);
        }
        return found;
    }

    /* For one warp: whether all inputs of all windows are zeros. */
    __device__ __forceinline__ bool are_silent(const large_pass<T> &pass,
                                               int64_t sums) const
    {
        const int64_t end = sums + 1 < pass.n.chunks ? sums + 1 : pass.n.chunks;
        bool silent = true;
        for (int64_t i = low > 1 ? low - 2 : 0; i < end && silent; i += WARP) {
            const int64_t mine = i + threadIdx.x % WARP;
            silent = !__any_sync(ALL_LANES, mine < end && chunks[mine].exponent !=
                                                              amount::NOTHING);
        }
        return silent;
    }
};

/* Groups of lanes that each take every GROUPS-th 512 terms of the sums of a chunk. */
template <typename V>
struct mend_shape {
    static constexpr int N = SUMS<V>, LANES = CHUNK / N, GROUPS = THREADS / LANES;
    static constexpr int DEPTH = LANES / 8 > 2 ? LANES / 8 : 2; /* rows of terms */
    static constexpr int TERMS = DEPTH * N;
    static constexpr int GROUP_NUMBERS = (DEPTH + LANES) * PITCH<V> + TERMS;
    static_assert(CONVOLVE_CHUNK % TERMS == 0 && DEPTH % 2 == 0, "whole stages");
    static_assert(GROUPS * GROUP_NUMBERS * sizeof(V) <= STAGE_BYTES, "the groups fit");
    static_assert(GROUPS * CHUNK <= GROUPS * GROUP_NUMBERS, "so do their sums");
};

/* Whether inputs [low, high) of a row lie in groups of chunks that are all zeros. */
template <typename T>
__device__ __forceinline__ bool
is_silent(const large_pass<T> &pass, int64_t row, int64_t low, int64_t high)
{
    const int64_t end = high < pass.c.n ? high : pass.c.n;
    bool silent = true;
    for (int64_t i = (low > 0 ? low : 0) / GROUP; i * GROUP < end && silent; i++) {
        silent = pass.groups[row * pass.n.groups + i].exponent == amount::NOTHING;
    }
    return silent;
}

/* Adds up the sums of a chunk by a block of threads, and stores them. */
template <typename T>
__device__ __forceinline__ void
put_chunk(const large_pass<T> &pass, int64_t row_index, int64_t sums,
          value_type<T> *stage)
{
    const convolve_view<T> &c = pass.c;
    using V = value_type<T>;
    using shape = mend_shape<V>;
    constexpr int N = shape::N, LANES = shape::LANES, GROUPS = shape::GROUPS;
    const int group = static_cast<int>(threadIdx.x) / LANES;
    const int lane = static_cast<int>(threadIdx.x) % LANES;
    V *const signal = stage + group * shape::GROUP_NUMBERS;
    V *const filter = signal + (shape::DEPTH + LANES) * PITCH<V>;
    const row_operands<T> row = find_row(c, row_index);
    const zero_padded<T> taps = {row.v, c.v_step, c.m};
    const int64_t full = sums * CHUNK, past = full + CHUNK;
    const int64_t low = full - c.n + 1 > 0 ? full - c.n + 1 : 0;
    const int64_t high = past < c.m ? past : c.m;
    /* A group takes 512 terms at a time, or so many that all groups have some. */
    const int64_t share = ceil_div(high - low, GROUPS * shape::TERMS) * shape::TERMS;
    const int piece = static_cast<int>(share < CONVOLVE_CHUNK ? share : CONVOLVE_CHUNK);
    total<V> all[N];
#pragma unroll 1
    for (int64_t from = low; from < high; from += GROUPS * piece) {
        const int64_t own = from + group * piece;
        if (is_silent(pass, row_index, full - from - GROUPS * piece, past - from)) {
            continue;
        }
        V sum[N] = {};
#pragma unroll 1
        for (int s = 0; s < piece; s += shape::TERMS) {
            const int64_t k = own + s;
            __syncthreads();
            for (int x = lane; x < shape::TERMS; x += LANES) {
                filter[x] = k + x < high ? taps[k + x] : V{};
            }
            fill_signal<T>(c, row.a, full - k - shape::TERMS, shape::TERMS + CHUNK,
                           lane, LANES, signal);
            __syncthreads();
            V now[N], before[N];
            const V *at = signal + (shape::DEPTH + lane) * PITCH<V>, *tap = filter;
            load_row(now, at);
#pragma unroll 1
            for (int b = 0; b < shape::DEPTH; b += 2) {
                load_row(before, at - PITCH<V>);
                slide(sum, now, before, tap);
                load_row(now, at - 2 * PITCH<V>);
                slide(sum, before, now, tap + N);
                at -= 2 * PITCH<V>;
                tap += 2 * N;
            }
        }
#pragma unroll
        for (int j = 0; j < N; j++) {
            all[j].add(sum[j]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; j++) {
        stage[group * CHUNK + lane * N + j] = all[j].value();
    }
    __syncthreads();
    total<V> sum;
    for (int g = 0; g < GROUPS; g++) {
        sum.add(stage[g * CHUNK + threadIdx.x]);
    }
    const int64_t at = full + threadIdx.x - c.first;
    if (at >= 0 && at < c.count) {
        put(c, row, row_index, at, sum.value());
    }
    __syncthreads();
}

/* Stores zeros as the sums of a chunk, by one warp. */
template <typename T>
__device__ __forceinline__ void
put_zeros(const convolve_view<T> &c, int64_t row, int64_t sums)
{
    for (int i = static_cast<int>(threadIdx.x) % WARP; i < CHUNK; i += WARP) {
        const int64_t at = sums * CHUNK + i - c.first;
        if (at >= 0 && at < c.count) {
            c.out[row * c.count + at] = result_of<T>(value_type<T>{});
        }
    }
}

/* Marks the results of a chunk of sums for long_filters, if they have many terms. */
template <typename T>
__device__ __forceinline__ bool
leave_chunk(const large_pass<T> &pass, int64_t row, int64_t sums)
{
    const convolve_view<T> &c = pass.c;
    const int64_t full = sums * CHUNK, last = full + CHUNK - 1;
    const int64_t low = full - c.n + 1 > 0 ? full - c.n + 1 : 0;
    const int64_t high = last + 1 < c.m ? last + 1 : c.m;
    if (!pass.wide || high - low <= MOST_ADDED) {
        return false;
    }
    const int64_t begin = full > c.first ? full - c.first : 0;
    const int64_t end = last - c.first < c.count ? last - c.first : c.count - 1;
    int *const own = pass.wide + 1 + row * ceil_div(c.count, WIDE_SUMS);
    if (threadIdx.x % WARP == 0) {
        atomicOr(pass.wide, 1);
        atomicOr(own + begin / WIDE_SUMS, 1);
        atomicOr(own + end / WIDE_SUMS, 1);
    }
    return true;
}

/*
 * Each thread tests a chunk of sums, a warp those for which that is not enough, and the
 * block adds up those that are left.  Neighbouring chunks are in different blocks.
 */
template <typename T>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    convolve_large_transforms_mend(const __grid_constant__ large_pass<T> pass)
{
    constexpr int WARPS = THREADS / WARP;
    static_assert(CHUNK == THREADS, "a thread stores a sum");
    GPO_SHARED(uint4, stage, [STAGE_BYTES / 16]);
    GPO_SHARED(unsigned, left, [WARPS]); /* by lane: chunks that are added up */
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    const convolve_view<T> &c = pass.c;
    const int64_t low = c.first / CHUNK;
    const int64_t each = ceil_div(c.first + c.count, CHUNK) - low;
    const int64_t items = c.count_rows * each;
    for (int64_t base = blockIdx.x; base < items;
         base += int64_t{gridDim.x} * THREADS) {
        const auto item = [&](int thread) {
            return base + int64_t{gridDim.x} * thread;
        };
        const int64_t mine = item(static_cast<int>(threadIdx.x));
        bool good = true;
        if (mine < items) {
            const int64_t row = quotient(mine, each);
            const shared_windows<T> windows(pass, row, low + mine - row * each);
            good = windows.have_it_plainly();
        }
        unsigned unsure = __ballot_sync(ALL_LANES, !good), adds = 0;
        while (unsure) {
            const int lane = __ffs(static_cast<int>(unsure)) - 1;
            const int64_t u = item(warp * WARP + lane), row = quotient(u, each);
            const int64_t sums = low + u - row * each;
            const shared_windows<T> windows(pass, row, sums);
            unsure &= unsure - 1;
            const double found = windows.is_finite ? windows.found_by_warp() : 0;
            if (windows.is_finite && found >= windows.needed) {
                continue;
            }
            if (windows.is_finite && windows.are_silent(pass, sums)) {
                put_zeros(c, row, sums);
                continue;
            }
            if (!leave_chunk(pass, row, sums)) {
                adds |= 1u << lane;
            }
        }
        if (threadIdx.x % WARP == 0) {
            left[warp] = adds;
        }
        __syncthreads();
#pragma unroll 1
        for (int w = 0; w < WARPS; w++) {
#pragma unroll 1
            for (unsigned bits = left[w]; bits; bits &= bits - 1) {
                const int lane = __ffs(static_cast<int>(bits)) - 1;
                const int64_t u = item(w * WARP + lane), row = quotient(u, each);
                put_chunk(pass, row, low + u - row * each,
                          reinterpret_cast<value_type<T> *>(stage));
            }
        }
        __syncthreads();
    }
}

#endif
