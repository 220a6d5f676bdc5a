/*
 * wgmma_tf32_sim.h  The C++ equivalent of device/wgmma_tf32.cuh, which includes this file
 * for the simulator and says what the function does.
 */
#ifndef GPO_SIM_WGMMA_TF32_SIM_H
#define GPO_SIM_WGMMA_TF32_SIM_H

#include "tf32_calls.h"
#include "wgmma_sim.h"

GPO_SIM_FN static void
wgmma_tf32(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add, GPO_SIM_HERE)
{
    gpo_sim::product_of_floats_start(d, 128, a, b, add, file, line);
}

GPO_SIM_FN static void
wgmma_tf32(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add, GPO_SIM_HERE)
{
    gpo_sim::product_of_floats_start(d, 64, a, b, add, file, line);
}

#endif
