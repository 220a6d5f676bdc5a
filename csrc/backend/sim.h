/*
 * sim.h  The interface between the module and the simulator, a separate shared object
 * (csrc/sim/, built once plain and once instrumented) that is loaded on first use.
 */
#ifndef GPO_SIM_H
#define GPO_SIM_H

#include "../sim/library.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The simulator's backend; if no library can be loaded, one that is unavailable. */
const gpo_backend *gpo_sim_backend(void);

/* The simulator's own table of a ladder, NULL if there is none. */
const gpo_table *gpo_sim_table(const char *ladder);

/*
 * Why a simulator that runs has no table of the operator: it was built for some rooms
 * alone (GPUOPT_SIM_ROOMS).  NULL if it has one, or cannot run at all.
 */
const char *gpo_sim_lacks(const gpo_op *op);

/*
 * The settings, initially read from GPUOPT_SIM ("check", "plain" or unset).  Checks,
 * counts or the schedule lockstep select the instrumented library.  Settings are global
 * to the process: change them only between calls.
 */
void gpo_sim_get_config(gpo_sim_config *config);
void gpo_sim_set_config(const gpo_sim_config *config);

/* The library that the settings select; NULL with the reason (static storage). */
const gpo_sim_library *gpo_sim_loaded(const char **reason);

extern const char *const gpo_sim_schedules[GPO_SIM_NSCHEDULES];

#ifdef __cplusplus
}
#endif
#endif
