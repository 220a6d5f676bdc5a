/*
 * own_means.cu  Small calls in one launch: a block has a tile of the product, and finds
 * the means of its batches itself.  It copies their x, one stretch, and its rows of the
 * matrix to shared memory, all at once, adds the rows of x there, and multiplies.
 * Cost:  reads x once for every 64 outputs, all but once from L2; one launch, and two
 *        waits for memory less than with means in memory.
 */
#include "../own_means.cuh"
#include "../row_words.cuh"
#include "../splits.cuh"
#include "../../../device/divide.cuh"

template <typename T>
struct own_view {
    mean_matvec_view<T> v;
    int across;     /* tiles that have all outputs */
    int cols, skew; /* skew: elements from a 16-byte boundary to x */
    int x_from;     /* bytes of shared memory before x */
    row_words words;
    divider rows;       /* of a batch */
    bool along_outputs; /* that is how results lie beside each other, else batches do */
};

template <typename T, int BATCHES>
__global__ void
__launch_bounds__(THREADS, BLOCKS) mean_matvec_own_means_product(own_view<T> o)
{
    using V = value_type<T>;
    using sums_of_tile = tile_sums<V, OWN_OUTPUTS, BATCHES>;
    using stage = pack<V>[OWN_OUTPUTS + BATCHES][sums_of_tile::ROW_PACKS];
    constexpr int SIZE = pack<V>::SIZE, PACKS = STAGE_PACKS<V>;
    GPO_DYN_SHARED(unsigned char, shared);
    stage *const stages = reinterpret_cast<stage *>(shared);
    T *const x = reinterpret_cast<T *>(shared + o.x_from);
    const mean_matvec_view<T> &v = o.v;
    const int tile_of_batches = static_cast<int>(blockIdx.x) / o.across;
    const int64_t batch = static_cast<int64_t>(tile_of_batches) * BATCHES;
    const int64_t output = static_cast<int64_t>(static_cast<int>(blockIdx.x) -
                                                tile_of_batches * o.across) *
                           OWN_OUTPUTS;
    const int rows = static_cast<int>(v.rows);
    const int batches =
        static_cast<int>(v.batches - batch < BATCHES ? v.batches - batch : BATCHES);
    const int of_x = batches * rows;

    /* All of x and of the matrix; zeros where means will be. */
    const int64_t before = batch * rows * o.cols;
    bring_words(v.x + before, before, v.batches * rows * o.cols - before, of_x * o.cols,
                o.skew, x);
    const factor_rows<T> matrix = {
        v.matrix + output * v.matrix_output, v.matrix_output, v.matrix_row,
        tile_factors<T, OWN_OUTPUTS, BATCHES>::existing(v.outputs - output,
                                                        OWN_OUTPUTS),
        is_wide(v.matrix, v.matrix_output, v.matrix_row, v.rows)};
    for (int s = 0; s * STAGE_TERMS < rows; s++) {
        bring_rows<OWN_OUTPUTS>(stages[s], matrix, int64_t{s} * STAGE_TERMS,
                                int64_t{rows} - s * STAGE_TERMS, true);
        for (int k = static_cast<int>(threadIdx.x); k < BATCHES * PACKS; k += THREADS) {
            stages[s][OWN_OUTPUTS + k / PACKS][k % PACKS] = pack<V>{};
        }
    }
    group_copies();
    await_groups<0>();
    __syncthreads();

    each_mean(o.words, x + o.skew, o.cols, of_x, [&](int r, V mean) {
        const int n = o.rows.narrow(r), l = r - n * rows, k = l % STAGE_TERMS;
        stages[l / STAGE_TERMS][OWN_OUTPUTS + n][k / SIZE].v[k % SIZE] = mean;
    });
    __syncthreads();

    sums_of_tile sums;
#pragma unroll 1
    for (int s = 0; s * STAGE_TERMS < rows; s++) {
        const int left = rows - s * STAGE_TERMS;
        sums.add(stages[s], left < STAGE_TERMS ? (left + SIZE - 1) / SIZE : PACKS);
    }
    __syncthreads();
    V *const tile = reinterpret_cast<V *>(shared);
    gather_sums<OWN_OUTPUTS, BATCHES>(sums, tile);
    put_tile<OWN_OUTPUTS, BATCHES>(shared_tile<V>{tile, BATCHES + 1, 1},
                                   v.out + output * v.out_output + batch * v.out_batch,
                                   v.out_output, v.out_batch, v.outputs - output,
                                   v.batches - batch, o.along_outputs);
}

/* ---- launch ---- */

template <int BATCHES, typename T>
static gpo_status
multiply_own_means(gpo_call *call, const own_plan &plan)
{
    using V = value_type<T>;
    constexpr bool IS_WIDE = sizeof(V) == 8;
    static_assert(own_tile_bytes(BATCHES, 0, IS_WIDE) >=
                      tile_sums<V, OWN_OUTPUTS, BATCHES>::SHARES * OWN_OUTPUTS *
                          (BATCHES + 1) * static_cast<int>(sizeof(V)),
                  "the plan knows what a tile needs");
    const mean_matvec_view<T> v = view_without_means<T>(call);
    const int64_t stages = ceil_div(v.rows, int64_t{STAGE_TERMS});
    const int64_t across = ceil_div(v.outputs, int64_t{OWN_OUTPUTS});
    const own_view<T> o = {
        v,
        static_cast<int>(across),
        static_cast<int>(v.cols),
        static_cast<int>(reinterpret_cast<uintptr_t>(v.x) % 16 / sizeof(T)),
        static_cast<int>(own_tile_bytes(BATCHES, stages, IS_WIDE)),
        row_words_of(v.x, v.cols, SHORT_COLS_OF_LANE),
        divider_of(v.rows),
        v.out_output == 1 && v.out_batch != 1};
    const size_t shared = static_cast<size_t>(plan.bytes);
    gpo_allow_shared(mean_matvec_own_means_product<T, BATCHES>, shared);
    return GPO_LAUNCH(call, grid_of(across * ceil_div(v.batches, int64_t{BATCHES})),
                      THREADS, shared, (mean_matvec_own_means_product<T, BATCHES>), o);
}

template <typename T>
gpo_status
mean_matvec_own_means(gpo_call *call)
{
    const own_plan plan = plan_own_means(call);
    return plan.batches == 16   ? multiply_own_means<16, T>(call, plan)
           : plan.batches == 32 ? multiply_own_means<32, T>(call, plan)
                                : mean_matvec_few_tiles<T>(call); /* packed since */
}

#define INSTANTIATE(T) template gpo_status mean_matvec_own_means<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
