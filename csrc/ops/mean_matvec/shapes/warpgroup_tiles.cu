/*
 * warpgroup_tiles.cu  Large products of float32 by the matrix instructions of sm_90a:
 * each factor in two parts of 11 bits, three products of these, sums in float32, as in
 * tensor_tiles.cu.  Tiles of 128 outputs by 128 or 64 batches; blocks may share their
 * depth (few_tiles.cu).  A tile with nan, infinities, overflow or tiny factors is made again
 * by ordinary products.
 * Cost:  per stage 24 instructions of 64 or 32 cycles, during which the next stage is copied
 *        and split; the matrix' parts are in registers, the means' in shared memory.
 */
#include "../clusters.cuh"
#include "../../../device/tf32.cuh"
#include "../../../device/wgmma_tf32.cuh"

/* Outputs of a tile, 64 for each of two warpgroups. */
constexpr int SIDE = 128;
template <int BATCHES>
using ordinary_stages = product_stages<float, SIDE, BATCHES>;

template <int BATCHES>
struct warpgroup_stages {
    /* In the 128-byte swizzle.  Of the means the first 11 bits are the high parts. */
    pack<float> rows[WARPGROUP_RING][SIDE + BATCHES][DEPTH_PACKS];
    pack<float> low[2][BATCHES][DEPTH_PACKS]; /* of the means */
};
static_assert(DEPTH_PACKS == 8, "a row of a stage is 128 bytes");

/*
 * The sums of a warp: 16 outputs of all batches.  Tensor cores cut their sums, always
 * toward zero: so those of a stage are made apart and added to `sum` by ordinary
 * additions.
 */
template <int BATCHES>
struct warpgroup_sums {
    using stages = warpgroup_stages<BATCHES>;
    static_assert(sizeof(stages) == warpgroup_bytes(BATCHES),
                  "the plan knows what a tile needs");
    static_assert(sizeof(stages) >= sizeof(ordinary_stages<BATCHES>),
                  "ordinary products have room");
    static constexpr uint32_t TINY = (14u << 24) - 1; /* of 2^-113: below 2 bits - 1 */
    static constexpr int STEPS = DEPTH_PACKS / 2;     /* of 8 terms */
    float sum[BATCHES / 2] = {}, stage[BATCHES / 2];
    uint32_t high[STEPS][4], low[STEPS][4]; /* of the matrix */
    uint32_t least = ~0u; /* 2 bits - 1 of the factors seen, which for zeros is most */

    static __device__ __forceinline__ int g()
    {
        return threadIdx.x % WARP / 4;
    }
    static __device__ __forceinline__ int t()
    {
        return threadIdx.x % 4;
    }
    static __device__ __forceinline__ int i()
    {
        return threadIdx.x / WARP * 16 + g();
    }

    __device__ __forceinline__ void look_at(float value)
    {
        const uint32_t twice = __float_as_uint(value) * 2 - 1;
        least = twice < least ? twice : least;
    }

    /* Writes the low parts of the means: rounded, as bits after the 11th are ignored. */
    __device__ __forceinline__ void
    split_means(const pack<float> (&rows)[SIDE + BATCHES][DEPTH_PACKS],
                pack<float> (&to)[BATCHES][DEPTH_PACKS])
    {
        constexpr int PACKS = BATCHES * DEPTH_PACKS / THREADS;
        constexpr int LINES = BATCHES / PACKS;
        const int r = threadIdx.x / DEPTH_PACKS, k = threadIdx.x % DEPTH_PACKS;
#pragma unroll
        for (int u = 0; u < PACKS; u++) {
            pack<float> p = rows[SIDE + r + u * LINES][k];
#pragma unroll
            for (int e = 0; e < pack<float>::SIZE; e++) {
                look_at(p.v[e]);
                const uint32_t first = __float_as_uint(p.v[e]) & 0xffffe000u;
                const float rest = p.v[e] - __uint_as_float(first);
                p.v[e] = __uint_as_float(__float_as_uint(rest) + 0x1000u);
            }
            to[r + u * LINES][k] = p;
        }
    }

    /* The warp's values of the matrix, as wgmma_tf32 wants them. */
    __device__ __forceinline__ void
    load(float (&a)[STEPS][4], const pack<float> (&rows)[SIDE + BATCHES][DEPTH_PACKS])
    {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                a[k][e] = rows[i() + e % 2 * 8][(2 * k + e / 2) ^ g()].v[t()];
                look_at(a[k][e]);
            }
        }
    }

    __device__ __forceinline__ void split(const float (&a)[STEPS][4])
    {
#pragma unroll
        for (int e = 0; e < STEPS * 4; e++) {
            const tf32_parts parts = parts_of(a[e / 4][e % 4]);
            high[e / 4][e % 4] = parts.high;
            low[e / 4][e % 4] = parts.low;
        }
    }

    /* Starts the products of a stage, the small ones first. */
    __device__ __forceinline__ void start(const wgmma_operand &b,
                                          const wgmma_operand &b_low)
    {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            wgmma_tf32(stage, low[k], b.at(2 * k), k > 0);
        }
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            wgmma_tf32(stage, high[k], b_low.at(2 * k), true);
        }
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            wgmma_tf32(stage, high[k], b.at(2 * k), true);
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void wait()
    {
        wgmma_wait<0>();
        wgmma_settled(stage);
    }

    __device__ __forceinline__ void add_stage()
    {
#pragma unroll
        for (int e = 0; e < BATCHES / 2; e++) {
            sum[e] += stage[e];
        }
    }

    /* Takes the sums from a tile of rows that are `pitch` apart. */
    __device__ __forceinline__ void take(const float *tile, int pitch)
    {
#pragma unroll
        for (int e = 0; e < BATCHES / 2; e++) {
            sum[e] = tile[(i() + e / 2 % 2 * 8) * pitch + e / 4 * 8 + 2 * t() + e % 2];
        }
    }

    /* The tile in shared memory, along `out`, without bank conflicts. */
    __device__ __forceinline__ shared_tile<float> put(float *tile,
                                                      bool along_outputs) const
    {
        constexpr int BATCH = SIDE + 4, OUTPUT = BATCHES + 8; /* apart in memory */
        static_assert(sizeof(stages) >= SIDE * OUTPUT * sizeof(float),
                      "the tile fits where its factors were");
        if (along_outputs) {
#pragma unroll
            for (int e = 0; e < BATCHES / 2; e++) {
                const int n = e / 4 * 8 + 2 * t() + e % 2;
                tile[n * BATCH + i() + e / 2 % 2 * 8] = sum[e];
            }
            return {tile, 1, BATCH};
        }
#pragma unroll
        for (int e = 0; e < BATCHES / 2; e += 2) {
            const int at = (i() + e / 2 % 2 * 8) * OUTPUT + e / 4 * 8 + 2 * t();
            *reinterpret_cast<float2 *>(tile + at) = make_float2(sum[e], sum[e + 1]);
        }
        return {tile, OUTPUT, 1};
    }

    /* Whether parts cannot stand for some factor, or a sum may not be what it should. */
    __device__ __forceinline__ bool is_refused() const
    {
        bool is_refused = least < TINY;
#pragma unroll
        for (int e = 0; e < BATCHES / 2; e++) {
            is_refused |= !(fabsf(sum[e]) < INFINITY);
        }
        return is_refused;
    }
};

/*
 * The sums of a share.  While the products of a stage are made, the parts of the next
 * one are, and two more are on their way.  The second warpgroup starts its products when
 * it has done all else, the first one before: so each adds its sums and splits its rows
 * while the other's products are made.
 */
template <int BATCHES, typename T>
__device__ __forceinline__ void
sum_share(const mean_matvec_view<T> &v, const tile_share &share,
          warpgroup_stages<BATCHES> &stages, warpgroup_sums<BATCHES> &sums)
{
    static_assert(WARPGROUP_RING == 4, "stages: multiplied, split, and two to come");
    const tile_factors<T, SIDE, BATCHES> factors(v, share.output, share.batch,
                                                 share.begin);
    const int64_t terms = share.end - share.begin;
    constexpr int STAGE = DEPTH_PACKS * pack<float>::SIZE;
    const auto bring = [&](int to, int64_t at) {
        if (at < terms) {
            factors.bring(stages.rows[to], at, terms - at, at < WARPGROUP_RING * STAGE);
        }
        group_copies();
    };
    const wgmma_operand means(shared_address(stages.rows[0][SIDE]));
    const wgmma_operand lows(shared_address(stages.low));
    const bool is_late = __shfl_sync(~0u, threadIdx.x / (THREADS / 2), 0) != 0;
    float a[warpgroup_sums<BATCHES>::STEPS][4];
    if (terms > 0) {
#pragma unroll 1
        for (int k = 0; k < WARPGROUP_RING - 1; k++) {
            bring(k, k * STAGE);
        }
        await_groups<2>();
        __syncthreads();
        sums.split_means(stages.rows[0], stages.low[0]);
        if (!is_late) {
            sums.load(a, stages.rows[0]);
            sums.split(a);
        }
        await_groups<1>();
        fence_async_shared();
    }
    int now = 0;
#pragma unroll 1
    for (int64_t at = 0; at < terms; at += STAGE) {
        const int next = (now + 1) % WARPGROUP_RING;
        const bool goes_on = at + STAGE < terms;
        const wgmma_operand high = means.opaque(now * ((SIDE + BATCHES) * DEPTH_PACKS));
        const wgmma_operand low = lows.opaque(now % 2 * (BATCHES * DEPTH_PACKS));
        __syncthreads(); /* the next stage is there, and the one before is done */
        if (!is_late) {
            sums.start(high, low);
        }
        else {
            if (at > 0) {
                sums.add_stage();
            }
            sums.load(a, stages.rows[now]);
            sums.split(a);
        }
        bring((now + 3) % WARPGROUP_RING, at + 3 * STAGE);
        if (goes_on) {
            sums.split_means(stages.rows[next], stages.low[next % 2]);
        }
        if (is_late) {
            sums.start(high, low);
        }
        else if (goes_on) {
            sums.load(a, stages.rows[next]);
        }
        await_groups<1>(); /* here products hide the fence */
        fence_async_shared();
        sums.wait();
        if (!is_late) {
            sums.add_stage();
            if (goes_on) {
                sums.split(a);
            }
        }
        now = next;
    }
    if (is_late && terms > 0) {
        sums.add_stage();
    }
}

template <typename T, int BATCHES, bool IN_CLUSTERS>
__global__ void
__launch_bounds__(THREADS, 1)
    mean_matvec_warpgroup_tiles_product(mean_matvec_view<T> v, int64_t across,
                                        int64_t blocks, shared_depth<float> s)
{
#ifdef GPO_HOPPER
    GPO_SWIZZLED_SHARED(shared);
    each_share<SIDE, BATCHES>(v, across, blocks, s, [&](const tile_share &share) {
        warpgroup_sums<BATCHES> sums;
        sum_share(v, share, *reinterpret_cast<warpgroup_stages<BATCHES> *>(shared),
                  sums);
        if (__syncthreads_or(sums.is_refused())) {
            sums.take(sum_tile<SIDE, BATCHES>(
                          v, share.output, share.batch, share.begin, share.end,
                          *reinterpret_cast<ordinary_stages<BATCHES> *>(shared)),
                      ordinary_stages<BATCHES>::PITCH);
            __syncthreads();
        }
        const shared_tile<float> tile =
            sums.put(reinterpret_cast<float *>(shared), s.along_outputs);
        __syncthreads();
        if (IN_CLUSTERS) {
            put_sums_of_cluster<SIDE, BATCHES>(v, s, share, tile);
        }
        else {
            put_share<SIDE, BATCHES>(v, s, share, tile);
        }
    });
#endif
}

/* ---- launch ---- */

template <int BATCHES, typename T>
static gpo_status
multiply_by_warpgroups(gpo_call *call, const mean_matvec_view<T> &v,
                       const shared_depth<float> &s)
{
    constexpr int BYTES = warpgroup_bytes(BATCHES);
    const int64_t across = ceil_div(v.outputs, int64_t{SIDE});
    const int64_t blocks = across * ceil_div(v.batches, int64_t{BATCHES}) * s.splits;
    if constexpr (std::is_same_v<T, float>) {
        if (s.in_clusters) {
            gpo_allow_shared(mean_matvec_warpgroup_tiles_product<T, BATCHES, true>,
                             BYTES);
            return GPO_LAUNCH_CLUSTERS(
                call, static_cast<unsigned>(s.splits), grid_of(blocks), THREADS, BYTES,
                (mean_matvec_warpgroup_tiles_product<T, BATCHES, true>), v, across,
                blocks, s);
        }
    }
    gpo_allow_shared(mean_matvec_warpgroup_tiles_product<T, BATCHES, false>, BYTES);
    return GPO_LAUNCH(call, grid_of(blocks), THREADS, BYTES,
                      (mean_matvec_warpgroup_tiles_product<T, BATCHES, false>), v,
                      across, blocks, s);
}

template <typename T>
gpo_status
mean_matvec_warpgroup_product(gpo_call *call, const mean_matvec_view<T> &v, int kind,
                              const shared_depth<float> &s)
{
    return kind == LARGE_KIND ? multiply_by_warpgroups<SIDE>(call, v, s)
                              : multiply_by_warpgroups<SIDE / 2>(call, v, s);
}

/* Doubles are on tensor cores in few_tiles. */
template <typename T>
gpo_status
mean_matvec_warpgroup_tiles(gpo_call *call)
{
    if constexpr (std::is_same_v<T, double>) {
        return mean_matvec_few_tiles<T>(call);
    }
    else {
        const bool pads = plan_factors(call).pads;
        const tile_plan plan = plan_warpgroups(size_of_product(call, pads));
        return mean_matvec_planned<T>(call, pads, {plan, 0, plan, plan.us});
    }
}

template gpo_status mean_matvec_warpgroup_tiles<double>(gpo_call *call);

#define INSTANTIATE(T)                                                   \
    template gpo_status mean_matvec_warpgroup_tiles<T>(gpo_call * call); \
    template gpo_status mean_matvec_warpgroup_product<T>(                \
        gpo_call * call, const mean_matvec_view<T> &v, int kind,         \
        const shared_depth<float> &s);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
