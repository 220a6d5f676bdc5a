/*
 * overlap.h  Checks of out=: its shape, and whether it shares memory.
 */
#ifndef GPO_OVERLAP_H
#define GPO_OVERLAP_H

#include "call.h"

/* ---- host arrays ---- */

bool gpo_ndarray_has_shape(PyArrayObject *out, const gpo_array *wanted);

/* Whether two ndarrays have bytes in common; in doubt numpy.shares_memory decides. */
bool gpo_ndarrays_overlap(PyArrayObject *a, PyArrayObject *b);

/* Whether two ndarrays are the same elements, in the same order and format. */
bool gpo_ndarrays_same(PyArrayObject *a, PyArrayObject *b);

/* ---- arrays on a device ---- */

/* Whether the spans of two arrays overlap; their elements may merely interleave. */
bool gpo_arrays_overlap(const gpo_array *a, const gpo_array *b);

/* Whether two arrays are the same elements, in the same order and format. */
bool gpo_arrays_same(const gpo_array *a, const gpo_array *b);

/* ---- errors: each sets ValueError and returns false ---- */

/* Steals `shape`, the shape of out=. */
bool gpo_raise_out_shape(PyObject *shape, const gpo_array *wanted);
bool gpo_raise_out_overlap(const frame *f, int k); /* with input k */
bool gpo_raise_outs_overlap(const frame *f);       /* with each other */

#endif
