/*
 * transpose.cuh  Copies between two arrays that lie along different axes, as channels
 * first and channels last do.  A tile goes through shared memory, so that lanes of a
 * warp have neighbours of the source when they load and of the target when they store.
 */
#ifndef GPO_TRANSPOSE_CUH
#define GPO_TRANSPOSE_CUH

#include "grid.cuh"

constexpr int TRANSPOSE_BLOCK = 256;
constexpr int64_t SHORT_SIDE = 8; /* shorter axes leave most of a tile empty */

/* An element, whatever it means, by its bytes and its alignment. */
template <typename Word>
struct word_pair {
    Word first, second;
};

/* The sides of the tiles, and the axes that are the same for a tile. */
struct transpose_axes {
    int64_t rows, cols;       /* of neighbours in the source, and in the target */
    int64_t from_col, to_row; /* strides in elements; from_row and to_col are 1 */
    int ndim;
    int64_t shape[GPO_MAX_DIMS], from[GPO_MAX_DIMS], to[GPO_MAX_DIMS];
    int64_t outer; /* product of `shape` */
};

template <typename T>
struct transpose_tile {
    static constexpr int SIDE = sizeof(T) <= 4 ? 64 : 32;
    /* A line is an odd number of words of 4 bytes, or of elements: no bank conflicts. */
    static constexpr int PITCH = SIDE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1);
    static constexpr int STEP = TRANSPOSE_BLOCK / SIDE, ITEMS = SIDE / STEP;
};

template <typename T>
__global__ void
__launch_bounds__(TRANSPOSE_BLOCK)
    copy_transposed(const T *from, T *to, transpose_axes axes)
{
    using tile = transpose_tile<T>;
    constexpr int SIDE = tile::SIDE, STEP = tile::STEP, ITEMS = tile::ITEMS;
    GPO_SHARED(T, staged, [SIDE][tile::PITCH]); /* by column, then row */
    const int lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
    const int64_t down = (axes.rows + SIDE - 1) / SIDE;
    const int64_t across = (axes.cols + SIDE - 1) / SIDE;
    const int64_t tiles = axes.outer * down * across;
    for (int64_t k = blockIdx.x; k < tiles; k += gridDim.x) {
        int64_t rest = k / down;
        const int64_t row = (k - rest * down) * SIDE;
        int64_t outer = rest / across;
        const int64_t col = (rest - outer * across) * SIDE;
        int64_t read = 0, written = 0;
        for (int d = axes.ndim - 1; d >= 0; d--) {
            rest = outer / axes.shape[d];
            read += (outer - rest * axes.shape[d]) * axes.from[d];
            written += (outer - rest * axes.shape[d]) * axes.to[d];
            outer = rest;
        }
        const T *const x = from + read + row + lane;
        T e[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t c = col + line + j * STEP;
            if (row + lane < axes.rows && c < axes.cols) {
                e[j] = x[c * axes.from_col];
            }
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (row + lane < axes.rows && col + line + j * STEP < axes.cols) {
                staged[line + j * STEP][lane] = e[j];
            }
        }
        __syncthreads();
        T *const y = to + written + col + lane;
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t r = row + line + j * STEP;
            if (r < axes.rows && col + lane < axes.cols) {
                y[r * axes.to_row] = staged[lane][line + j * STEP];
            }
        }
        __syncthreads(); /* before the next tile is staged */
    }
}

/* Copies elements of sizeof(T) bytes. */
template <typename T>
inline gpo_status
transpose(gpo_call *call, const void *from, void *to, const transpose_axes &axes)
{
    constexpr int64_t SIDE = transpose_tile<T>::SIDE;
    const int64_t tiles =
        axes.outer * ceil_div(axes.rows, SIDE) * ceil_div(axes.cols, SIDE);
    return GPO_LAUNCH(call, grid_of(tiles), TRANSPOSE_BLOCK, 0, (copy_transposed<T>),
                      static_cast<const T *>(from), static_cast<T *>(to), axes);
}

#endif
