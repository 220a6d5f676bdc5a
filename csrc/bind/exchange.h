/*
 * exchange.h  Arrays of other libraries.
 */
#ifndef GPO_EXCHANGE_H
#define GPO_EXCHANGE_H

#include "bind.h"
#include "dlpack.h"

typedef enum gpo_family {
    GPO_HOST,     /* NumPy, or what NumPy makes an array of */
    GPO_OWN,      /* gpuopt.DeviceArray */
    GPO_EXCHANGE, /* the type has DLPack's C table: torch */
    GPO_TORCH,    /* a torch without the table */
    GPO_CUPY,
    GPO_JAX,
    GPO_INTERFACE, /* on a GPU, by DLPack or the CUDA array interface alone */
} gpo_family;

/* An array that is no host array, as one call uses it. */
typedef struct gpo_foreign {
    gpo_family family;
    gpo_backend_id id; /* where its memory is */
    int device;
    bool readonly;
    bool retain;     /* its producer does not wait for our reads before it frees */
    bool has_stream; /* what is on `stream` now comes before the call */
    bool detach;     /* it requires grad and nothing is recorded: see gate.c */
    void *stream;
    const dl_exchange *api; /* GPO_EXCHANGE */
    PyObject *object;       /* borrowed: the caller's */
    PyObject *keep;         /* keeps the memory alive; new reference */
    PyObject *keeper;       /* keeps `stream` alive; new reference or NULL */
} gpo_foreign;

/* Which family `object` is of; GPO_HOST costs no exception.  -1 with one set. */
int gpo_family_of(PyObject *object, gpo_foreign *out);

/*
 * Views `object`, of the family in `foreign`.  `stream`, if given, is where the call will
 * run: a producer that orders streams itself is told so.
 */
bool gpo_foreign_wrap(PyObject *object, const char *function, const char *argument,
                      const void *const *stream, gpo_array *array,
                      gpo_foreign *foreign);

void gpo_foreign_clear(gpo_foreign *foreign);

/*
 * The object of `stream`, if it is the one that a loaded library works on now: a new
 * reference, which keeps the stream.  NULL, without an exception, if it is not.
 */
PyObject *gpo_stream_holder(void *stream, int device);

/* A CPU array of another library as an ndarray over the same memory. */
PyArrayObject *gpo_foreign_ndarray(const gpo_array *array, const gpo_foreign *foreign);

/* DLPack's dtype of ours. */
dl_dtype gpo_dlpack_dtype(gpo_dtype dtype);

#endif
