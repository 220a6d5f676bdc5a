/*
 * task.h  Work of a backend outside of an operator.
 */
#ifndef GPO_TASK_H
#define GPO_TASK_H

#include "bind.h"

/* A call without an operator: what the backend's functions and their errors need. */
typedef struct gpo_task {
    gpo_op op; /* only its name is set */
    gpo_call call;
} gpo_task;

void gpo_task_init(gpo_task *task, const char *name, const gpo_backend *backend,
                   int device, void *stream);

/* Resets the fields that an earlier call may have left in a gpo_call. */
void gpo_call_init(gpo_call *call, const gpo_op *op);

#endif
