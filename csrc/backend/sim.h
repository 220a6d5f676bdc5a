/*
 * sim.h  The border between the module and the simulator, which is a shared object of
 * its own (csrc/sim/, built once plain and once for profiling) loaded on first use.
 */
#ifndef GPO_SIM_H
#define GPO_SIM_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The simulator's backend; one that is never available if no library can be loaded. */
const gpo_backend *gpo_sim_backend(void);

/* The simulator's own table of an operator, NULL if there is none. */
const gpo_table *gpo_sim_table(const char *op);

#ifdef __cplusplus
}
#endif
#endif
