/*
 * call.h  What one call knows, for the two files that make it: call.c and run.c.
 */
#ifndef GPO_CALL_H
#define GPO_CALL_H

#include "bind.h"

/* What a call on arrays that are not the host's knows besides; unset in other calls. */
typedef struct away {
    gpo_foreign in[GPO_MAX_IN];
    gpo_foreign out[GPO_MAX_OUT]; /* of a caller's out=; keep is NULL if none */
    gpo_foreign *first;           /* the input that says where and how */
    bool on_device;               /* else CPU memory of another library */
    bool stream_given;
    void *stream;
    PyObject *keeper;              /* borrowed: the object of the call's stream */
    gpo_array source[GPO_MAX_IN];  /* what convert[] asks to convert */
    gpo_array target[GPO_MAX_OUT]; /* the caller's out= */
    void *memory[GPO_MAX_OUT];     /* allocated for results, not yet an object's */
    gpo_made made[GPO_MAX_OUT];
} away;

/* 20 KiB: a call keeps it on the heap, for threads have as little as 64 KiB of stack. */
typedef struct frame {
    gpo_binding *binding;
    PyObject *value[GPO_MAX_ARGS + NCOMMON]; /* borrowed; NULL where left out */
    gpo_backend_id id;
    PyArrayObject *given[GPO_MAX_IN]; /* host arrays as they came, in any layout */
    PyArrayObject *in[GPO_MAX_IN];    /* what is read: `given` or a copy of it */
    PyArrayObject *out[GPO_MAX_OUT];  /* computed into; NULL for a scalar */
    PyArrayObject *caller_out[GPO_MAX_OUT]; /* borrowed; NULL where not given */
    _Alignas(16) char scalar[GPO_MAX_OUT][16];
    PyObject *caller_object[GPO_MAX_OUT];    /* what out= was, borrowed */
    bool is_away;                            /* `away` is set */
    bool packed;                             /* an input was copied on the host first */
    PyObject *pin[GPO_MAX_IN + GPO_MAX_OUT]; /* see gpo_pin; NULL where there is none */
    bool beyond[GPO_MAX_IN]; /* a Python integer outside of int64 and uint64 */
    char why[GPO_MESSAGE];
    gpo_call call;
    away away;
} frame;

/*
 * Reads the object given for `arg` into `out`: options.c.  May run any Python code.
 * False with an exception set.
 */
bool gpo_option_parse(PyObject *object, const char *function, const gpo_arg *arg,
                      gpo_option *out);

/*
 * Holds the memory of input k, or of out= number k - GPO_MAX_IN, in place until the
 * call ends: NumPy resizes no array, not even without its check of references, that a
 * weak reference leads to.  A call that lets other threads run pins what it reads.
 */
bool gpo_pin(frame *f, int k);

/* Runs a call whose inputs and results are placed; false with an exception set. */
bool gpo_execute(frame *f);

#endif
