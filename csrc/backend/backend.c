/*
 * backend.c  Looks up a backend's functions and an operator's table by gpo_backend_id.
 */
#include "backend.h"
#include "sim.h"

const gpo_backend *
gpo_backend_get(gpo_backend_id id)
{
    switch (id) {
        case GPO_CUDA:
            return &gpo_backend_cuda;
        case GPO_SIM:
            return gpo_sim_backend();
        default:
            return &gpo_backend_cpu;
    }
}

const gpo_table *
gpo_backend_table(gpo_backend_id id, const gpo_op *op)
{
    switch (id) {
        case GPO_CUDA:
            return op->cuda;
        case GPO_SIM:
            return gpo_sim_table(op->ladder ? op->ladder : op->name);
        default:
            return op->cpu;
    }
}
