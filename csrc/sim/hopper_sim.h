/*
 * hopper_sim.h  The C++ equivalents of device/hopper.cuh, which includes this file for
 * the simulator and says what each function does.  Same order as there.
 */
#ifndef GPO_SIM_HOPPER_SIM_H
#define GPO_SIM_HOPPER_SIM_H

#include "wgmma_sim.h"

/* ---- mbarriers ---- */

GPO_SIM_FN static void
mbarrier_start(uint32_t barrier, uint32_t arrivals, GPO_SIM_HERE)
{
    gpo_sim::mbarrier_init(barrier, arrivals, file, line);
}

GPO_SIM_FN static void
mbarrier_stop(uint32_t barrier, GPO_SIM_HERE)
{
    gpo_sim::mbarrier_end(barrier, file, line);
}

GPO_SIM_FN static void
mbarrier_arrive(uint32_t barrier, GPO_SIM_HERE)
{
    gpo_sim::mbarrier_arrive(barrier, 0, 1, file, line);
}

GPO_SIM_FN static void
mbarrier_arrive_peer(uint32_t barrier, GPO_SIM_HERE)
{
    gpo_sim::mbarrier_arrive(barrier, 0, 1, file, line);
}

GPO_SIM_FN static bool
mbarrier_test(uint32_t barrier, uint32_t parity, GPO_SIM_HERE)
{
    return gpo_sim::mbarrier_test(barrier, parity, file, line);
}

/* ---- named barriers ---- */

GPO_SIM_FN static void
named_barrier_sync(uint32_t id, uint32_t threads, GPO_SIM_HERE)
{
    gpo_sim::named_barrier(id, threads, true, file, line);
}

GPO_SIM_FN static void
named_barrier_arrive(uint32_t id, uint32_t threads, GPO_SIM_HERE)
{
    gpo_sim::named_barrier(id, threads, false, file, line);
}

/* ---- registers: the simulator does not count them ---- */

template <int REGISTERS>
GPO_SIM_FN static void
take_registers()
{
    static_assert(REGISTERS >= 24 && REGISTERS <= 256 && REGISTERS % 8 == 0,
                  "24 to 256 registers, divisible by 8");
}

template <int REGISTERS>
GPO_SIM_FN static void
return_registers()
{
    take_registers<REGISTERS>();
}

/* ---- sums ---- */

GPO_SIM_FN static void
bulk_add(float *to, uint32_t from, uint32_t bytes, GPO_SIM_HERE)
{
    gpo_sim::bulk_store_start(to, from, bytes, true, file, line);
}

/* ---- tensor maps ---- */

using tensor_map = gpo_sim::TensorMap;

template <typename T>
gpo_status
make_tensor_map(gpo_call *call, T *base, const tensor_layout &layout, tensor_map *map,
                GPO_SIM_HERE)
{
    return gpo_sim::tensor_map_make(call, map, base, sizeof(T), layout.rank,
                                    layout.sizes, layout.strides, layout.box,
                                    layout.swizzled, file, line);
}

template <int RANK>
GPO_SIM_FN static void
tensor_load(uint32_t to, const tensor_map &map, const int32_t (&at)[RANK],
            uint32_t barrier, GPO_SIM_HERE)
{
    gpo_sim::tensor_load_start(to, &map, at, RANK, barrier, file, line);
}

template <int RANK>
GPO_SIM_FN static void
tensor_store(const tensor_map &map, const int32_t (&at)[RANK], uint32_t from,
             GPO_SIM_HERE)
{
    gpo_sim::tensor_store_start(&map, at, RANK, from, file, line);
}

/* ---- clusters ---- */

GPO_SIM_FN static uint32_t
cluster_rank()
{
    return gpo_sim::cluster_rank();
}

GPO_SIM_FN static uint32_t
cluster_size()
{
    return gpo_sim::cluster_size();
}

GPO_SIM_FN static void
cluster_sync(GPO_SIM_HERE)
{
    gpo_sim::cluster_sync(file, line);
}

GPO_SIM_FN static uint32_t
peer_address(uint32_t address, uint32_t rank, GPO_SIM_HERE)
{
    return gpo_sim::peer_address(address, rank, file, line);
}

GPO_SIM_FN static uint32_t
load_peer(uint32_t peer, GPO_SIM_HERE)
{
    return gpo_sim::peer_word(peer, file, line);
}

GPO_SIM_FN static void
store_peer(uint32_t peer, uint32_t word, GPO_SIM_HERE)
{
    gpo_sim::store_peer_word(peer, word, file, line);
}

template <typename... Parameters, typename... Arguments>
gpo_status
launch_in_clusters(gpo_call *call, unsigned blocks, dim3 grid, dim3 block,
                   size_t shared_bytes, const char *name, void (*kernel)(Parameters...),
                   Arguments... arguments)
{
    const auto body = [=] { kernel(arguments...); };
    return gpo_sim::launch_clusters(call, gpo_sim::run_body<decltype(body)>, &body,
                                    sizeof body, grid, block, shared_bytes, name,
                                    blocks);
}

#endif
