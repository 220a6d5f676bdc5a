/*
 * gathered_rows.cu  Skewed indices of rows of several elements: a block adds up those of
 * its rows that share a destination, and sends one sum for each that it met.  So a
 * destination of most rows takes an atomic for every 128 of all rows at most, which bounds
 * the error of float32 sums as well.
 * Cost:  reads the source and the index once; an atomic per column and destination of a
 *        block; rows of a block are compared with each other, in shared memory.
 * Order: the chains of rows, the sums, the kernel, the launch.
 */
#include "../frame.cuh"

constexpr int GATHERED_COLUMNS = WARP; /* of a tile, a lane for each */
constexpr int GATHERED_WARPS = BLOCK / WARP;
static_assert(BLOCK >= 2 * GATHERED_ROWS, "two threads look for a row's neighbour");

/* Rows of one destination as a chain: `before` of each, -1 at its first; `last` ones. */
struct row_chains {
    int destination[GATHERED_ROWS]; /* -1: not a row, or a bad index */
    int before[GATHERED_ROWS];
    bool is_last[GATHERED_ROWS];
};

/* Links every row to the nearest one before it that has its destination. */
static __device__ __forceinline__ void
link_rows(row_chains &chains)
{
    const int r = threadIdx.x;
    if (r < GATHERED_ROWS) {
        const int mine = chains.destination[r];
        int before = r - 1;
        while (before >= 0 && chains.destination[before] != mine) {
            before--;
        }
        chains.before[r] = before;
        chains.is_last[r] = mine >= 0;
    }
    __syncthreads();
    if (r < GATHERED_ROWS && chains.destination[r] >= 0 && chains.before[r] >= 0) {
        chains.is_last[chains.before[r]] = false;
    }
    __syncthreads();
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) index_add_gathered_rows_kernel(index_add_view<T> a)
{
    constexpr int LOADS = GATHERED_ROWS / GATHERED_WARPS;
    GPO_SHARED(row_chains, chains, [1]);
    GPO_SHARED(T, tile, [GATHERED_ROWS][GATHERED_COLUMNS]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * GATHERED_ROWS;
    const int64_t left = a.count - first;
    const int rows = static_cast<int>(left < GATHERED_ROWS ? left : GATHERED_ROWS);
    const int r = threadIdx.x;
    const int64_t entry = r < rows ? entry_of(a.index, first + r) : 0;
    wait_for_before();
    if (r < GATHERED_ROWS) {
        const int64_t k = r < rows ? place_of_entry(a.index, entry, first + r) : -1;
        chains[0].destination[r] = static_cast<int>(k);
    }
    __syncthreads();
    link_rows(chains[0]);
    for (int64_t c = lane; c - lane < a.inner; c += GATHERED_COLUMNS) {
        T loaded[LOADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            const int row = warp + u * GATHERED_WARPS;
            if (row < rows && c < a.inner) {
                loaded[u] = a.source[(first + row) * a.by_row + c * a.by_inner];
            }
        }
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            const int row = warp + u * GATHERED_WARPS;
            if (row < rows && c < a.inner) {
                tile[row][lane] = loaded[u];
            }
        }
        __syncthreads();
        for (int row = warp; row < rows; row += GATHERED_WARPS) {
            if (!chains[0].is_last[row] || c >= a.inner) {
                continue;
            }
            T sum = tile[row][lane];
            for (int b = chains[0].before[row]; b >= 0; b = chains[0].before[b]) {
                sum += tile[b][lane];
            }
            atomic_add(a.out + chains[0].destination[row] * a.inner + c,
                       scaled(sum, a.alpha));
        }
        __syncthreads(); /* before the tile is written again */
    }
}

struct index_add_gathered : index_add_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        const dim3 grid = grid_of(ceil_div(a.count, int64_t{GATHERED_ROWS}));
        return GPO_FOLLOW(call, a.follows, grid, BLOCK, 0,
                          (index_add_gathered_rows_kernel<T>), a);
    }
};

template <typename T>
gpo_status
index_add_gathered_rows(gpo_call *call)
{
    return index_add_with<index_add_gathered, T>(call);
}

template gpo_status index_add_gathered_rows<float>(gpo_call *call);
template gpo_status index_add_gathered_rows<double>(gpo_call *call);
