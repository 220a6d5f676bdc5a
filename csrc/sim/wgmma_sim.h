/*
 * wgmma_sim.h  The C++ equivalents of device/wgmma.cuh, which includes this file for
 * the simulator and says what each function does.  Same order as there.
 */
#ifndef GPO_SIM_WGMMA_SIM_H
#define GPO_SIM_WGMMA_SIM_H

#include "../device/types.cuh"
#include "hopper_calls.h"

#define GPO_HOPPER 1

/* The simulator aligns every dynamic array to 1024 bytes. */
#define GPO_SWIZZLED_SHARED(name) GPO_DYN_SHARED(unsigned char, name)

GPO_SIM_FN static uint32_t
shared_address(const void *p, GPO_SIM_HERE)
{
    return gpo_sim::shared_number(p, file, line);
}

/* ---- fences ---- */

GPO_SIM_FN static void
fence_async_shared()
{
    gpo_sim::proxy_fence();
}

GPO_SIM_FN static void
wgmma_fence()
{
    gpo_sim::products_fence();
}

GPO_SIM_FN static void
wgmma_commit()
{
    gpo_sim::products_commit();
}

template <int PENDING>
GPO_SIM_FN static void
wgmma_wait(GPO_SIM_HERE)
{
    gpo_sim::products_wait(PENDING, file, line);
}

template <int N>
GPO_SIM_FN static void
wgmma_settled(float (&d)[N], GPO_SIM_HERE)
{
    gpo_sim::products_settled(d, N, file, line);
}

/* ---- operands in shared memory ---- */

struct wgmma_operand {
    uint32_t low, high;

    explicit wgmma_operand(uint32_t address)
        : low((address & 0x3ffff) >> 4 | 1u << 16), high(1024 >> 4 | 1u << 30)
    {
    }

    wgmma_operand opaque(uint32_t steps) const
    {
        wgmma_operand other = *this;
        other.low = __shfl_sync(0xffffffffu, other.low + steps, 0);
        return other;
    }

    uint64_t at(uint32_t steps) const
    {
        return static_cast<uint64_t>(high) << 32 | (low + steps);
    }
};

/* ---- products ---- */

template <typename Half>
constexpr bool is_bf16 = false;
template <>
constexpr bool is_bf16<bf16> = true;

template <typename Half, int N>
GPO_SIM_FN static void
wgmma_rs(float (&d)[N], const uint32_t (&a)[4], uint64_t b, bool add, GPO_SIM_HERE)
{
    static_assert(N == 16 || N == 24 || N == 32, "b is 16 x 32, 48 or 64");
    gpo_sim::product_start(d, 2 * N, a, 0, b, is_bf16<Half>, add, file, line);
}

template <typename Half>
GPO_SIM_FN static void
wgmma_ss64(float (&d)[32], uint64_t a, uint64_t b, bool add, GPO_SIM_HERE)
{
    gpo_sim::product_start(d, 64, NULL, a, b, is_bf16<Half>, add, file, line);
}

/* ---- loads ---- */

template <typename T>
__device__ __forceinline__ T
load_now(const T *p, bool wanted)
{
    return wanted ? *p : T();
}

GPO_SIM_FN static uint32_t
load_word(uint32_t at, GPO_SIM_HERE)
{
    return gpo_sim::shared_word(at, file, line);
}

/* ---- copies ---- */

GPO_SIM_FN static void
copy_async(uint32_t to, const void *from, bool wanted, GPO_SIM_HERE)
{
    gpo_sim::copy_16_start(to, from, wanted, file, line);
}

GPO_SIM_FN static void
copy_async_wait()
{
    gpo_sim::copy_16_wait();
}

GPO_SIM_FN static void
bulk_barrier_start(uint32_t barrier, GPO_SIM_HERE)
{
    gpo_sim::mbarrier_init(barrier, 1, file, line);
}

GPO_SIM_FN static void
bulk_barrier_expect(uint32_t barrier, uint32_t bytes, GPO_SIM_HERE)
{
    gpo_sim::mbarrier_arrive(barrier, bytes, 1, file, line);
}

GPO_SIM_FN static void
bulk_barrier_wait(uint32_t barrier, uint32_t parity, GPO_SIM_HERE)
{
    gpo_sim::mbarrier_wait(barrier, parity, file, line);
}

GPO_SIM_FN static void
bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, GPO_SIM_HERE)
{
    gpo_sim::bulk_load_start(to, from, bytes, barrier, file, line);
}

GPO_SIM_FN static void
bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier, uint64_t,
          GPO_SIM_HERE)
{
    gpo_sim::bulk_load_start(to, from, bytes, barrier, file, line);
}

GPO_SIM_FN static void
bulk_store(void *to, uint32_t from, uint32_t bytes, GPO_SIM_HERE)
{
    gpo_sim::bulk_store_start(to, from, bytes, false, file, line);
}

GPO_SIM_FN static void
bulk_wait_read(GPO_SIM_HERE)
{
    gpo_sim::bulk_store_wait(true, file, line);
}

GPO_SIM_FN static void
bulk_wait(GPO_SIM_HERE)
{
    gpo_sim::bulk_store_wait(false, file, line);
}

#endif
