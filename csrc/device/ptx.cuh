/*
 * ptx.cuh  The only inline PTX of the project: tiny device functions, each with a twin
 * in plain C++ that the simulator runs.
 */
#ifndef GPO_PTX_CUH
#define GPO_PTX_CUH

#include "launch.cuh"

/*
 * How a read treats what L2 holds: `keep` marks its lines as the first to go, so that
 * they push out each other; otherwise the cache decides.  Before sm_80 it always does.
 */
__device__ __forceinline__ uint64_t
l2_policy(bool keep)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint64_t evict_first, unchanged;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first));
    asm("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(unchanged));
    return keep ? evict_first : unchanged;
#else
    return keep;
#endif
}

/*
 * 16 bytes that nothing writes during the kernel: through the read-only path.  No
 * L1::no_allocate: it makes the lines evict-first in L2, too, which costs 4 % where L2
 * holds unwritten lines and the array is many times its size (H200, 1 GiB).
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

/* The same under a policy of l2_policy(). */
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
 * A copy into shared memory through no register.  From sm_90 on it is one instruction of
 * thread 0, which no other access of the processor waits behind; on sm_80 each thread
 * starts its share; else it is there at once.
 *     start_arrival     thread 0, before a barrier of the block
 *     copy_in           all threads; addresses and size are multiples of 16
 *     await_arrival     all threads, once: then the block may read what was copied
 */
__device__ __forceinline__ void
start_arrival(uint64_t *arrival)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(arrival));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n"
                 "fence.proxy.async.shared::cta;" ::"r"(at)
                 : "memory");
#else
    (void)arrival;
#endif
}

template <int THREADS>
__device__ __forceinline__ void
copy_in(void *shared, const void *p, int bytes, uint64_t *arrival)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
        const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(arrival));
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at),
                     "r"(bytes)
                     : "memory");
        if (bytes > 0) {
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                " [%0], [%1], %2, [%3];" ::"r"(to),
                "l"(p), "r"(bytes), "r"(at)
                : "memory");
        }
    }
#else
    (void)arrival;
    for (int i = 16 * threadIdx.x; i < bytes; i += 16 * THREADS) {
        char *const to = static_cast<char *>(shared) + i;
        const char *const from = static_cast<const char *>(p) + i;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from)
                     : "memory");
#else
        *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
#endif
    }
#endif
}

__device__ __forceinline__ void
await_arrival(uint64_t *arrival)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(arrival));
    asm volatile("{.reg .pred p;\n"
                 "AGAIN_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n"
                 "@!p bra AGAIN_%=;}" ::"r"(at)
                 : "memory");
#else
    (void)arrival;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncthreads();
#endif
}

#endif
