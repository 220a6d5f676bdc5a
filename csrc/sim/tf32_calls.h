/*
 * tf32_calls.h  What the C++ equivalent of device/wgmma_tf32.cuh calls (wgmma.cpp).
 */
#ifndef GPO_SIM_TF32_CALLS_H
#define GPO_SIM_TF32_CALLS_H

#include <stdint.h>

namespace gpo_sim {

/* a 64 x 8, four words per thread, and b 8 x n in shared memory; see product_start. */
void product_of_floats_start(float *d, unsigned n, const uint32_t *a, uint64_t b,
                             bool add, const char *file, int line);

} // namespace gpo_sim

#endif
