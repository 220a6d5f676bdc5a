/*
 * smooth.cuh  Smooth functions whose results are rounded to 16 bits: errors of at most
 * 2^-16 of the result before that, from one exponential and at most one reciprocal.
 */
#ifndef GPO_SMOOTH_CUH
#define GPO_SMOOTH_CUH

#include "ptx.cuh"

constexpr float LOG2_E = 1.44269502F;

/* The power of two is scaled by 2^24 towards 1, so that subnormal results keep bits. */
__device__ __forceinline__ float
short_exp(float x)
{
    const float scale = x < 0 ? 24.0F : -24.0F, back = x < 0 ? 0x1p-24F : 0x1p24F;
    return back * exp2_fast(__fmaf_rn(x, LOG2_E, scale));
}

/* Both terms are scaled by 2^-24: neither overflows before the result is 0. */
__device__ __forceinline__ float
short_sigmoid(float x)
{
    constexpr float SCALE = 0x1p-24F;
    return SCALE * reciprocal_fast(SCALE + exp2_fast(__fmaf_rn(x, -LOG2_E, -24.0F)));
}

__device__ __forceinline__ float
short_silu(float x)
{
    return x * short_sigmoid(x);
}

/* Near 0, where 1 - exp(-2 x) loses bits, the series x - x^3 / 3. */
__device__ __forceinline__ float
short_tanh(float x)
{
    const float e = exp2_fast(-2 * LOG2_E * fabsf(x));
    const float far = copysignf((1 - e) * reciprocal_fast(1 + e), x);
    return fabsf(x) < 0x1p-5F ? __fmaf_rn(x * x * x, -1.0F / 3, x) : far;
}

/*
 * x times the normal distribution below -|x|, or 1 minus it: exp(-x^2 / 2), scaled as in
 * short_exp, times a polynomial in 3.5 / (3.5 + |x|), fitted to 2^-17 for |x| <= 13.5;
 * beyond, the result is 0 or x.
 */
__device__ __forceinline__ float
short_gelu(float x)
{
    const float a = fabsf(x), u = 3.5F * reciprocal_fast(3.5F + a);
    float p = __fmaf_rn(u, -0.09193679F, 0.31669593F);
    p = __fmaf_rn(u, p, -0.14101721F);
    p = __fmaf_rn(u, p, 0.21381453F);
    p = __fmaf_rn(u, p, 0.08452006F);
    p = __fmaf_rn(u, p, 0.11816823F);
    p = __fmaf_rn(u, p, -0.00024246117F);
    const float bell = exp2_fast(__fmaf_rn(a * a, -0.5F * LOG2_E, 24.0F));
    const float tail = 0x1p-24F * (fabsf(p) * bell);
    return x * (x < 0 ? tail : 1 - tail);
}

#endif
