/*
 * weigh.h  What a call on host arrays costs on the CPU and, by copies, on a device: a
 * pure function of measured costs and the call's load.
 */
#ifndef GPO_WEIGH_H
#define GPO_WEIGH_H

/* Seconds, of one machine; of a byte and a flop at the highest rates of any operator. */
typedef struct gpo_costs {
    double cpu_call, cpu_byte, cpu_flop;
    double device_call; /* a call by copies that computes nothing: launch, waits */
    double device_byte, device_flop;
    double up_byte, down_byte; /* over the bus */
} gpo_costs;

/* What a call must do; a factor is how many times the above its operator takes. */
typedef struct gpo_load {
    double bytes, flops;         /* by the operator's cost() */
    double up_bytes, down_bytes; /* of its inputs and results */
    double cpu_factor, device_factor;
} gpo_load;

typedef struct gpo_estimate {
    double cpu, device; /* seconds */
} gpo_estimate;

/*
 * Both estimates are affine in the size of a call whose bytes and flops grow in
 * proportion, so that there is one size from which on the device is faster, or none.
 */
gpo_estimate gpo_weigh(const gpo_costs *costs, const gpo_load *load);

#endif
