/*
 * wide.cuh  The kernels of v5: sums in float64 beside x.  Order: the sums at zero, rows
 * into them, by way of a table in shared memory or straight, x and the sums into out.
 * Not here: the plan of a table (cuda.cu).
 */
#ifndef GPO_INDEX_ADD_WIDE_CUH
#define GPO_INDEX_ADD_WIDE_CUH

#include "index_add.cuh"

constexpr int TABLE_BLOCK = 1024;

/* How the table of one block is laid out: entry (k, c) of copy j is (k * columns + c) *
 * copies + j, for `columns` of the row, which `lanes` threads take. */
struct index_add_table {
    int64_t rows;           /* of the source, in a slice */
    unsigned slices, tiles; /* of the source, of a row's columns */
    int columns, lanes, copies;
};

static __global__ void
__launch_bounds__(BLOCK) index_add_v5_clear(double *sums, int64_t n)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        sums[i] = 0;
    }
}

/* The entry of source row s, as it stands in the index. */
__device__ __forceinline__ int64_t
entry_of(const index_reader &index, int64_t s)
{
    const int64_t i = s * index.step;
    return index.is_wide ? static_cast<const int64_t *>(index.at)[i]
                         : static_cast<const int32_t *>(index.at)[i];
}

/*
 * The destination of entry k of row s, which is outside of [0, length); -1 if there is
 * none.  Not inlined: its branches would stand between the loads of several rows.
 */
static __device__ __noinline__ int64_t
index_add_outside(int64_t k, int64_t s, int64_t length, index_add_mode mode,
                  unsigned long long *bad)
{
    if (mode == INDEX_ADD_CLIP) {
        return k < 0 ? 0 : length - 1;
    }
    if (mode == INDEX_ADD_WRAP) {
        const int64_t rest = k % length;
        return rest < 0 ? rest + length : rest;
    }
    if (k < 0 && k >= -length) {
        return k + length;
    }
    if (bad != nullptr) {
        atomicMin(bad, static_cast<unsigned long long>(s));
    }
    return -1;
}

__device__ __forceinline__ int64_t
destination_of(const index_reader &index, int64_t k, int64_t s)
{
    if (static_cast<uint64_t>(k) < static_cast<uint64_t>(index.length)) {
        return k;
    }
    return index_add_outside(k, s, index.length, index.mode, index.bad);
}

/* alpha * v: a product of two floats is exact in double. */
template <typename T>
__device__ __forceinline__ double
wide_scaled(T v, double alpha)
{
    return static_cast<double>(value_of(v)) * alpha;
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) index_add_v5_direct(index_add_view<T> a, double *sums)
{
    constexpr int ITEMS = 4;
    const int64_t n = a.outer * a.count * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK * ITEMS);
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * (BLOCK * ITEMS); begin < n;
         begin += step) {
        T v[ITEMS] = {};
        int64_t row[ITEMS] = {}, c[ITEMS] = {}, o[ITEMS] = {}, entry[ITEMS] = {};
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t i = begin + j * BLOCK + threadIdx.x;
            if (i < n) {
                row[j] = a.inners.of(i);
                o[j] = a.counts.of(row[j]);
                c[j] = i - row[j] * a.inner;
                const int64_t s = row[j] - o[j] * a.count;
                entry[j] = entry_of(a.index, s);
                v[j] = a.source[o[j] * a.by_outer + s * a.by_row + c[j] * a.by_inner];
            }
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (begin + j * BLOCK + threadIdx.x < n) {
                const int64_t s = row[j] - o[j] * a.count;
                const int64_t k = destination_of(a.index, entry[j], s);
                if (k >= 0) {
                    atomic_add(sums + (o[j] * a.length + k) * a.inner + c[j],
                               wide_scaled(v[j], a.wide_alpha));
                }
            }
        }
    }
}

/* As v2's table, in double. */
template <typename T>
__global__ void
__launch_bounds__(TABLE_BLOCK)
    index_add_v5_table(index_add_view<T> a, index_add_table t, double *sums)
{
    constexpr int ITEMS = 4; /* rows in flight */
    GPO_DYN_SHARED(double, table);
    const unsigned unit = blockIdx.x / t.slices;
    const int64_t slice = blockIdx.x - unit * t.slices;
    const int64_t o = unit / t.tiles, tile = unit % t.tiles;
    const int64_t begin = slice * t.rows;
    const int64_t end = begin + t.rows < a.count ? begin + t.rows : a.count;
    const int places = static_cast<int>(a.length) * t.columns;
    const int tid = threadIdx.x, rows = TABLE_BLOCK / t.lanes, mine = tid / t.lanes;
    const int column = tid % t.lanes, copy = mine % t.copies;
    const int64_t c = tile * t.columns + column;
    const bool is_column = column < t.columns && c < a.inner;

    for (int i = tid; i < places * t.copies; i += TABLE_BLOCK) {
        table[i] = 0;
    }
    __syncthreads();
    const T *const from = a.source + o * a.by_outer + c * a.by_inner;
    for (int64_t first = begin + mine; is_column && first < end;
         first += ITEMS * rows) {
        T v[ITEMS] = {};
        int64_t entry[ITEMS] = {};
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t s = first + j * rows;
            if (s < end) {
                entry[j] = entry_of(a.index, s);
                v[j] = from[s * a.by_row];
            }
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t s = first + j * rows;
            const int64_t k = s < end ? destination_of(a.index, entry[j], s) : -1;
            if (k >= 0) {
                atomic_add(
                    &table[(static_cast<int>(k) * t.columns + column) * t.copies +
                           copy],
                    wide_scaled(v[j], a.wide_alpha));
            }
        }
    }
    __syncthreads();
    for (int i = tid; i < places; i += TABLE_BLOCK) {
        double sum = 0;
        for (int j = 0; j < t.copies; j++) {
            sum += table[i * t.copies + j];
        }
        const int64_t k = i / t.columns, at = tile * t.columns + i % t.columns;
        if (sum != 0 && at < a.inner) {
            atomic_add(sums + (o * a.length + k) * a.inner + at, sum);
        }
    }
}

/* out = x + sums, rounded once; an element that got nothing keeps its bits. */
template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    index_add_v5_close(const T *x, const double *sums, T *out, int64_t n)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        const T old = x[i];
        const double sum = sums[i];
        const double both = static_cast<double>(value_of(old)) + sum;
        out[i] = sum != 0 ? stored_as<T>(static_cast<float>(both)) : old;
    }
}

#endif
