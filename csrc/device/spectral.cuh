/*
 * spectral.cuh  Loads, stores and scales rows of 16-bit and 32-bit floats, whose dtype
 * is known at run time, for the transforms of fft.cuh.
 * Order: views, ranges, rows, the block.
 * See fft.cuh for the transform, ops/ for kernels.
 */
#ifndef GPO_SPECTRAL_CUH
#define GPO_SPECTRAL_CUH

#include "block.cuh"
#include "fft.cuh"

#include <type_traits>

/* ---- rows and their ranges ---- */

enum spectrum_dtype { SPECTRUM_F32, SPECTRUM_F16, SPECTRUM_BF16 };

template <typename T>
constexpr spectrum_dtype SPECTRUM_DTYPE = std::is_same_v<T, f16>    ? SPECTRUM_F16
                                          : std::is_same_v<T, bf16> ? SPECTRUM_BF16
                                                                    : SPECTRUM_F32;

/* Calls run(element) with an element of the dtype, so that one kernel serves all. */
template <typename Run>
__device__ __forceinline__ auto
with_dtype(spectrum_dtype dtype, Run run)
{
    switch (dtype) {
        case SPECTRUM_F16:
            return run(f16());
        case SPECTRUM_BF16:
            return run(bf16());
        default:
            return run(float());
    }
}

/* The same view with another element type: one kernel serves all dtypes. */
template <typename To, typename From>
__host__ __device__ __forceinline__ To
view_as(const From &from)
{
    static_assert(sizeof(To) == sizeof(From), "views differ in their pointers' types");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* The largest absolute value in a row, as the bits of a float. */
struct row_range {
    static constexpr unsigned INFINITE = 0x7f800000u;

    unsigned most;

    __device__ __forceinline__ void take(float x)
    {
        const unsigned size = __float_as_uint(x) & 0x7fffffffu;
        most = size > most ? size : most;
    }

    static __device__ __forceinline__ row_range combine(row_range a, row_range b)
    {
        return {a.most > b.most ? a.most : b.most};
    }

    __device__ __forceinline__ bool is_finite() const
    {
        return most < INFINITE;
    }

    /* The row's magnitude is about 2^exponent; for a row of zeros it is -4096. */
    __device__ __forceinline__ int exponent() const
    {
        const int e = static_cast<int>(most >> 23) - 127;
        return most == 0 ? -4096 : e < -126 ? -126 : e > 126 ? 126 : e;
    }
};

constexpr row_range NO_RANGE = {0};

/* 2^e, clamped to the range of normal floats; 0 far below it. */
__device__ __forceinline__ float
power_of_two(int e)
{
    const int clamped = e < -126 ? -126 : e > 127 ? 127 : e;
    return e < -1024 ? 0.0f : __int_as_float((clamped + 127) << 23);
}

/* A row of `n` elements of a dtype known at run time. */
struct spectrum_row {
    void *p;
    int64_t stride, n;
};

/* The number of elements from `first` to the row's end, at most V * THREADS. */
template <int THREADS, int V>
__device__ __forceinline__ int
elements_left(const spectrum_row &row, int64_t first)
{
    const int64_t left = row.n - first;
    return left <= 0 ? 0 : static_cast<int>(left < V * THREADS ? left : V * THREADS);
}

template <typename T, int THREADS, int V>
__device__ __forceinline__ void
load_values(const spectrum_row &row, int64_t first, float (&x)[V])
{
    const T *p = static_cast<const T *>(row.p) + first * row.stride;
    const int left = elements_left<THREADS, V>(row, first);
    const int64_t step = THREADS * row.stride;
    if (row.stride == 1 && left == V * THREADS) {
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = static_cast<float>(value_of(p[e * THREADS]));
        }
        return;
    }
    if (row.stride == 1) {
#pragma unroll
        for (int e = 0; e < V; e++) {
            x[e] = e * THREADS < left ? static_cast<float>(value_of(p[e * THREADS]))
                                      : 0.0f;
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < V; e++) {
        x[e] = e * THREADS < left ? static_cast<float>(value_of(*p)) : 0.0f;
        p += step;
    }
}

/* x[e] = element first + e * THREADS; 0 past the end of the row. */
template <int THREADS, int V>
__device__ __forceinline__ void
load_row(spectrum_dtype dtype, const spectrum_row &row, int64_t first, float (&x)[V])
{
    with_dtype(dtype, [&](auto element) {
        load_values<decltype(element), THREADS>(row, first, x);
    });
}

template <typename T, int THREADS, int V>
__device__ __forceinline__ void
store_values(const spectrum_row &row, int64_t first, const float (&y)[V])
{
    T *p = static_cast<T *>(row.p) + first * row.stride;
    const int left = elements_left<THREADS, V>(row, first);
    const int64_t step = THREADS * row.stride;
    if (row.stride == 1 && left == V * THREADS) {
#pragma unroll
        for (int e = 0; e < V; e++) {
            p[e * THREADS] = stored_as<T>(y[e]);
        }
        return;
    }
    if (row.stride == 1) {
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (e * THREADS < left) {
                p[e * THREADS] = stored_as<T>(y[e]);
            }
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < V; e++) {
        if (e * THREADS < left) {
            *p = stored_as<T>(y[e]);
        }
        p += step;
    }
}

/* Element first + e * THREADS = y[e], up to the end of the row. */
template <int THREADS, int V>
__device__ __forceinline__ void
store_row(spectrum_dtype dtype, const spectrum_row &row, int64_t first,
          const float (&y)[V])
{
    with_dtype(dtype, [&](auto element) {
        store_values<decltype(element), THREADS>(row, first, y);
    });
}

/* ---- the block ---- */

/* Whether so many complex numbers fit in the shared memory of a block. */
static bool
fits_in_shared(const gpo_call *call, int numbers)
{
    constexpr int OTHER = 1024; /* other shared memory of a kernel, in bytes */
    return numbers * static_cast<int>(sizeof(c64)) + OTHER <= gpo_shared_room(call);
}

/* One block of threads: its transform, and the range of the values it reads. */
template <typename FFT>
struct spectrum_block {
    static constexpr int V = FFT::V, THREADS = FFT::THREADS, WARPS = THREADS / WARP;

    FFT fft;
    row_range *slots;
    spectrum_dtype dtype;

    __device__ __forceinline__ spectrum_block(c64 *space, row_range *ranges,
                                              spectrum_dtype kind)
        : fft(space), slots(ranges), dtype(kind)
    {
    }

    __device__ __forceinline__ void load(const spectrum_row &row, int64_t i,
                                         float (&x)[V]) const
    {
        load_row<THREADS>(dtype, row, i * FFT::POINTS + threadIdx.x, x);
    }

    /* tell() stores a range per warp; told(), after a barrier, combines the slots. */
    template <typename Range>
    static __device__ __forceinline__ void tell(Range mine, Range *to)
    {
        mine = warp_combine<Range>(mine);
        if (threadIdx.x % WARP == 0) {
            to[threadIdx.x / WARP] = mine;
        }
    }

    template <typename Range>
    static __device__ __forceinline__ Range told(const Range *from)
    {
        Range all = from[0];
#pragma unroll
        for (int w = 1; w < WARPS; w++) {
            all = Range::combine(all, from[w]);
        }
        return all;
    }

    __device__ __forceinline__ void tell(row_range mine, int set) const
    {
        tell(mine, slots + set * WARPS);
    }

    __device__ __forceinline__ row_range told(int set) const
    {
        return told(slots + set * WARPS);
    }

    static __device__ __forceinline__ row_range range_of(const float (&x)[V],
                                                         row_range before = NO_RANGE)
    {
#pragma unroll
        for (int e = 0; e < V; e++) {
            before.take(x[e]);
        }
        return before;
    }

    /* The range of a row whose first block is in x; leaves its last block in x. */
    __device__ __forceinline__ row_range range_of(const spectrum_row &row,
                                                  int64_t blocks, float (&x)[V]) const
    {
        row_range range = range_of(x);
        for (int64_t i = 1; i < blocks; i++) {
            load(row, i, x);
            range = range_of(x, range);
        }
        return range;
    }

    template <int N>
    static __device__ __forceinline__ void scale(float (&x)[N], float by)
    {
#pragma unroll
        for (int e = 0; e < N; e++) {
            x[e] *= by;
        }
    }

    /* Divides a filter's spectrum by N, because the inverse multiplies by N. */
    static __device__ __forceinline__ void divide(c64 (&f)[V])
    {
        constexpr float BY = 1.0f / FFT::POINTS;
#pragma unroll
        for (int k = 0; k < V; k++) {
            f[k] = {f[k].re * BY, f[k].im * BY};
        }
    }

    /* y * 2^e + offset, with one rounding where the product is subnormal. */
    static __device__ __forceinline__ void scale_back(float (&y)[V], int e,
                                                      float offset)
    {
        float by = power_of_two(e);
        if (e < -126 || e > 127) {
            e = e < -400 ? -400 : e;
            scale(y, power_of_two(e / 2));
            by = power_of_two(e - e / 2);
        }
#pragma unroll
        for (int i = 0; i < V; i++) {
            y[i] = fmaf(y[i], by, offset);
        }
    }
};

#endif
