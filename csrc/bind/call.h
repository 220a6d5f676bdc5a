/*
 * call.h  What one call knows, and what its steps do where its arrays are: for the files
 * that make a call, in the order call.c tells.
 */
#ifndef GPO_CALL_H
#define GPO_CALL_H

#include "exchange.h"
#include "parse.h"
#include "results.h"

typedef struct frame frame;

/* ---- where the arrays of a call are, and what each step does there ---- */

/*
 * A function that returns bool leaves an exception set where it returns false; so does
 * `result` with NULL.
 */
typedef struct gpo_placement {
    /* After the inputs are viewed: what they need besides, and the arrays of out=. */
    bool (*wrap)(frame *f);
    /* Whether out= number i has the shape of its result and shares no memory. */
    bool (*check_out)(const frame *f, int i);
    /* Gives input i the dtype call.convert[i], now or when the call runs. */
    bool (*convert)(frame *f, int i);
    /* For plan(): what `place` would change of inputs and variant; NULL: nothing. */
    bool (*foresee)(frame *f);
    /* After the backend is chosen: memory for the results. */
    bool (*place)(frame *f);
    /* Computes, from begin to end, and notes what it did. */
    bool (*run)(frame *f);
    /* What Python gets for output i. */
    PyObject *(*result)(frame *f, int i);
    /* The arrays stay where they are: no other backend can run the call. */
    bool bound;
} gpo_placement;

extern const gpo_placement gpo_place_host;   /* host memory, by the CPU */
extern const gpo_placement gpo_place_copy;   /* host memory, by copies on a device */
extern const gpo_placement gpo_place_device; /* memory of a device, in its own queue */

/* ---- the call ---- */

/*
 * Input i is array number i, out= number i is array number GPO_MAX_IN + i.  24 KiB: a call
 * keeps it on the heap, for threads have as little as 64 KiB of stack.
 */
enum { GPO_MAX_ARRAYS = GPO_MAX_IN + GPO_MAX_OUT };

struct frame {
    gpo_binding *binding;
    PyObject *value[GPO_MAX_ARGS + NCOMMON]; /* borrowed; NULL where left out */
    const gpo_placement *place;              /* set once the inputs are viewed */
    PyArrayObject *given[GPO_MAX_IN];     /* host arrays as they came, in any layout */
    PyArrayObject *in[GPO_MAX_IN];        /* what is read: `given` or a copy of it */
    PyObject *caller_object[GPO_MAX_OUT]; /* what out= was, borrowed; else NULL */
    PyArrayObject *caller_out[GPO_MAX_OUT]; /* in host memory: borrowed, else NULL */
    PyArrayObject *out[GPO_MAX_OUT]; /* what is written for caller_out, or it itself */
    gpo_made made[GPO_MAX_OUT];      /* the other results */
    PyObject *pin[GPO_MAX_ARRAYS];   /* see gpo_pin; NULL where there is none */
    gpo_call call;
    _Alignas(16) char plan[GPO_PLAN_BYTES];
    gpo_backend_id id;
    gpo_dtype caller_dtype[GPO_MAX_OUT];
    bool any_int;            /* an input is a Python int: see numbers.c */
    bool beyond[GPO_MAX_IN]; /* a Python int outside of int64 and uint64 */
    bool packed;             /* an input was copied on the host first */
    bool any_foreign;
    bool
        stream_given; /* set only in a call on foreign arrays, as is what ends the list */
    char why[GPO_MESSAGE];

    /* The array that says where and for whom the results are: gpo_numpy, or foreign. */
    const gpo_foreign *like;
    gpo_foreign *foreign[GPO_MAX_ARRAYS]; /* NULL where NumPy's or left out */

    /* ---- set only in a call on foreign arrays: see take.c ---- */

    void *stream;
    PyObject *keeper; /* borrowed: the object of the call's stream */
    gpo_foreign store[GPO_MAX_ARRAYS];
    gpo_array source[GPO_MAX_IN];  /* what convert[] asks to convert on a device */
    gpo_array target[GPO_MAX_OUT]; /* the caller's out= */
    void *memory[GPO_MAX_OUT];     /* allocated for results, not yet an object's */
};

/* The plan of inputs as they now are: converted or packed ones have other strides. */
static inline void
gpo_make_plan(gpo_call *call)
{
    if (call->op->plan) {
        call->op->plan(call);
    }
}

/* ---- the steps a call and its plan have in common: call.c ---- */

/*
 * A frame for one call, NULL with an exception set.  An argument's __array__ may make
 * a call of its own, and so on: Python counts the depth.
 */
frame *gpo_call_enter(gpo_binding *binding);
void gpo_call_leave(frame *f);

/* From the arguments to the shapes of the results. */
bool gpo_call_prepare(frame *f, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

/* The plan, and the backend and variant by it. */
bool gpo_call_choose(frame *f);

/* ---- what module.c and introspect.c call ---- */

/* One call of an operator, from its arguments to what Python gets. */
PyObject *gpo_op_call(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

/* plan(op, *args, **kwargs): the same steps without computing; a dict: plan.c. */
PyObject *gpo_op_plan(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

#endif
