/*
 * wgmma.cuh  The matrix instructions of sm_90a and the copies that feed them: tiny
 * functions around one PTX instruction each; below sm_90a each of them is a trap.  Their
 * equivalents in C++ for the simulator are in sim/wgmma_sim.h.
 * Order: fences, operands in shared memory, products, loads, copies in and out.
 *
 * A warpgroup is four warps whose first has a number divisible by 4; all 128 threads
 * call each function that says "warpgroup".
 */
#ifndef GPO_WGMMA_CUH
#define GPO_WGMMA_CUH

#ifdef __CUDACC__

#include "types.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define GPO_HOPPER 1
#define GPO_HOPPER_ASM(...) asm volatile(__VA_ARGS__)
#else
#define GPO_HOPPER_ASM(...) __trap()
#endif

/* Dynamic shared memory for operands in the 128-byte swizzle. */
#define GPO_SWIZZLED_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

__device__ __forceinline__ uint32_t
shared_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* ---- fences ---- */

/* Makes this thread's writes to shared memory visible to wgmma and bulk copies. */
__device__ __forceinline__ void
fence_async_shared()
{
    GPO_HOPPER_ASM("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Warpgroup: registers written so far may be operands of the wgmma that follow. */
__device__ __forceinline__ void
wgmma_fence()
{
    GPO_HOPPER_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Warpgroup: commits the wgmma since the last call as a group. */
__device__ __forceinline__ void
wgmma_commit()
{
    GPO_HOPPER_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Warpgroup: waits until at most PENDING groups are in flight. */
template <int PENDING>
__device__ __forceinline__ void
wgmma_wait()
{
    GPO_HOPPER_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Keeps reads of `d` after wgmma_wait, whose asm names no register. */
template <int N>
__device__ __forceinline__ void
wgmma_settled(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        asm volatile("" : "+f"(d[i])::"memory");
    }
}

/* ---- operands in shared memory ---- */

/*
 * A matrix descriptor for rows of 128 bytes in the 128-byte swizzle: the i-th 16 bytes
 * of row r are at 128 r + 16 (i ^ r % 8).  The operand starts at a row with r % 8 = 0,
 * whose address is a multiple of 1024.  Rows run along m or n, or along k; 16 values
 * in a row are 2 steps.
 */
struct wgmma_operand {
    uint32_t low, high;

    __device__ __forceinline__ explicit wgmma_operand(uint32_t address)
        : low((address & 0x3ffff) >> 4 | 1u << 16), high(1024 >> 4 | 1u << 30)
    {
    }

    /*
     * The operand `steps` times 16 bytes further on, as a value that is opaque to the
     * compiler except that it is uniform across the warp: otherwise the compiler keeps
     * every operand of a loop in separate registers.
     */
    __device__ __forceinline__ wgmma_operand opaque(uint32_t steps) const
    {
        wgmma_operand other = *this;
        other.low += steps;
        asm volatile("" : "+r"(other.low));
        other.low = __shfl_sync(0xffffffffu, other.low, 0);
        return other;
    }

    /* The operand `steps` times 16 bytes further on. */
    __device__ __forceinline__ uint64_t at(uint32_t steps) const
    {
        return static_cast<uint64_t>(high) << 32 | (low + steps);
    }
};

/* ---- products ---- */

template <typename Half>
constexpr bool is_bf16 = false;
template <>
constexpr bool is_bf16<bf16> = true;

#define GPO_D16(d)                                                                \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),       \
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), \
        "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define GPO_D32(d)                                                                    \
    GPO_D16(d), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),      \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), \
        "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define GPO_D24(d)                                                               \
    GPO_D16(d), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define GPO_R16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define GPO_R32 \
    GPO_R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"

#define GPO_R24 GPO_R16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define GPO_WGMMA_RS32(type, d, a, b, add)                                     \
    GPO_HOPPER_ASM("{.reg .pred p;\n setp.ne.b32 p, %21, 0;\n"                 \
                   "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type \
                   " {" GPO_R16 "}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;}"      \
                   : GPO_D16(d)                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

#define GPO_WGMMA_RS64(type, d, a, b, add)                                     \
    GPO_HOPPER_ASM("{.reg .pred p;\n setp.ne.b32 p, %37, 0;\n"                 \
                   "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
                   " {" GPO_R32 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;}"      \
                   : GPO_D32(d)                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

#define GPO_WGMMA_RS48(type, d, a, b, add)                                     \
    GPO_HOPPER_ASM("{.reg .pred p;\n setp.ne.b32 p, %29, 0;\n"                 \
                   "wgmma.mma_async.sync.aligned.m64n48k16.f32." type "." type \
                   " {" GPO_R24 "}, {%24,%25,%26,%27}, %28, p, 1, 1, 0;}"      \
                   : GPO_D24(d)                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

#define GPO_WGMMA_SS64(type, d, a, b, add)                                     \
    GPO_HOPPER_ASM("{.reg .pred p;\n setp.ne.b32 p, %34, 0;\n"                 \
                   "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
                   " {" GPO_R32 "}, %32, %33, p, 1, 1, 1, 1;}"                 \
                   : GPO_D32(d)                                                \
                   : "l"(a), "l"(b), "r"(add))

/*
 * Warpgroup: d = a b, plus d if `add`, with a 64 x 16 in registers and b 16 x 32 in
 * shared memory, k contiguous.  Lane 4 g + q of warp w holds
 *     of a  rows 16 w + g (+ 8 in a[1], a[3]), columns 2 q, 2 q + 1 (+ 8 in a[2], a[3])
 *     of d  the same rows (+ 8 in the upper half of each four values), columns
 *           8 j + 2 q, 8 j + 2 q + 1
 */
template <typename Half>
__device__ __forceinline__ void
wgmma_rs(float (&d)[16], const uint32_t (&a)[4], uint64_t b, bool add)
{
    if constexpr (is_bf16<Half>) {
        GPO_WGMMA_RS32("bf16", d, a, b, static_cast<int>(add));
    }
    else {
        GPO_WGMMA_RS32("f16", d, a, b, static_cast<int>(add));
    }
}

/* The same for b 16 x 48. */
template <typename Half>
__device__ __forceinline__ void
wgmma_rs(float (&d)[24], const uint32_t (&a)[4], uint64_t b, bool add)
{
    if constexpr (is_bf16<Half>) {
        GPO_WGMMA_RS48("bf16", d, a, b, static_cast<int>(add));
    }
    else {
        GPO_WGMMA_RS48("f16", d, a, b, static_cast<int>(add));
    }
}

/* The same for b 16 x 64. */
template <typename Half>
__device__ __forceinline__ void
wgmma_rs(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add)
{
    if constexpr (is_bf16<Half>) {
        GPO_WGMMA_RS64("bf16", d, a, b, static_cast<int>(add));
    }
    else {
        GPO_WGMMA_RS64("f16", d, a, b, static_cast<int>(add));
    }
}

/* The same with a in shared memory, too, and with m and n contiguous. */
template <typename Half>
__device__ __forceinline__ void
wgmma_ss64(float (&d)[32], uint64_t a, uint64_t b, bool add)
{
    if constexpr (is_bf16<Half>) {
        GPO_WGMMA_SS64("bf16", d, a, b, static_cast<int>(add));
    }
    else {
        GPO_WGMMA_SS64("f16", d, a, b, static_cast<int>(add));
    }
}

/* ---- loads ---- */

/*
 * Loads that are issued here; 0 unless `wanted`.  The compiler moves a plain load to
 * where its value is used, and branches around a conditional one.
 */
__device__ __forceinline__ uint4
load_now(const uint4 *p, bool wanted)
{
    uint4 v = make_uint4(0, 0, 0, 0);
    asm volatile("{.reg .pred p;\n setp.ne.b32 p, %5, 0;\n"
                 "@p ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(p), "r"(static_cast<int>(wanted)));
    return v;
}

__device__ __forceinline__ float
load_now(const float *p, bool wanted)
{
    float v = 0;
    asm volatile("{.reg .pred p;\n setp.ne.b32 p, %2, 0;\n"
                 "@p ld.global.nc.f32 %0, [%1];}"
                 : "+f"(v)
                 : "l"(p), "r"(static_cast<int>(wanted)));
    return v;
}

template <typename Half>
__device__ __forceinline__ Half
load_now(const Half *p, bool wanted)
{
    static_assert(sizeof(Half) == 2, "a float of 16 bits");
    unsigned short bits = 0;
    asm volatile("{.reg .pred p;\n setp.ne.b32 p, %2, 0;\n"
                 "@p ld.global.nc.u16 %0, [%1];}"
                 : "+h"(bits)
                 : "l"(p), "r"(static_cast<int>(wanted)));
    Half v;
    memcpy(&v, &bits, 2);
    return v;
}

/* Loads a word of shared memory here: the load is volatile. */
__device__ __forceinline__ uint32_t
load_word(uint32_t at)
{
    uint32_t word = 0;
    GPO_HOPPER_ASM("ld.volatile.shared.u32 %0, [%1];" : "=r"(word) : "r"(at));
    return word;
}

/* ---- copies into shared memory ---- */

/* Asynchronous copy of 16 bytes into shared memory; zeros unless `wanted`. */
__device__ __forceinline__ void
copy_async(uint32_t to, const void *from, bool wanted)
{
    GPO_HOPPER_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                   "r"(wanted ? 16 : 0)
                   : "memory");
}

/* Waits until this thread's copy_async are complete. */
__device__ __forceinline__ void
copy_async_wait()
{
    GPO_HOPPER_ASM("cp.async.wait_all;" ::: "memory");
}

/* Initialises an mbarrier (8 bytes of shared memory) on which one thread arrives; then
   that thread calls fence_async_shared and the block __syncthreads before its use. */
__device__ __forceinline__ void
bulk_barrier_start(uint32_t barrier)
{
    GPO_HOPPER_ASM("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

/* The current phase of the barrier ends when `bytes` have arrived. */
__device__ __forceinline__ void
bulk_barrier_expect(uint32_t barrier, uint32_t bytes)
{
    GPO_HOPPER_ASM(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
        "r"(bytes)
        : "memory");
}

/* Waits for the end of the phase of this parity. */
__device__ __forceinline__ void
bulk_barrier_wait(uint32_t barrier, uint32_t parity)
{
    GPO_HOPPER_ASM("{.reg .pred p;\n"
                   "AGAIN_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                   "@!p bra AGAIN_%=;}" ::"r"(barrier),
                   "r"(parity)
                   : "memory");
}

/* Copies `bytes` (addresses and size are multiples of 16) into shared memory. */
__device__ __forceinline__ void
bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    GPO_HOPPER_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                   " [%0], [%1], %2, [%3];" ::"r"(to),
                   "l"(from), "r"(bytes), "r"(barrier)
                   : "memory");
}

/* The same with an L2 cache policy. */
__device__ __forceinline__ void
bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier,
          uint64_t policy)
{
    GPO_HOPPER_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                   ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
                   "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                   : "memory");
}

/* ---- copies out of shared memory ---- */

/*
 * Copies `bytes` (addresses and size are multiples of 16) to global memory,
 * asynchronously; earlier writes to the shared memory need a fence_async_shared first.
 */
__device__ __forceinline__ void
bulk_store(void *to, uint32_t from, uint32_t bytes)
{
    GPO_HOPPER_ASM("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                   "cp.async.bulk.commit_group;" ::"l"(to),
                   "r"(from), "r"(bytes)
                   : "memory");
}

/* Waits until this thread's bulk_stores have read their shared memory. */
__device__ __forceinline__ void
bulk_wait_read()
{
    GPO_HOPPER_ASM("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* Waits until they are complete. */
__device__ __forceinline__ void
bulk_wait()
{
    GPO_HOPPER_ASM("cp.async.bulk.wait_group 0;" ::: "memory");
}

#else

#include "../sim/wgmma_sim.h"

#endif
#endif
