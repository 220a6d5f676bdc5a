/*
 * sim.c  Loads the simulator, a shared object beside the extension module.
 */
#include "sim.h"

static const char *
unavailable(void)
{
    return "this build of gpuopt has no simulator";
}

static const gpo_backend none = {
    .name = "sim", .device_memory = true, .unavailable = unavailable};

const gpo_backend *
gpo_sim_backend(void)
{
    return &none;
}

const gpo_table *
gpo_sim_table(const char *op)
{
    (void)op;
    return NULL;
}
