/*
 * toeplitz.cuh  Toeplitz products on the tensor cores of sm_90a: a long filter is a
 * band of 64 x 64 blocks, one for each lag of 64, which is never stored.
 *
 *   block D of filter h:   A_D[s][q] = h[64 D + s - q]
 *   result:                out[i][s][b] = sum over D, q of A_D[s][q] x[i - D][q][b]
 *
 * Data x is stored in shared memory as 16-bit rows n = NB i + b of 64 values, so that a
 * lag shifts the operand by NB rows, 8 or 16.  The filter is stored twice, the second
 * copy shifted by one value, so that a thread reads pairs of its fragment as words at
 * even and odd positions.
 * Order: scaling and splitting, the filter, the data, the product of a lag.
 * See ladder/v6_* for which lags and columns, device/wgmma.cuh for the instructions.
 */
#ifndef GPO_CAUSAL_CONV1D_TOEPLITZ_CUH
#define GPO_CAUSAL_CONV1D_TOEPLITZ_CUH

#include "../../device/vec.cuh"
#include "../../device/warp.cuh"
#include "../../device/wgmma.cuh"

/* An integer that a generic lambda can use as a template argument. */
template <int N>
struct index_constant {
    static constexpr int value = N;
};

constexpr int TOEPLITZ_BLOCK = 64;
constexpr int TOEPLITZ_COLUMNS = 192; /* of one chunk of data */
constexpr int TOEPLITZ_GROUP = 64;    /* columns of results at once */
constexpr int TOEPLITZ_THREADS = 128; /* one warpgroup */

/* ---- scaling and splitting ---- */

/*
 * The power of two that scales a row's maximum into [2^14, 2^15), where an fp16 and the
 * fp16 of its rounding error hold a value to 2^-22 of itself and 2^-40 of the maximum.
 * `exponent` undoes it.  A row that does not fit has inf, or only tiny values.
 */
struct split_scale {
    float factor;
    int exponent;
    bool fits;

    __device__ __forceinline__ explicit split_scale(float most)
    {
        const int top = biased_exponent(most);
        const bool is_scaled = top >= 16;
        factor =
            is_scaled ? __uint_as_float(static_cast<unsigned>(268 - top) << 23) : 1;
        exponent = is_scaled ? top - 141 : 0;
        fits = most == 0 || (is_scaled && top < 255);
    }

    static __device__ __forceinline__ int biased_exponent(float size)
    {
        return static_cast<int>(__float_as_uint(size) >> 23);
    }
};

/* The largest of the lanes' values, none of which is negative. */
__device__ __forceinline__ float
most_of_warp(float most)
{
#ifdef GPO_HOPPER
    return __uint_as_float(__reduce_max_sync(ALL_LANES, __float_as_uint(most)));
#else
    return most;
#endif
}

__device__ __forceinline__ uint32_t
word_of(__half2 h)
{
    uint32_t word;
    memcpy(&word, &h, 4);
    return word;
}

/* high = fp16(x, y) and low = fp16 of its rounding error. */
__device__ __forceinline__ void
split(float x, float y, uint32_t *high, uint32_t *low)
{
    const __half2 h = __floats2half2_rn(x, y);
    const float2 back = __half22float2(h);
    *high = word_of(h);
    *low = word_of(__floats2half2_rn(x - back.x, y - back.y));
}

/* ---- the filter ---- */

/* Bytes of one copy of a window of `lags` blocks: copies are 16 banks apart. */
__host__ __device__ constexpr uint32_t
filter_bytes(int lags)
{
    return 128u * lags + 192;
}

/* Stores entry p in both copies. */
template <typename Half>
__device__ __forceinline__ void
store_filter(Half *copies, uint32_t copy_bytes, int p, Half h)
{
    copies[p] = h;
    if (p > 0) {
        copies[copy_bytes / sizeof(Half) + p - 1] = h;
    }
}

/*
 * Columns 16 k to 16 k + 15 of a 64 x 64 block as a fragment, where `at` is the address
 * of the thread's word of row 16 w + g, column 2 q.  One row up is one value to the
 * right, so the word 8 rows down is the last one of the previous fragment: `*edge`
 * passes it on.  A fragment is four consecutive registers, so a word that occurs twice
 * is computed as the word xor `zero`, a 0 that the compiler must not know: otherwise it
 * copies all four words again for every product.
 */
__device__ __forceinline__ void
load_fragment(uint32_t (&a)[4], uint32_t at, int k, uint32_t *edge, uint32_t zero)
{
    a[0] = load_word(at + 32 * k);
    a[1] = *edge ^ zero;
    a[2] = load_word(at + 32 * k + 16);
    a[3] = a[0] ^ zero;
    *edge = a[2];
}

/* ---- the data ---- */

/* Byte offset of values 8 i to 8 i + 7 of row r in the swizzle of wgmma_operand. */
__device__ __forceinline__ uint32_t
swizzled(int r, int i)
{
    return r * 128 + ((i ^ (r & 7)) << 4);
}

/*
 * Stores 16 bytes of values: 16-bit ones as they are, floats times `factor` as fp16,
 * and the rounding errors of these `low` bytes further on if there are three PRODUCTS.
 */
template <int PRODUCTS, typename T>
__device__ __forceinline__ void
put_values(unsigned char *to, uint32_t low, const pack<T> &v, float factor)
{
    if constexpr (sizeof(T) == 4) {
        uint2 high, rest;
        split(v.v[0] * factor, v.v[1] * factor, &high.x, &rest.x);
        split(v.v[2] * factor, v.v[3] * factor, &high.y, &rest.y);
        *reinterpret_cast<uint2 *>(to) = high;
        if constexpr (PRODUCTS == 3) {
            *reinterpret_cast<uint2 *>(to + low) = rest;
        }
    }
    else {
        uint4 bits;
        memcpy(static_cast<void *>(&bits), v.v, 16);
        *reinterpret_cast<uint4 *>(to) = bits;
    }
}

/* ---- the product of a lag ---- */

/*
 * d += A_D x for COUNT times 2 VALUES adjacent columns, 32, 48 or 64; without `add` the
 * sums start from 0.  PRODUCTS is 1: `filter` times `data`, or 3: before it also the
 * low parts, `filter_low` times `data` and `filter` times `data_low`.  Filters are
 * given by load_fragment's address, data by the operand of their first column; `zero`
 * as there.  On return the last products may still be in flight.
 */
template <typename Half, int PRODUCTS, int COUNT, int VALUES>
__device__ __forceinline__ void
toeplitz_lag(float (*d)[VALUES], uint32_t filter, uint32_t filter_low,
             wgmma_operand data, wgmma_operand data_low, bool add, uint32_t zero)
{
    uint32_t a[2][2][4];
#pragma unroll
    for (int pass = PRODUCTS == 3 ? 0 : 1; pass < 2; pass++) {
        const uint32_t at = pass == 0 ? filter_low : filter;
        uint32_t edge = load_word(at - 16);
#pragma unroll
        for (int part = 0; part < 2; part++) {
#pragma unroll
            for (int k = 0; k < 2; k++) {
                load_fragment(a[part][k], at, 2 * part + k, &edge, zero);
            }
            wgmma_fence();
#pragma unroll
            for (int twice = pass == 1 && PRODUCTS == 3 ? 0 : 1; twice < 2; twice++) {
                const wgmma_operand &x = twice == 0 ? data_low : data;
#pragma unroll
                for (int i = 0; i < 2 * COUNT; i++) {
                    const int k = i / COUNT, column = i % COUNT * 2 * VALUES;
                    const int depth = 2 * part + k;
                    wgmma_rs<Half>(d[i % COUNT], a[part][k],
                                   x.at(8 * column + 2 * depth),
                                   add || (PRODUCTS == 3 && pass == 1) || depth > 0);
                }
            }
            wgmma_commit();
            wgmma_wait<1>();
        }
    }
}

#endif
