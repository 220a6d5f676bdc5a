/*
 * task.c  Work of a backend outside of an operator: a call that has a name and nothing
 * to compute, and the checks of backend and device.
 */
#include "bind.h"

#include <string.h>

void
gpo_call_init(gpo_call *call, const gpo_op *op)
{
    for (int i = 0; i < GPO_MAX_IN; i++) {
        call->in[i].present = false;
        call->in[i].weak = false;
        call->convert[i] = GPO_NONE;
    }
    for (int i = 0; i < GPO_MAX_OUT; i++) {
        call->out_given[i] = GPO_NONE;
    }
    call->op = op;
    call->nout = op->nout;
    call->variant = NULL;
    call->backend = NULL;
    call->stream = NULL;
    call->scratch = NULL;
    call->device = 0;
    call->message[0] = 0;
    call->code = 0;
    call->api = call->kernel = NULL;
    call->requested_bytes = call->free_bytes = call->total_bytes = 0;
}

void
gpo_task_init(gpo_task *task, const char *name, const gpo_backend *backend, int device,
              void *stream)
{
    memset(&task->op, 0, sizeof task->op);
    task->op.name = name;
    gpo_call_init(&task->call, &task->op);
    task->call.backend = backend;
    task->call.device = device;
    task->call.stream = stream;
}

const gpo_device *
gpo_device_of(gpo_backend_id id)
{
    return id == GPO_SIM ? &gpo_device_sim : &gpo_device_cuda;
}

bool
gpo_check_available(gpo_backend_id id)
{
    const gpo_backend *backend = gpo_backend_get(id);
    const char *reason = backend->unavailable();
    if (reason && id == GPO_CPU) { /* what GPUOPT_CPU says is all that turns it off */
        PyErr_SetString(PyExc_ValueError, reason);
    }
    else if (reason) {
        PyErr_Format(id == GPO_CUDA ? gpo_py.cuda_error : gpo_py.simulator_error,
                     "backend '%s' is not available: %s", backend->name, reason);
    }
    return !reason;
}

bool
gpo_check_device(gpo_backend_id id, int64_t device)
{
    if (!gpo_check_available(id)) {
        return false;
    }
    const int count = gpo_device_of(id)->count();
    if (device < 0 || device >= count) {
        PyErr_Format(PyExc_ValueError,
                     "device %lld is out of range; backend '%s' has %d device%s",
                     (long long)device, gpo_backend_names[id], count,
                     count == 1 ? "" : "s");
        return false;
    }
    return true;
}
