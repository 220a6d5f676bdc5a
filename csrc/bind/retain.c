/*
 * retain.c  Keeps memory of other libraries alive until a stream has finished with it:
 * a producer that does not name its stream could reuse what a kernel still reads.
 */
#include "retain.h"

#include "errors.h"
#include "task.h"

typedef struct retained {
    struct retained *next;
    int device;
    void *event;
    PyObject *object;
} retained;

static retained *waiting; /* accessed with the GIL held */

bool
gpo_retain(gpo_call *call, PyObject *object)
{
    retained *r = PyMem_Calloc(1, sizeof *r);
    if (!r) {
        PyErr_NoMemory();
        return false;
    }
    gpo_status status = call->backend->begin(call);
    if (!status) {
        status = gpo_device_cuda.event_new(call, &r->event);
        if (!status) {
            status = gpo_device_cuda.event_record(call, r->event);
        }
        call->backend->end(call);
    }
    if (status) {
        PyMem_Free(r);
        gpo_raise(call, status);
        return false;
    }
    r->device = call->device;
    r->object = Py_NewRef(object);
    r->next = waiting;
    waiting = r;
    return true;
}

void
gpo_reap(void)
{
    retained **link = &waiting;
    while (*link) {
        retained *r = *link;
        gpo_task task;
        bool done = false;
        gpo_task_init(&task, "release", &gpo_backend_cuda, r->device, NULL);
        if (gpo_backend_cuda.begin(&task.call) == GPO_OK) {
            if (gpo_device_cuda.event_done(&task.call, r->event, &done) != GPO_OK) {
                done = false; /* the context is dead: no memory is reused either */
            }
            if (done) {
                gpo_device_cuda.event_free(&task.call, r->event);
            }
            gpo_backend_cuda.end(&task.call);
        }
        if (!done) {
            link = &r->next;
            continue;
        }
        *link = r->next;
        PyObject *object = r->object;
        PyMem_Free(r);
        Py_DECREF(object); /* may run any code, even this function: start over */
        link = &waiting;
    }
}
