/*
 * tf32.cuh  Products of floats on tensor cores: floats in two parts of 11 bits, and the
 * instruction that multiplies such parts.  Before sm_80, and in the simulator, by
 * shuffles; see ptx.cuh for doubles.
 */
#ifndef GPO_TF32_CUH
#define GPO_TF32_CUH

#include "launch.cuh"

#include <math.h>

/*
 * A float in two parts: `high` are its first 11 bits, rounded to nearest, and `low` the
 * rest, of up to 12 bits.  The instruction cuts the last one: high + low is then less
 * than 2^-23 |value| off, above 2^-113.  Of infinities, nan and the largest floats a part
 * is not finite, and so is every sum it is part of.
 */
struct tf32_parts {
    uint32_t high, low;
};

__device__ __forceinline__ tf32_parts
parts_of(float value)
{
    const uint32_t high = (__float_as_uint(value) + 0x1000u) & 0xffffe000u;
    return {high, __float_as_uint(value - __uint_as_float(high))};
}

/*
 * d += a b by a warp, with a of 16 x 8 and b of 8 x 8 values of 11 bits; later bits are
 * ignored.  Lane 4 g + t holds
 *     of a  rows g and g + 8, in columns t (a[0], a[1]) and t + 4 (a[2], a[3])
 *     of b  rows t and t + 4, in column g
 *     of d  rows g (d[0], d[1]) and g + 8, in columns 2 t and 2 t + 1
 * The sum of 8 products and d is cut to a float.
 */
__device__ __forceinline__ void
multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else /* each lane gathers its rows of a and columns of b */
    constexpr unsigned ALL = 0xffffffffu, BITS = 0xffffe000u;
    const int lane = threadIdx.x % 32, row = lane / 4 * 4, column = lane % 4 * 8;
    double sum[4] = {d[0], d[1], d[2], d[3]};
    const auto value = [&](uint32_t bits, int from) {
        return static_cast<double>(
            __uint_as_float(__shfl_sync(ALL, bits & BITS, from)));
    };
#pragma unroll
    for (int k = 0; k < 2; k++) {
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const double left = value(b[k], column + t);
            const double right = value(b[k], column + 4 + t);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const double x = value(a[2 * k + r], row + t);
                sum[2 * r] += x * left;
                sum[2 * r + 1] += x * right;
            }
        }
    }
#pragma unroll
    for (int e = 0; e < 4; e++) {
        d[e] = static_cast<float>(sum[e]);
        if (fabs(static_cast<double>(d[e])) > fabs(sum[e])) {
            d[e] = nextafterf(d[e], 0.0f);
        }
    }
#endif
}

#endif
