/*
 * exchange.h  Arrays of other libraries.
 */
#ifndef GPO_EXCHANGE_H
#define GPO_EXCHANGE_H

#include "bind.h"
#include "dlpack.h"

typedef enum gpo_family {
    GPO_HOST,     /* NumPy, or what np.asarray accepts */
    GPO_OWN,      /* gpuopt.DeviceArray */
    GPO_EXCHANGE, /* the type has DLPack's C table: torch */
    GPO_TORCH,    /* a torch without the table */
    GPO_CUPY,
    GPO_JAX,
    GPO_INTERFACE, /* another one on a GPU, by DLPack or the CUDA array interface */
} gpo_family;

/* A foreign array, that is one of another library or a DeviceArray, in one call. */
typedef struct gpo_foreign {
    gpo_family family;
    gpo_backend_id id; /* of its memory */
    int device;
    bool readonly;
    bool retain;     /* its producer may free the memory before our reads end */
    bool has_stream; /* the call must wait for the work now on `stream` */
    bool detach;     /* it requires grad, but torch records nothing: see gate.c */
    void *stream;
    const dl_exchange *api; /* GPO_EXCHANGE */
    PyObject *object;       /* borrowed: the caller's */
    PyObject *keep;         /* keeps the memory alive; new reference */
    PyObject *stream_owner; /* keeps `stream` alive; new reference or NULL */
} gpo_foreign;

/* The family of `object`; -1 with an exception set.  GPO_HOST sets none on the way. */
int gpo_family_of(PyObject *object, gpo_foreign *out);

/*
 * Views `object`, of the family in `foreign`.  `stream`, if given, is the stream of the
 * call; it is passed to a producer that orders streams itself.
 */
bool gpo_foreign_wrap(PyObject *object, const char *function, const char *argument,
                      const void *const *stream, gpo_array *array,
                      gpo_foreign *foreign);

void gpo_foreign_clear(gpo_foreign *foreign);

/*
 * The object of `stream` if it is the current stream of a loaded library: a new
 * reference, which keeps the stream alive.  Else NULL, without an exception.
 */
PyObject *gpo_stream_holder(void *stream, int device);

/* An ndarray that shares the memory of a CPU array of another library. */
PyArrayObject *gpo_foreign_ndarray(const gpo_array *array, const gpo_foreign *foreign);

/* DLPack's dtype for ours. */
dl_dtype gpo_dlpack_dtype(gpo_dtype dtype);

#endif
