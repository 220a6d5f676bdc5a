/*
 * results.h  Results in the manner of the library whose arrays came in.
 */
#ifndef GPO_RESULTS_H
#define GPO_RESULTS_H

#include "exchange.h"

/* A result in the making, in the memory of its library. */
typedef struct gpo_made {
    dl_versioned *tensor;         /* GPO_EXCHANGE */
    PyObject *array;              /* GPO_HOST: an ndarray; else a DeviceArray */
    gpo_dtype dtype;              /* of `scalar` */
    _Alignas(16) char scalar[16]; /* GPO_HOST: a result without axes */
} gpo_made;

/* What results of a call on NumPy's arrays are like. */
extern const gpo_foreign gpo_numpy;

/*
 * Memory for a result as `like`'s library wants it; sets out->data.  On a device only
 * what the library itself allocates: the call brings the rest.
 */
bool gpo_result_alloc(const gpo_foreign *like, gpo_array *out, gpo_made *made);

/* The library's array of it, or a NumPy scalar; may take it out of `made`. */
PyObject *gpo_result_finish(const gpo_foreign *like, gpo_made *made);
void gpo_made_clear(gpo_made *made);

#endif
