/*
 * atomic.cuh  Atomic additions: integers of 32 and 64 bits, floats, complex numbers,
 * then 16-bit floats in pairs.  The hardware has none for integers of 8 and 16 bits.
 */
#ifndef GPO_ATOMIC_CUH
#define GPO_ATOMIC_CUH

#include "types.cuh"

__device__ __forceinline__ void
atomic_add(int32_t *at, int32_t v)
{
    atomicAdd(at, v);
}

__device__ __forceinline__ void
atomic_add(uint32_t *at, uint32_t v)
{
    atomicAdd(at, v);
}

__device__ __forceinline__ void
atomic_add(uint64_t *at, uint64_t v)
{
    atomicAdd(reinterpret_cast<unsigned long long *>(at),
              static_cast<unsigned long long>(v));
}

__device__ __forceinline__ void
atomic_add(int64_t *at, int64_t v) /* two's complement: the same sum */
{
    atomic_add(reinterpret_cast<uint64_t *>(at), static_cast<uint64_t>(v));
}

__device__ __forceinline__ void
atomic_add(float *at, float v)
{
    atomicAdd(at, v);
}

__device__ __forceinline__ void
atomic_add(double *at, double v)
{
    atomicAdd(at, v);
}

__device__ __forceinline__ void
atomic_add(f16 *at, f16 v)
{
    atomicAdd(at, v);
}

__device__ __forceinline__ void
atomic_add(bf16 *at, bf16 v)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    atomicAdd(at, v);
#else
    unsigned short *word = reinterpret_cast<unsigned short *>(at);
    unsigned short seen = *word, before;
    do {
        before = seen;
        const float sum = value_of(__ushort_as_bfloat16(before)) + value_of(v);
        seen = atomicCAS(word, before, __bfloat16_as_ushort(stored_as<bf16>(sum)));
    } while (seen != before);
#endif
}

template <typename Real>
__device__ __forceinline__ void
atomic_add(complex<Real> *at, complex<Real> v) /* each part on its own */
{
    atomic_add(&at->re, v.re);
    atomic_add(&at->im, v.im);
}

/* Both halves of a pair at once. */
__device__ __forceinline__ void
atomic_add(__half2 *at, __half2 v)
{
    atomicAdd(at, v);
}

__device__ __forceinline__ void
atomic_add(__nv_bfloat162 *at, __nv_bfloat162 v)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    atomicAdd(at, v);
#else
    unsigned *word = reinterpret_cast<unsigned *>(at);
    unsigned seen = *word, before;
    do {
        before = seen;
        __nv_bfloat162 sum;
        memcpy(&sum, &before, sizeof sum);
        sum.x = stored_as<bf16>(value_of(sum.x) + value_of(v.x));
        sum.y = stored_as<bf16>(value_of(sum.y) + value_of(v.y));
        unsigned after;
        memcpy(&after, &sum, sizeof after);
        seen = atomicCAS(word, before, after);
    } while (seen != before);
#endif
}

/*
 * base[i] += v for a 16-bit float in an array of n elements: one packed atomic on the
 * aligned pair that contains it; the other half adds -0.0, which changes nothing.
 * Where the pair is not inside the array, a plain atomic.
 */
template <typename Half>
__device__ __forceinline__ void
fast_atomic_add(Half *base, int64_t i, int64_t n, Half v)
{
    using Pair = typename half_pair<Half>::type;
    Half *at = base + i;
    const bool high = reinterpret_cast<uintptr_t>(at) & 2u; /* v is the upper half */
    if (high ? i > 0 : i + 1 < n) {
        const Half none = stored_as<Half>(-0.0f);
        Pair pair;
        pair.x = high ? none : v;
        pair.y = high ? v : none;
        atomic_add(reinterpret_cast<Pair *>(high ? at - 1 : at), pair);
        return;
    }
    atomic_add(at, v);
}

#endif
