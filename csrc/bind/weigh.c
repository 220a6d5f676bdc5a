/*
 * weigh.c  What a call on host arrays costs on the CPU and on a device.
 * See rates.c for the costs of this machine, choose.c for the decision.
 */
#include "weigh.h"

/* The slower of moving the bytes and computing the flops: the roofline. */
static double
work(const gpo_load *load, double byte, double flop)
{
    const double moved = load->bytes * byte, computed = load->flops * flop;
    return moved > computed ? moved : computed;
}

gpo_estimate
gpo_weigh(const gpo_costs *c, const gpo_load *load)
{
    const double bus = load->up_bytes * c->up_byte + load->down_bytes * c->down_byte;
    return (gpo_estimate){
        .cpu = c->cpu_call + load->cpu_factor * work(load, c->cpu_byte, c->cpu_flop),
        .device = c->device_call + bus +
                  load->device_factor * work(load, c->device_byte, c->device_flop),
    };
}
