/*
 * rates.h  The measured costs of this machine, by which calls on host arrays are placed.
 */
#ifndef GPO_RATES_H
#define GPO_RATES_H

#include "bind.h"
#include "weigh.h"

/* Whether the costs are still unknown: neither measured nor turned off. */
bool gpo_rates_wanted(void);

/*
 * Reads or measures them: gpuopt._calibration.load(), which runs Python code and calls
 * operators.  Calls in the meantime find them unknown and not wanted.  False on failure.
 */
bool gpo_rates_load(void);

/* The device that the costs are those of; -1 while there are none. */
int gpo_rates_device(void);

/* The estimate for a call whose shapes and plan are made; gpo_rates_device() >= 0. */
gpo_estimate gpo_rates_estimate(const gpo_call *call, int op);

#endif
