/*
 * backend.c  From a backend's number to its functions and an operator's table; and
 * the questions a room asks its backend without knowing which one it is.
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
            return gpo_sim_table(op->name);
        default:
            return op->cpu;
    }
}

gpo_status
gpo_scratch(gpo_call *call, size_t bytes, void **out)
{
    return call->backend->scratch(call, bytes, out);
}

gpo_status
gpo_tickets(gpo_call *call, unsigned **out)
{
    return call->backend->tickets(call, out);
}

int
gpo_processors(const gpo_call *call)
{
    return call->backend->processors(call);
}
