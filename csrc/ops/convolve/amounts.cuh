/*
 * amounts.cuh  The sizes of inputs of large_transforms, by chunks: what scales a block,
 * and which sums a transform may compute.
 * Order: amounts, the pass, measuring.
 */
#ifndef GPO_CONVOLVE_AMOUNTS_CUH
#define GPO_CONVOLVE_AMOUNTS_CUH

#include "../../device/block.cuh"
#include "large_plan.cuh"
#include "products.cuh"

/* ---- amounts ---- */

template <typename T>
struct part_type {
    using type = T;
};
template <typename Real>
struct part_type<complex<Real>> {
    using type = Real;
};

/* The type of the real and the imaginary part of a number. */
template <typename T>
using part_of_number = typename part_type<T>::type;

/* 2^e, e clamped to where its inverse is a normal number of the type, too. */
template <typename Real>
__device__ __forceinline__ Real
two_to(int e)
{
    constexpr int MOST = sizeof(Real) == 4 ? 126 : 1022;
    const int64_t clamped = e < -MOST ? -MOST : e > MOST ? MOST : e;
    return static_cast<Real>(__longlong_as_double((clamped + 1023) << 52));
}

__device__ __forceinline__ uint64_t
bits_of_size(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

__device__ __forceinline__ uint64_t
bits_of_size(double x)
{
    return static_cast<uint64_t>(__double_as_longlong(x)) & ~uint64_t{0} >> 1;
}

template <typename Real>
__device__ __forceinline__ int
exponent_of(uint64_t bits)
{
    constexpr bool IS_FLOAT32 = sizeof(Real) == 4;
    constexpr int BIAS = IS_FLOAT32 ? 127 : 1023;
    const int e = static_cast<int>(bits >> (IS_FLOAT32 ? 23 : 52)) - BIAS;
    const int most = BIAS - 1; /* as for two_to */
    return bits == 0   ? amount::NOTHING
           : e > BIAS  ? amount::INFINITE
           : e < -most ? -most
           : e > most  ? most
                       : e;
}

struct amounts_added {
    static __device__ __forceinline__ double energy_at(amount a, int exponent)
    {
        const int below = exponent - a.exponent;
        return below > 500 ? 0.0 : a.energy * two_to<double>(-2 * below);
    }

    static __device__ __forceinline__ amount combine(amount a, amount b)
    {
        const int most = a.exponent > b.exponent ? a.exponent : b.exponent;
        return {energy_at(a, most) + energy_at(b, most), most};
    }
};

struct larger_bits {
    static __device__ __forceinline__ uint64_t combine(uint64_t a, uint64_t b)
    {
        return a > b ? a : b;
    }
};

struct doubles_added {
    static __device__ __forceinline__ double combine(double a, double b)
    {
        return a + b;
    }
};

/* The sum of amounts [low, high) in every thread; `slots`: one per warp, one more. */
template <int THREADS>
__device__ __forceinline__ amount
sum_of_amounts(const amount *from, int64_t low, int64_t high, amount *slots)
{
    amount all = {0.0, amount::NOTHING};
#pragma unroll 2
    for (int64_t i = low + threadIdx.x; i < high; i += THREADS) {
        all = amounts_added::combine(all, from[i]);
    }
    __syncthreads();
    all = block_combine<amounts_added, THREADS>(all, slots);
    if (threadIdx.x == 0) {
        slots[THREADS / WARP] = all;
    }
    __syncthreads();
    return slots[THREADS / WARP];
}

/* ---- the pass ---- */

/*
 * What the launches of a call work on: the blocks [block, block + blocks) of `rows` rows
 * from `row` on.  Spectra are the matrices of a pass, one after another; amounts are
 * those of all rows and filters.
 */
template <typename T>
struct large_pass {
    using Real = part_of_number<value_type<T>>;

    convolve_view<T> c;
    large_plan l;
    large_counts n;
    complex<Real> *x, *h;
    amount *chunks, *groups; /* of rows */
    amount *tap_groups;
    amount *blocks_of_rows, *filters_alone;
    int *spoiled;  /* by chunk of sums of a row: one is not finite */
    int *wide;     /* NULL, or flags of sums for convolve_wide_blocks */
    int64_t flags; /* of `spoiled` and `wide`, one after the other */
    int64_t row, rows, block, blocks;
    int64_t filters; /* that this pass transforms */
    float growth;    /* see may_transform */

    __device__ __forceinline__ int64_t filter_of(int64_t of_row) const
    {
        return n.filters > 1 ? of_row : 0;
    }

    __device__ __forceinline__ int64_t first_input(int64_t of_block) const
    {
        return l.begin + of_block * l.step - l.lead;
    }
};

/* A row of numbers with zeros beyond its ends. */
template <typename T>
struct zero_padded {
    const T *p;
    int64_t step, n;

    __device__ __forceinline__ value_type<T> operator[](int64_t i) const
    {
        return at(p + i * step, i);
    }

    /* Number i, whose address is read only if there is one. */
    __device__ __forceinline__ value_type<T> at(const T *address, int64_t i) const
    {
        return static_cast<uint64_t>(i) < static_cast<uint64_t>(n)
                   ? read_value(*address)
                   : value_type<T>{};
    }
};

/* ---- measuring ---- */

constexpr int MEASURE_THREADS = 256;

template <typename Real>
__device__ __forceinline__ uint64_t
largest_bits(Real x)
{
    return bits_of_size(x);
}

template <typename Real>
__device__ __forceinline__ uint64_t
largest_bits(complex<Real> x)
{
    return larger_bits::combine(bits_of_size(x.re), bits_of_size(x.im));
}

template <typename Real>
__device__ __forceinline__ double
square_of(Real x, double by)
{
    const double y = static_cast<double>(x) * by;
    return y * y;
}

template <typename Real>
__device__ __forceinline__ double
square_of(complex<Real> x, double by)
{
    return square_of(x.re, by) + square_of(x.im, by);
}

/* For one warp: the amount of a chunk from `begin` on, in lane 0. */
template <typename T>
__device__ __forceinline__ amount
amount_of_chunk(const zero_padded<T> &row, int64_t begin)
{
    using Real = part_of_number<value_type<T>>;
    constexpr int EACH = CHUNK / WARP;
    value_type<T> x[EACH];
    uint64_t bits = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        x[e] = row[begin + e * WARP + threadIdx.x % WARP];
    }
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        bits = larger_bits::combine(bits, largest_bits(x[e]));
    }
    bits = shuffle_from(warp_combine<larger_bits>(bits), 0);
    const int exponent = exponent_of<Real>(bits);
    const double by = two_to<double>(-exponent);
    double energy = 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        energy += square_of(x[e], by);
    }
    energy = warp_combine<doubles_added>(energy);
    return {exponent == amount::INFINITE ? 0.0 : energy, exponent};
}

/* Measures all rows and filters, and clears the flags. */
template <typename T>
__global__ void
__launch_bounds__(MEASURE_THREADS)
    convolve_large_transforms_amounts(const __grid_constant__ large_pass<T> pass)
{
    constexpr int CHUNKS_OF_GROUP = GROUP / CHUNK;
    GPO_SHARED(amount, found, [CHUNKS_OF_GROUP]);
    const convolve_view<T> &c = pass.c;
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    const int64_t of_rows = c.count_rows * pass.n.groups;
    const int64_t all = of_rows + pass.n.filters * pass.n.tap_groups;
    for (int64_t u = blockIdx.x; u < all; u += gridDim.x) {
        const bool is_filter = u >= of_rows;
        const int64_t own = is_filter ? u - of_rows : u;
        const int64_t each = is_filter ? pass.n.tap_groups : pass.n.groups;
        const int64_t row = quotient(own, each), group = own - row * each;
        const row_operands<T> in = find_row(c, row);
        const zero_padded<T> from = is_filter ? zero_padded<T>{in.v, c.v_step, c.m}
                                              : zero_padded<T>{in.a, c.a_step, c.n};
        for (int i = warp; i < CHUNKS_OF_GROUP; i += MEASURE_THREADS / WARP) {
            const int64_t chunk = group * CHUNKS_OF_GROUP + i;
            const amount mine = amount_of_chunk(from, chunk * CHUNK);
            if (threadIdx.x % WARP == 0) {
                found[i] = mine;
                if (!is_filter && chunk < pass.n.chunks) {
                    pass.chunks[row * pass.n.chunks + chunk] = mine;
                }
            }
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            amount sum = found[0];
            for (int i = 1; i < CHUNKS_OF_GROUP; i++) {
                sum = amounts_added::combine(sum, found[i]);
            }
            (is_filter ? pass.tap_groups : pass.groups)[own] = sum;
        }
        __syncthreads();
    }
    const int64_t threads = int64_t{gridDim.x} * MEASURE_THREADS;
    for (int64_t i = int64_t{blockIdx.x} * MEASURE_THREADS + threadIdx.x;
         i < pass.flags; i += threads) {
        pass.spoiled[i] = 0;
    }
}

#endif
