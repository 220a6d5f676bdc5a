/*
 * call.h  The state of one call, and the steps that depend on where its arrays are: for
 * the files that implement a call, in the order of call.c.
 */
#ifndef GPO_CALL_H
#define GPO_CALL_H

#include "exchange.h"
#include "parse.h"
#include "results.h"

typedef struct frame frame;

/* ---- the placement: the steps that depend on where the arrays of a call are ---- */

/*
 * A function that returns bool sets an exception when it returns false; so does
 * `result` when it returns NULL.
 */
typedef struct gpo_placement {
    /* After the inputs are viewed: what else they need, and the arrays of out=. */
    bool (*wrap)(frame *f);
    /* Whether out= number i has the shape of its result and shares no memory. */
    bool (*check_out)(const frame *f, int i);
    /* Converts input i to the dtype call.convert[i], now or when the call runs. */
    bool (*convert)(frame *f, int i);
    /* For plan(): predicts how `place` changes inputs and variant; NULL: not at all. */
    bool (*foresee)(frame *f);
    /* After the backend is chosen: memory for the results. */
    bool (*place)(frame *f);
    /* Computes, from begin to end, and records what last_call() reports. */
    bool (*run)(frame *f);
    /* The Python object of output i. */
    PyObject *(*result)(frame *f, int i);
    /* The arrays stay where they are: only their backend can run the call. */
    bool bound;
} gpo_placement;

extern const gpo_placement gpo_place_host;   /* host memory, by the CPU */
extern const gpo_placement gpo_place_copy;   /* host memory, by copies on a device */
extern const gpo_placement gpo_place_device; /* memory of a device, on a stream */

/* ---- the call ---- */

/* A tensor of indices and the view of it in one call: see known.c. */
typedef struct gpo_view_key {
    PyObject *tensor;  /* it, or the one it is a view of; NULL: not looked at */
    long long version; /* torch's count of writes to it, before the call */
    const void *data;
    uint64_t layout; /* of shape and strides */
    gpo_dtype dtype;
} gpo_view_key;

/*
 * Input i is array number i, out= number i is array number GPO_MAX_IN + i.  A frame is
 * 24 KiB and never on the stack, because threads have as little as 64 KiB of stack.
 */
enum { GPO_MAX_ARRAYS = GPO_MAX_IN + GPO_MAX_OUT };

struct frame {
    gpo_binding *binding;
    PyObject *value[GPO_MAX_ARGS + NCOMMON]; /* borrowed; NULL where left out */
    const gpo_placement *place;              /* set once the inputs are viewed */
    PyArrayObject *given[GPO_MAX_IN];        /* host arrays as passed, in any layout */
    PyArrayObject *in[GPO_MAX_IN];           /* what is read: `given` or a copy of it */
    PyObject *caller_object[GPO_MAX_OUT];    /* the caller's out=, borrowed; or NULL */
    PyArrayObject *caller_out[GPO_MAX_OUT]; /* it in host memory, borrowed; else NULL */
    PyArrayObject *out[GPO_MAX_OUT]; /* what is written: caller_out or a temporary */
    gpo_made made[GPO_MAX_OUT];      /* the other results */
    PyObject *pin[GPO_MAX_ARRAYS];   /* see gpo_pin; NULL where there is none */
    gpo_call call;
    _Alignas(16) char plan[GPO_PLAN_BYTES];
    gpo_backend_id id;
    gpo_dtype caller_dtype[GPO_MAX_OUT];
    bool any_int;            /* an input is a Python int: see numbers.c */
    bool beyond[GPO_MAX_IN]; /* a Python int outside of int64 and uint64 */
    bool packed;             /* an input was copied on the host first */
    gpo_view_key seen;       /* of the input op->indices; a reference to its tensor */
    bool any_foreign;
    bool stream_given; /* set only in a call on foreign arrays, as the last fields */
    bool explains;     /* plan() asks why the variant is chosen */
    char why[GPO_MESSAGE]; /* the reason, then */

    /* Decides device and library of the results: gpo_numpy or a foreign array. */
    const gpo_foreign *like;
    gpo_foreign *foreign[GPO_MAX_ARRAYS]; /* NULL for NumPy's and omitted arrays */

    /* ---- set only in a call on foreign arrays: see take.c ---- */

    void *stream;
    PyObject *stream_owner; /* borrowed: the object of the call's stream */
    gpo_foreign store[GPO_MAX_ARRAYS];
    gpo_array source[GPO_MAX_IN];  /* inputs to convert on the device, see convert[] */
    gpo_array target[GPO_MAX_OUT]; /* the caller's out= */
    void *memory[GPO_MAX_OUT];     /* of results, not yet owned by an object */
};

/* Makes the plan for the current inputs: conversion and packing change strides. */
static inline void
gpo_make_plan(gpo_call *call)
{
    if (call->op->plan) {
        call->op->plan(call);
    }
}

/* ---- the steps shared by a call and plan(): call.c ---- */

/*
 * A frame for one call; NULL with an exception set.  An argument's __array__ may call
 * an operator, recursively: Python's recursion limit bounds the depth.
 */
frame *gpo_call_enter(gpo_binding *binding);
void gpo_call_leave(frame *f);

/* From the arguments to the shapes of the results. */
bool gpo_call_prepare(frame *f, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

/* Makes the plan and chooses backend and variant by it. */
bool gpo_call_choose(frame *f);

/* ---- for module.c and introspect.c ---- */

/* One call of an operator, from its arguments to its Python result. */
PyObject *gpo_op_call(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

/* plan(op, *args, **kwargs), the same steps without computing: plan.c. */
PyObject *gpo_op_plan(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

#endif
