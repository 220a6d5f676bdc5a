/*
 * tensor_tiles.cu  Large products of float32 on tensor cores: each factor in two parts of
 * 11 bits, three products of these, sums in float32.  Tiles of 64 by 64 and of 128 by
 * 128 results; blocks may share their depth (few_tiles.cu).  A tile with nan,
 * infinities, overflow or tiny factors is made again by ordinary products.
 * Cost:  as few_tiles, with three times the products at some eight times the rate.
 */
#include "../splits.cuh"
#include "../../../device/tf32.cuh"

/*
 * A warp computes ROWS x COLUMNS blocks of 16 outputs by 8 batches.  Parts are made of
 * values when they are read, three instructions for each.  Tensor cores cut their sums,
 * always toward zero: so those of a stage are made apart and added to `sum` by ordinary
 * additions.
 */
template <typename V, int OUTPUTS, int BATCHES>
struct tensor_sums {
    static constexpr int DOWN = 2, ACROSS = TILE_WARPS / DOWN, SHARES = 1, share = 0;
    static constexpr int ROWS = OUTPUTS / (16 * DOWN), COLUMNS = BATCHES / (8 * ACROSS);
    static constexpr int AT_ONCE = ROWS > 2 ? 1 : ROWS; /* rows of blocks: registers */
    static constexpr int ROW_PACKS = DEPTH_PACKS + 1;   /* 8 rows start in 8 banks */
    static_assert(COLUMNS % 2 == 0, "blocks are multiplied in pairs");
    static constexpr uint32_t TINY = (14u << 24) - 1; /* of 2^-113: below 2 bits - 1 */
    float sum[ROWS][COLUMNS][4] = {};

    /* The lane's g and t in multiply_add, and the first output and batch of its warp. */
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
        return threadIdx.x / WARP % DOWN * (16 * ROWS);
    }
    static __device__ __forceinline__ int n()
    {
        return threadIdx.x / WARP / DOWN * (8 * COLUMNS);
    }

    __device__ __forceinline__ void
    add(const pack<float> (&rows)[OUTPUTS + BATCHES][ROW_PACKS], int packs)
    {
        constexpr int LINES = THREADS / DEPTH_PACKS;
#pragma unroll 1
        for (int r = threadIdx.x / DEPTH_PACKS; r < OUTPUTS + BATCHES; r += LINES) {
            const pack<float> p = rows[r][threadIdx.x % DEPTH_PACKS];
#pragma unroll
            for (int e = 0; e < pack<float>::SIZE; e++) {
                if (__float_as_uint(p.v[e]) * 2 - 1 < TINY) { /* not a zero */
                    sum[0][0][0] = NAN;
                }
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r += AT_ONCE) {
            float stage[AT_ONCE][COLUMNS][4] = {};
#pragma unroll 1
            for (int k = 0; k < packs; k += 2) {
                add_blocks(stage, rows, r, k);
            }
#pragma unroll
            for (int e = 0; e < AT_ONCE * COLUMNS * 4; e++) {
                const int down = e / 4 / COLUMNS, across = e / 4 % COLUMNS;
                sum[r + down][across][e % 4] += stage[down][across][e % 4];
            }
        }
    }

    /* The products of packs k and k + 1 of some rows of blocks. */
    __device__ __forceinline__ void
    add_blocks(float (&stage)[AT_ONCE][COLUMNS][4],
               const pack<float> (&rows)[OUTPUTS + BATCHES][ROW_PACKS], int first,
               int k)
    {
        const auto at = [&](int row, int half) {
            return parts_of(rows[row + g()][k + half].v[t()]);
        };
        uint32_t high[AT_ONCE][4], low[AT_ONCE][4];
#pragma unroll
        for (int r = 0; r < AT_ONCE; r++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const tf32_parts a = at(i() + (first + r) * 16 + e % 2 * 8, e / 2);
                high[r][e] = a.high;
                low[r][e] = a.low;
            }
        }
#pragma unroll
        for (int c = 0; c < COLUMNS; c += 2) { /* two have no sums in common */
            uint32_t above[2][2], below[2][2];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const tf32_parts b = at(OUTPUTS + n() + (c + e / 2) * 8, e % 2);
                above[e / 2][e % 2] = b.high;
                below[e / 2][e % 2] = b.low;
            }
#pragma unroll
            for (int r = 0; r < AT_ONCE; r++) {
                multiply_add(stage[r][c], low[r], above[0]);
                multiply_add(stage[r][c + 1], low[r], above[1]);
                multiply_add(stage[r][c], high[r], below[0]);
                multiply_add(stage[r][c + 1], high[r], below[1]);
                multiply_add(stage[r][c], high[r], above[0]);
                multiply_add(stage[r][c + 1], high[r], above[1]);
            }
        }
    }

    /* Whether parts cannot stand for some factor, or a sum may not be what it should. */
    __device__ __forceinline__ bool is_refused() const
    {
        bool is_finite = true;
        each([&](int, int, float s) { is_finite &= fabsf(s) < INFINITY; });
        return !is_finite;
    }

    template <typename F>
    __device__ __forceinline__ void each(F f) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    f(i() + r * 16 + e / 2 * 8 + g(), n() + c * 8 + 2 * t() + e % 2,
                      sum[r][c][e]);
                }
            }
        }
    }
};

template <typename T, int OUTPUTS, int BATCHES>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    mean_matvec_tensor_tiles_product(mean_matvec_view<T> v, int64_t across,
                                     int64_t blocks, shared_depth<float> s)
{
    using product = product_stages<float, OUTPUTS, BATCHES>;
    GPO_DYN_SHARED(product, stages);
    each_share<OUTPUTS, BATCHES>(v, across, blocks, s, [&](const tile_share &share) {
        put_share<OUTPUTS, BATCHES>(
            v, s, share,
            sum_tile<OUTPUTS, BATCHES, tensor_sums>(v, share.output, share.batch,
                                                    share.begin, share.end, *stages));
    });
}

/* ---- launch ---- */

template <int KIND, typename T>
static gpo_status
multiply_on_tensor_cores(gpo_call *call, const mean_matvec_view<T> &v,
                         const shared_depth<float> &s)
{
    constexpr tile_kind SIZE = TILE_KINDS[0][KIND];
    constexpr int SHARED = sizeof(product_stages<float, SIZE.outputs, SIZE.batches>);
    const int64_t across = ceil_div(v.outputs, int64_t{SIZE.outputs});
    const int64_t blocks =
        across * ceil_div(v.batches, int64_t{SIZE.batches}) * s.splits;
    gpo_allow_shared(mean_matvec_tensor_tiles_product<T, SIZE.outputs, SIZE.batches>,
                     SHARED);
    return GPO_LAUNCH(call, grid_of(blocks), THREADS, SHARED,
                      (mean_matvec_tensor_tiles_product<T, SIZE.outputs, SIZE.batches>),
                      v, across, blocks, s);
}

template <typename T>
gpo_status
mean_matvec_tensor_product(gpo_call *call, const mean_matvec_view<T> &v, int kind,
                           const shared_depth<float> &s)
{
    return kind == V4_KIND ? multiply_on_tensor_cores<V4_KIND>(call, v, s)
                           : multiply_on_tensor_cores<LARGE_KIND>(call, v, s);
}

/* Doubles are on tensor cores in few_tiles. */
template <typename T>
gpo_status
mean_matvec_tensor_tiles(gpo_call *call)
{
    if constexpr (std::is_same_v<T, double>) {
        return mean_matvec_few_tiles<T>(call);
    }
    else {
        const bool pads = plan_factors(call).pads;
        const tile_plan plan = plan_tensor_tiles(size_of_product(call, pads));
        return mean_matvec_planned<T>(call, pads, {plan, 0, plan, plan.us});
    }
}

template gpo_status mean_matvec_tensor_tiles<double>(gpo_call *call);

#define INSTANTIATE(T)                                                \
    template gpo_status mean_matvec_tensor_tiles<T>(gpo_call * call); \
    template gpo_status mean_matvec_tensor_product<T>(                \
        gpo_call * call, const mean_matvec_view<T> &v, int kind,      \
        const shared_depth<float> &s);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
