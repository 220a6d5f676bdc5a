/*
 * task.c  Work of a backend outside of an operator: a call that has only a name.
 */
#include "task.h"

#include <string.h>

void
gpo_call_init(gpo_call *call, const gpo_op *op)
{
    for (int i = 0; i < GPO_MAX_IN; i++) {
        call->in[i].present = false;
        call->in[i].weak = false;
        call->in[i].on_host = false;
        call->convert[i] = GPO_NONE;
    }
    for (int i = 0; i < GPO_MAX_OUT; i++) {
        call->out_given[i] = GPO_NONE;
    }
    call->op = op;
    call->nout = op->nout;
    call->known = call->found = (gpo_indices){0, 0, 0};
    call->variant = NULL;
    call->plan = NULL;
    call->backend = NULL;
    call->stream = NULL;
    call->scratch = NULL;
    call->device = 0;
    call->error.message[0] = 0;
    call->error.code = 0;
    call->error.api = call->error.kernel = NULL;
    call->error.requested_bytes = call->error.free_bytes = call->error.total_bytes = 0;
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
