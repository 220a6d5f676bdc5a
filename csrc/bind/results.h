/*
 * results.h  Results for the library whose arrays were passed.
 */
#ifndef GPO_RESULTS_H
#define GPO_RESULTS_H

#include "exchange.h"

/* A result that is being made, in the memory of its library. */
typedef struct gpo_made {
    dl_versioned *tensor;         /* GPO_EXCHANGE */
    PyObject *array;              /* GPO_HOST: an ndarray; else a DeviceArray */
    gpo_dtype dtype;              /* the dtype of `scalar` */
    _Alignas(16) char scalar[16]; /* GPO_HOST: a result without axes */
} gpo_made;

/* The `like` of calls on NumPy's arrays. */
extern const gpo_foreign gpo_numpy;

/*
 * Memory for a result as `like`'s library requires it; sets out->data.  On a device it
 * allocates only if the library does so itself; else the call allocates later.
 */
bool gpo_result_alloc(const gpo_foreign *like, gpo_array *out, gpo_made *made);

/* The library's array of a result, or a NumPy scalar; may take it out of `made`. */
PyObject *gpo_result_finish(const gpo_foreign *like, gpo_made *made);
void gpo_made_clear(gpo_made *made);

#endif
