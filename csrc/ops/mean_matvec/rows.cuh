/*
 * rows.cuh  Shared by the rungs of mean_matvec: the inputs as kernel arguments, sums of
 * rows, rows streamed in 16-byte loads.
 * See product.cuh for a tile of the product, ladder/ for which block does which part,
 * op.c for the contract.
 */
#ifndef GPO_MEAN_MATVEC_ROWS_CUH
#define GPO_MEAN_MATVEC_ROWS_CUH

#include <limits.h>
#include <type_traits>

#include "../../device/sum.cuh"
#include "../../device/block.cuh"
#include "../../device/vec.cuh"
#include "mean_matvec.h"
#include "tuning.cuh"

#ifdef __CUDACC__
#include <cuda_pipeline_primitives.h>
#endif

/* The type in which T is computed. */
template <typename T>
using value_type = std::conditional_t<std::is_same_v<T, double>, double, float>;

/* ---- the arguments ---- */

/* The plan and its arrays as a kernel argument; strides as in mean_matvec_plan. */
template <typename T>
struct mean_matvec_view {
    using V = value_type<T>;
    const T *x, *matrix;
    T *out;
    V *means; /* mean of row l of batch n: means[n * rows + l] */
    int64_t batches, rows, cols, outputs;
    int64_t x_batch, x_row, x_col;
    int64_t matrix_output, matrix_row;
    int64_t out_output, out_batch;

    __device__ __forceinline__ V matrix_at(int64_t i, int64_t l) const
    {
        return value_of(matrix[i * matrix_output + l * matrix_row]);
    }

    __device__ __forceinline__ void put(int64_t i, int64_t n, V value) const
    {
        out[i * out_output + n * out_batch] = stored_as<T>(value);
    }
};

template <typename T>
mean_matvec_view<T>
view_without_means(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    return {static_cast<const T *>(call->in[0].data),
            static_cast<const T *>(call->in[1].data),
            static_cast<T *>(call->out[0].data),
            nullptr,
            p.batches,
            p.rows,
            p.cols,
            p.outputs,
            p.x_batch,
            p.x_row,
            p.x_col,
            p.matrix_output,
            p.matrix_row,
            p.out_output,
            p.out_batch};
}

template <typename T>
gpo_status
view_of(gpo_call *call, mean_matvec_view<T> *v)
{
    using V = value_type<T>;
    void *means = nullptr;
    gpo_status status = GPO_OK;
    *v = view_without_means<T>(call);
    if (v->batches * v->outputs > 0 && v->rows > 0) {
        status = gpo_scratch(call, v->batches * v->rows * sizeof(V), &means);
    }
    v->means = static_cast<V *>(means);
    return status;
}

/* ---- single values ---- */

/*
 * Starts an asynchronous copy of one value into shared memory; of a zero if !exists.
 * Before sm_80 the copy is synchronous.
 */
template <typename T>
__device__ __forceinline__ void
start_value_copy(T *shared, const T *p, bool exists)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    __pipeline_memcpy_async(shared, p, sizeof(T), exists ? 0 : sizeof(T));
#else
    *shared = exists ? *p : T(0);
#endif
}

/* ---- sums ---- */

struct add {
    template <typename V>
    static __device__ __forceinline__ V combine(V a, V b)
    {
        return a + b;
    }
};

/* A long sum of floats, in double. */
template <typename V>
struct row_sum {
    double total = 0;

    __device__ __forceinline__ void add(V p)
    {
        total += p;
    }

    __device__ __forceinline__ V value() const
    {
        return static_cast<V>(total);
    }
};

template <>
struct row_sum<double> : compensated_sum<double> {
};

/* ---- rows streamed in 16-byte loads ---- */

/*
 * How a block walks over rows.  A group of `lanes` lanes takes SLOTS >> shift rows at
 * once, `1 << shift` packs of a row per lane.  A longer row takes several chunks of 32
 * * SLOTS packs.  Rows come in spans, one stride apart: all rows of a tile of batches,
 * or those of one batch if a gap follows it.
 */
struct row_walk {
    int lanes, shift;
    int64_t chunks;       /* per row */
    int per_step;         /* rows per block at once */
    int per_item;         /* rows per item of work */
    int64_t span_batches; /* batches per span */
    unsigned per_span;    /* items per span */
    unsigned streams;     /* items per tile of batches */
    bool packed;          /* elements of a row are contiguous */
    bool even;            /* rows start on 16-byte boundaries and are whole packs */
    bool full;            /* even, and every lane has a pack in every chunk */
    int64_t jump[SLOTS];  /* offset of each slot from a lane's first of a step */
};

/* Rows [0, rows): row r starts at x + r * stride, and its mean goes to means[r]. */
template <typename T>
struct row_span {
    const T *x;
    int64_t stride;
    int rows;
    value_type<T> *means;
};

/* Elements from a 16-byte boundary to p. */
template <typename T>
__device__ __forceinline__ int
skew_of(const T *p)
{
    return static_cast<int>(reinterpret_cast<uintptr_t>(p) & 15u) /
           static_cast<int>(sizeof(T));
}

/* The sum of one pack: of its even and its odd elements, which needs few registers. */
template <typename T>
__device__ __forceinline__ value_type<T>
sum_pack(const pack<T> &p)
{
    value_type<T> even = value_of(p.v[0]), odd = value_of(p.v[1]);
#pragma unroll
    for (int k = 2; k < pack<T>::SIZE; k += 2) {
        even += value_of(p.v[k]);
        odd += value_of(p.v[k + 1]);
    }
    return even + odd;
}

/*
 * Starts the loads of one step: rows from `base` on.  Packs are counted from the last
 * 16-byte boundary before the row; those entirely in the row are loaded.  They stay
 * words until they are added: splitting one would wait for its load.
 */
template <typename T>
__device__ __forceinline__ void
load_step(const row_span<T> &span, const row_walk &walk, int64_t cols, int base,
          int64_t chunk, uint4 (&loaded)[SLOTS])
{
    constexpr int SIZE = pack<T>::SIZE;
    const int lane = threadIdx.x % walk.lanes, group = threadIdx.x / walk.lanes;
    const int64_t past =
        (chunk << walk.shift) * walk.lanes * SIZE; /* in earlier chunks */
    const T *p = span.x + (base + group) * span.stride + past + lane * SIZE;
    if (walk.full && base + walk.per_step <= span.rows) {
#pragma unroll
        for (int u = 0; u < SLOTS; u++) {
            loaded[u] =
                load_streamed(reinterpret_cast<const uint4 *>(p + walk.jump[u]));
        }
        return;
    }
    const int groups = THREADS / walk.lanes, across = (1 << walk.shift) - 1;
    const int64_t left = cols - past - SIZE;
    const int last = left < INT_MAX ? static_cast<int>(left) : INT_MAX;
    const int least = past > 0 ? -SIZE : 0; /* least begin of a whole pack */
#pragma unroll
    for (int u = 0; u < SLOTS; u++) {
        const T *at = p + walk.jump[u];
        const int skew = skew_of(at), row = base + group + (u >> walk.shift) * groups;
        const int begin = (lane + (u & across) * walk.lanes) * SIZE - skew;
        loaded[u] = {};
        if (row < span.rows && begin >= least && begin <= last) {
            loaded[u] = load_streamed(reinterpret_cast<const uint4 *>(at - skew));
        }
    }
}

/* The sum over a group of lanes, in each of them. */
template <typename V>
__device__ __forceinline__ V
sum_lanes(V v, int lanes)
{
    for (int d = lanes / 2; d > 0; d /= 2) {
        v += __shfl_xor_sync(ALL_LANES, v, d);
    }
    return v;
}

/*
 * The sums over a group of lanes of its lanes' first `count` values: lane k gets that
 * of value k / (lanes / count).  Each round of exchanges halves a lane's values: count
 * - 1 exchanges, then those of one value, where `count` separate sums would take
 * log2(lanes) each.
 */
template <typename V>
__device__ __forceinline__ V
sum_lanes_of_each(V (&v)[SLOTS], int count, int lane, int lanes)
{
    int d = lanes / 2;
#pragma unroll
    for (int half = SLOTS / 2; half > 0; half /= 2) {
        if (half < count) {
            const bool upper = lane & d;
#pragma unroll
            for (int j = 0; j < half; j++) {
                const V kept = upper ? v[j + half] : v[j];
                const V given = upper ? v[j] : v[j + half];
                v[j] = kept + __shfl_xor_sync(ALL_LANES, given, d);
            }
            d /= 2;
        }
    }
    for (; d > 0; d /= 2) {
        v[0] += __shfl_xor_sync(ALL_LANES, v[0], d);
    }
    return v[0];
}

/* The elements of a row outside its packs: at most one per lane at either end. */
template <typename T>
__device__ __forceinline__ value_type<T>
ragged_ends(const T *p, int64_t cols, int lane)
{
    const int64_t head = elements_to_boundary(p, cols);
    const int64_t tail = cols - (cols - head) % pack<T>::SIZE;
    value_type<T> sum = 0;
    if (lane < head) {
        sum = value_of(p[lane]);
    }
    if (lane < cols - tail) {
        sum += value_of(p[tail + lane]);
    }
    return sum;
}

/* The means of a span of strided elements, by one block. */
template <typename T>
__device__ __forceinline__ void
stream_strided(const mean_matvec_view<T> &v, const row_walk &walk,
               const row_span<T> &span)
{
    const int lane = threadIdx.x % walk.lanes, group = threadIdx.x / walk.lanes;
    const int groups = THREADS / walk.lanes;
    for (int64_t base = 0; base < span.rows; base += groups) { /* uniform per warp */
        const int64_t row = base + group;
        row_sum<value_type<T>> sum;
        if (row < span.rows) {
            const T *p = span.x + row * span.stride;
#pragma unroll 1
            for (int64_t k = lane; k < v.cols; k += walk.lanes) {
                sum.add(value_of(p[k * v.x_col]));
            }
        }
        const value_type<T> total = sum_lanes(sum.value(), walk.lanes);
        if (lane == 0 && row < span.rows) {
            span.means[row] = total / static_cast<value_type<T>>(v.cols);
        }
    }
}

/* A lane's ends of its group's row of a step, if the step is the row's last; else 0. */
template <typename T>
__device__ __forceinline__ value_type<T>
ends_of_step(const row_span<T> &span, const row_walk &walk, int64_t cols, int base,
             int64_t chunk)
{
    const int row = base + static_cast<int>(threadIdx.x) / walk.lanes;
    if (walk.even || chunk + 1 != walk.chunks || row >= span.rows) {
        return 0;
    }
    return ragged_ends(span.x + row * span.stride, cols,
                       static_cast<int>(threadIdx.x) % walk.lanes);
}

/*
 * The means of a span, by one block.  EARLY: the ends of a row, where a group has one
 * at a time, are loaded together with its packs; this takes registers.
 */
template <typename T, bool EARLY>
__device__ __forceinline__ void
stream_rows(const mean_matvec_view<T> &v, const row_walk &walk, const row_span<T> &span)
{
    using V = value_type<T>;
    if (!walk.packed) {
        stream_strided(v, walk, span);
        return;
    }
    const int lane = threadIdx.x % walk.lanes, group = threadIdx.x / walk.lanes;
    const int groups = THREADS / walk.lanes;
    const int at_once = SLOTS >> walk.shift; /* rows per group */
    const int sharers = walk.lanes / at_once;
    uint4 loaded[SLOTS];
    const bool early = EARLY && at_once == 1;
    row_sum<V> fold;
    int base = 0;
    int64_t chunk = 0;
    load_step(span, walk, v.cols, base, chunk, loaded);
    V next_ends = early ? ends_of_step(span, walk, v.cols, base, chunk) : 0;
#pragma unroll 1
    while (base < span.rows) {
        const int now = base;
        const bool complete = chunk + 1 == walk.chunks;
        const V own_ends = next_ends;
        V sum[SLOTS];
#pragma unroll
        for (int u = 0; u < SLOTS; u++) {
            sum[u] = sum_pack(pack_of<T>(loaded[u]));
        }
        chunk++;
        if (complete) {
            chunk = 0;
            base += walk.per_step;
        }
        load_step(span, walk, v.cols, base, chunk,
                  loaded); /* in flight while these are combined */
        if (early) {
            next_ends = ends_of_step(span, walk, v.cols, base, chunk);
        }
#pragma unroll
        for (int level = 0; level < 3; level++) {
            if (walk.shift > level) {
#pragma unroll
                for (int u = 0; u < SLOTS / (2 << level); u++) {
                    sum[u] = sum[2 * u] + sum[2 * u + 1];
                }
            }
        }
        if (early) {
            sum[0] += own_ends;
        }
        if (walk.chunks > 1) { /* one row at a time */
            fold.add(sum[0]);
            if (!complete) {
                continue;
            }
            sum[0] = fold.value();
            fold = row_sum<V>();
        }
        /* Lane k has the sum of row k / sharers of those at once. */
        V mine = sum_lanes_of_each(sum, at_once, lane, walk.lanes);
        if (!walk.even && !early) {
#pragma unroll 1
            for (int q = 0; q < at_once; q++) {
                const int row = now + q * groups + group;
                V ends = 0;
                if (row < span.rows) {
                    ends = ragged_ends(span.x + row * span.stride, v.cols, lane);
                }
                ends = sum_lanes(ends, walk.lanes);
                mine += lane / sharers == q ? ends : 0;
            }
        }
        const int row = now + lane / sharers * groups + group;
        if (lane % sharers == 0 && row < span.rows) {
            span.means[row] = mine / static_cast<V>(v.cols);
        }
    }
}

/* Item `part` of the streams of a tile of batches. */
template <typename T, bool EARLY = false>
__device__ __forceinline__ void
stream_item(const mean_matvec_view<T> &v, const row_walk &walk, int64_t tile,
            unsigned part)
{
    const int64_t batch =
        tile * TILE_BATCHES + part / walk.per_span * walk.span_batches;
    const int64_t first = static_cast<int64_t>(part % walk.per_span) * walk.per_item;
    int64_t batches = v.batches - batch; /* 0 or less past the last one */
    batches = batches < walk.span_batches ? batches : walk.span_batches;
    int64_t left = batches * v.rows - first;
    left = left > 0 ? left : 0;
    const row_span<T> span = {
        v.x + batch * v.x_batch + first * v.x_row, v.x_row,
        static_cast<int>(left < walk.per_item ? left : walk.per_item),
        v.means + batch * v.rows + first};
    stream_rows<T, EARLY>(v, walk, span);
}

#endif
