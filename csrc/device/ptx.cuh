/*
 * ptx.cuh  Inline PTX in tiny device functions, each with an equivalent in plain C++
 * that the simulator runs.  See wgmma.cuh for the instructions of sm_90a.
 */
#ifndef GPO_PTX_CUH
#define GPO_PTX_CUH

#include "launch.cuh"

/* ---- L2 cache policies of reads; none before sm_80 ---- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define L2_POLICY(name)                                                           \
    __device__ __forceinline__ uint64_t l2_##name()                               \
    {                                                                             \
        uint64_t policy;                                                          \
        asm("createpolicy.fractional.L2::" #name ".b64 %0, 1.0;" : "=l"(policy)); \
        return policy;                                                            \
    }
#else
#define L2_POLICY(name)                             \
    __device__ __forceinline__ uint64_t l2_##name() \
    {                                               \
        return 0;                                   \
    }
#endif

L2_POLICY(evict_first)     /* evicted first, also lines that had another priority */
L2_POLICY(evict_last)      /* evicted last: for lines that are read again soon */
L2_POLICY(evict_unchanged) /* the cache's own priority */
#undef L2_POLICY

/* With `keep` the lines read evict each other and not what L2 holds. */
__device__ __forceinline__ uint64_t
l2_policy(bool keep)
{
    const uint64_t unchanged = l2_evict_unchanged();
    return keep ? l2_evict_first() : unchanged;
}

/* ---- arithmetic ---- */

/* 2^v to 2 units of the last place; results below 2^-126 are 0. */
__device__ __forceinline__ float
exp2_fast(float v)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
#else
    const float r = exp2f(v);
    return r < 0x1p-126F ? 0 : r;
#endif
}

/* 1 / v to a unit of the last place; results and arguments below 2^-126 are 0. */
__device__ __forceinline__ float
reciprocal_fast(float v)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
#else
    const float r = 1 / v;
    return fabsf(r) < 0x1p-126F ? 0 : r;
#endif
}

/* 1 / sqrt(v) to two units of the last place; of arguments below 2^-126 that of 0. */
__device__ __forceinline__ float
reciprocal_root_fast(float v)
{
#ifdef __CUDA_ARCH__
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
#else
    return rsqrtf(fabsf(v) < 0x1p-126F ? copysignf(0, v) : v);
#endif
}

/* The larger of two; nan if either is nan. */
__device__ __forceinline__ float
largest(float a, float b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
#else
    return a > b || a != a ? a : b;
#endif
}

/*
 * d += a b by a warp, with a of 16 x 8 and b of 8 x 8 doubles.  Lane 4 g + t holds
 *     of a  rows g and g + 8, in columns t (a[0], a[1]) and t + 4 (a[2], a[3])
 *     of b  rows t and t + 4, in column g
 *     of d  rows g (d[0], d[1]) and g + 8, in columns 2 t and 2 t + 1
 */
__device__ __forceinline__ void
multiply_add(double (&d)[4], const double (&a)[4], const double (&b)[2])
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#pragma unroll
    for (int k = 0; k < 2; k++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 "
                         "{%0, %1}, {%2}, {%3}, {%0, %1};"
                         : "+d"(d[2 * r]), "+d"(d[2 * r + 1])
                         : "d"(a[2 * k + r]), "d"(b[k]));
        }
    }
#else /* each lane gathers its rows of a and columns of b */
    constexpr unsigned ALL = 0xffffffffu;
    const int lane = threadIdx.x % 32, row = lane / 4 * 4, column = lane % 4 * 8;
#pragma unroll
    for (int k = 0; k < 2; k++) {
#pragma unroll
        for (int t = 0; t < 4; t++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const double x = __shfl_sync(ALL, a[2 * k + r], row + t);
                d[2 * r] += x * __shfl_sync(ALL, b[k], column + t);
                d[2 * r + 1] += x * __shfl_sync(ALL, b[k], column + 4 + t);
            }
        }
    }
#endif
}

/* ---- reads ---- */

/*
 * Loads 16 bytes that nothing writes during the kernel, through the read-only path.
 * Not with L1::no_allocate: it also makes the lines evict-first in L2, which costs 4 %
 * where L2 holds lines not yet written back and the array is many times its size (H200,
 * 1 GiB).
 */
__device__ __forceinline__ uint4
load_streamed(const uint4 *p)
{
#ifdef __CUDACC__
    uint4 v;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
#else
    return *p;
#endif
}

/* The same with an L2 cache policy. */
__device__ __forceinline__ uint4
load_streamed(const uint4 *p, uint64_t policy)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint4 v;
    asm("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p), "l"(policy));
    return v;
#else
    (void)policy;
    return load_streamed(p);
#endif
}

/*
 * Starts an asynchronous copy of 16 bytes into shared memory, bypassing registers
 * (cp.async), with an L2 cache policy; the thread that started it sees the bytes after
 * await_copies().  Before sm_80 the copy is synchronous.
 */
__device__ __forceinline__ void
start_copy(void *shared, const void *p, uint64_t policy)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
        "l"(p), "l"(policy)
        : "memory");
#else
    (void)policy;
    *static_cast<uint4 *>(shared) = *static_cast<const uint4 *>(p);
#endif
}

/* Commits the copies that the thread has started since the last call as a group. */
__device__ __forceinline__ void
group_copies()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits for all groups except the last PENDING. */
template <int PENDING>
__device__ __forceinline__ void
await_groups()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

__device__ __forceinline__ void
await_copies()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* ---- atomics ---- */

/*
 * Adds four pairs of float16, or of bfloat16, to 16 aligned bytes of global memory in
 * one instruction; returns false before sm_90 and in the simulator, which lack it.
 */
__device__ __forceinline__ bool
add_float16_pairs(uint4 *at, const uint4 &v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(at)),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
    return true;
#else
    (void)at;
    (void)v;
    return false;
#endif
}

__device__ __forceinline__ bool
add_bfloat16_pairs(uint4 *at, const uint4 &v)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("red.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(at)),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
    return true;
#else
    (void)at;
    (void)v;
    return false;
#endif
}

#endif
