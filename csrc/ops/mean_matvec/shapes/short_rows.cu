/*
 * short_rows.cu  Means of a few elements, of rows beside each other in memory: a block
 * copies stretches of x to shared memory in words of 16 bytes, wherever rows begin, and
 * up to a warp of lanes add a row.  Then v4's product, whose factors are padded to
 * whole packs where that pays.
 * Cost:  reads x once, all lanes busy, the next stretch on its way; the matrix is
 *        copied once more if its rows are no whole packs.
 */
#include "../row_words.cuh"
#include "../short_rows.cuh"
#include "../../../device/divide.cuh"
#include "../../../device/follow.cuh"

template <typename T>
struct short_view {
    const T *x, *matrix;
    value_type<T> *means;
    T *padded;      /* the matrix, rows `pitch` apart; NULL if not wanted */
    int rows;       /* of all batches */
    int cols, skew; /* skew: elements from a 16-byte boundary to x */
    row_words words;
    int length, chunks; /* rows of a chunk */
    int streams;        /* blocks that find means; the others copy the matrix */
    divider per_batch;  /* rows */
    int64_t pitch;      /* of the means' rows, and of the matrix's */
    int64_t outputs, matrix_output, matrix_row;
};

/* Starts the copy of a chunk of x, as one group; what lies beside x is left out. */
template <typename T>
__device__ __forceinline__ void
bring_chunk(const short_view<T> &v, int chunk, T *to)
{
    if (chunk < v.chunks) {
        const int64_t first = static_cast<int64_t>(chunk) * v.length * v.cols;
        const int64_t rest = static_cast<int64_t>(v.rows) * v.cols - first;
        const int most = v.length * v.cols;
        bring_words(v.x + first, first, rest,
                    static_cast<int>(rest < most ? rest : most), v.skew, to);
    }
    group_copies();
}

/* Finds the means of rows [begin, begin + n), which lie at `x` in shared memory. */
template <typename T>
__device__ __forceinline__ void
add_rows(const short_view<T> &v, const T *x, int begin, int n)
{
    const int length = static_cast<int>(v.per_batch.by);
    const int padding = static_cast<int>(v.pitch) - length;
    each_mean(v.words, x, v.cols, n, [&](int r, value_type<T> mean) {
        const int batch = v.per_batch.narrow(begin + r);
        const int l = begin + r - batch * length;
        value_type<T> *const to = v.means + batch * v.pitch + l;
        *to = mean;
        if (l == length - 1) {
            for (int k = 1; k <= padding; k++) {
                to[k] = 0;
            }
        }
    });
}

/* Loads of a lane in flight while a warp copies a part of a row of the matrix. */
constexpr int COPIES = 4, COPIED = WARP * COPIES;

template <typename T>
__device__ __forceinline__ void
copy_matrix(const short_view<T> &v)
{
    const int64_t blocks = gridDim.x - v.streams, block = blockIdx.x - v.streams;
    const int length = static_cast<int>(v.per_batch.by);
    const int pitch = static_cast<int>(v.pitch);
    const int64_t parts = ceil_div(pitch, COPIED), all = v.outputs * parts;
    for (int64_t k = block * (THREADS / WARP) + threadIdx.x / WARP; k < all;
         k += blocks * (THREADS / WARP)) {
        const int64_t i = k / parts;
        const int first = static_cast<int>(k - i * parts) * COPIED +
                          static_cast<int>(threadIdx.x % WARP);
        const T *const from = v.matrix + i * v.matrix_output + first * v.matrix_row;
        T *const to = v.padded + i * v.pitch + first;
        T loaded[COPIES];
#pragma unroll
        for (int u = 0; u < COPIES; u++) {
            loaded[u] = first + u * WARP < length ? from[u * WARP * v.matrix_row]
                                                  : stored_as<T>(value_type<T>(0));
        }
#pragma unroll
        for (int u = 0; u < COPIES; u++) {
            if (first + u * WARP < pitch) {
                to[u * WARP] = loaded[u];
            }
        }
    }
}

template <typename T>
__global__ void
__launch_bounds__(THREADS, SHORT_BLOCKS[sizeof(T) == 8])
    mean_matvec_short_rows_means(short_view<T> v)
{
    constexpr int ROOM = SHORT_BYTES / sizeof(T);
    GPO_SHARED(pack<T>, room, [2][SHORT_BYTES / sizeof(pack<T>)]);
    let_next_start();
    if (static_cast<int>(blockIdx.x) >= v.streams) {
        copy_matrix(v);
        return;
    }
    T *const first = room[0][0].v;
    int now = 0;
    bring_chunk(v, blockIdx.x, first);
    for (int chunk = blockIdx.x; chunk < v.chunks; chunk += v.streams) {
        bring_chunk(v, chunk + v.streams, first + (1 - now) * ROOM);
        await_groups<1>();
        __syncthreads();
        const int begin = chunk * v.length, left = v.rows - begin;
        add_rows(v, first + now * ROOM + v.skew, begin,
                 left < v.length ? left : v.length);
        __syncthreads(); /* before the chunk is written again */
        now = 1 - now;
    }
}

/* ---- launch ---- */

/* Launches what finds the means of v, and copies its matrix if `padded` is not NULL. */
template <typename T>
static gpo_status
find_short_means(gpo_call *call, const mean_matvec_view<T> &v, int64_t length,
                 T *padded)
{
    constexpr int64_t ROOM = SHORT_BYTES / static_cast<int>(sizeof(T));
    short_view<T> s = {};
    s.x = v.x;
    s.matrix = v.matrix;
    s.means = v.means;
    s.padded = padded;
    s.rows = static_cast<int>(v.batches * length);
    s.cols = static_cast<int>(v.cols);
    s.skew = static_cast<int>(reinterpret_cast<uintptr_t>(v.x) % 16 / sizeof(T));
    s.per_batch = divider_of(length);
    s.pitch = v.rows;
    s.outputs = v.outputs;
    s.matrix_output = v.matrix_output;
    s.matrix_row = v.matrix_row;
    s.words = row_words_of(v.x, v.cols, SHORT_COLS_OF_LANE);
    /* Of whole packs, so that all chunks begin as far from a 16-byte boundary as x. */
    constexpr int64_t SIZE = pack<T>::SIZE;
    const int64_t most = (ROOM - SIZE) / v.cols / SIZE * SIZE;
    const int64_t blocks = gpo_processors(call) * SHORT_BLOCKS[sizeof(T) == 8];
    const int64_t share = ceil_div(ceil_div(s.rows, blocks), WARP) * WARP;
    s.length = static_cast<int>(share < most ? share : most);
    s.chunks = static_cast<int>(ceil_div(s.rows, s.length));
    s.streams = static_cast<int>(s.chunks < blocks ? s.chunks : blocks);
    const int64_t copies =
        ceil_div(v.outputs * ceil_div(s.pitch, COPIED), THREADS / WARP);
    const int64_t others = padded ? (copies < blocks ? copies : blocks) : 0;
    return GPO_LAUNCH(call, grid_of(s.streams + others), THREADS, 0,
                      (mean_matvec_short_rows_means<T>), s);
}

template <typename T>
gpo_status
mean_matvec_short_means(gpo_call *call, const mean_matvec_view<T> &v)
{
    return find_short_means<T>(call, v, v.rows, nullptr);
}

/* Means and a copy of the matrix in rows of whole packs, if that pays. */
template <typename T>
gpo_status
mean_matvec_pad_factors(gpo_call *call, mean_matvec_view<T> *v)
{
    using V = value_type<T>;
    constexpr int64_t SIZE = pack<V>::SIZE, T_SIZE = pack<T>::SIZE;
    const int64_t length = v->rows, pitch = ceil_div(length, T_SIZE) * T_SIZE;
    static_assert(T_SIZE % SIZE == 0, "whole packs of both");
    void *means = nullptr, *padded = nullptr;
    gpo_status status = gpo_scratch(call, v->batches * pitch * sizeof(V), &means);
    if (!status) {
        status = gpo_scratch(call, v->outputs * pitch * sizeof(T), &padded);
    }
    if (status) {
        return status;
    }
    v->means = static_cast<V *>(means);
    v->rows = pitch;
    status = find_short_means<T>(call, *v, length, static_cast<T *>(padded));
    v->matrix = static_cast<const T *>(padded);
    v->matrix_output = pitch;
    v->matrix_row = 1;
    return status;
}

template <typename T>
gpo_status
mean_matvec_short_rows(gpo_call *call)
{
    mean_matvec_view<T> v = view_without_means<T>(call);
    if (v.batches * v.outputs == 0) {
        return GPO_OK;
    }
    const factors_plan factors = plan_factors(call);
    gpo_status status = GPO_OK;
    if (v.rows > 0 && factors.pads) {
        status = mean_matvec_pad_factors(call, &v);
    }
    else if (v.rows > 0) {
        status = view_of(call, &v);
        status = status ? status : mean_matvec_short_means(call, v);
    }
    return status ? status : mean_matvec_multiply(call, v, factors.product);
}

#define INSTANTIATE(T)                                                       \
    template gpo_status mean_matvec_short_rows<T>(gpo_call * call);          \
    template gpo_status mean_matvec_pad_factors<T>(gpo_call * call,          \
                                                   mean_matvec_view<T> * v); \
    template gpo_status mean_matvec_short_means<T>(gpo_call * call,          \
                                                   const mean_matvec_view<T> &v);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
