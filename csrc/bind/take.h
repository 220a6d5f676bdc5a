/*
 * take.h  The arrays of a call, from the objects the caller passed.
 */
#ifndef GPO_TAKE_H
#define GPO_TAKE_H

#include "call.h"

/*
 * Two steps, for whatever code makes an array of an object may resize one that was taken
 * before: gpo_take makes arrays of the inputs and of out=, and may run any Python code;
 * gpo_view reads dtype, shape and address of the inputs, and from there on to the result
 * no such code runs.  gpo_view also settles f->like.  False with an exception set.
 */
bool gpo_take(frame *f);
bool gpo_view(frame *f);

/*
 * Holds the memory of a host array of the call in place until the call ends: NumPy
 * resizes no array, not even without its check of references, that a weak reference
 * leads to.  A call that lets other threads run pins what it reads and writes.  _large:
 * only an array that is large enough for NumPy to copy it without the GIL.
 */
bool gpo_pin(frame *f, int k);

static inline bool
gpo_pin_large(frame *f, int k, PyArrayObject *array)
{
    enum { PINNED_BYTES = 4096 }; /* NumPy keeps the GIL for 500 elements */
    return PyArray_NBYTES(array) < PINNED_BYTES || gpo_pin(f, k);
}

/* Views a foreign array that is taken; `name` is that of its argument. */
bool gpo_wrap_foreign(frame *f, PyObject *object, const char *name, gpo_array *array,
                      gpo_foreign *foreign);

/* Views the caller's out= number i, a foreign array, if it is not viewed yet. */
bool gpo_wrap_foreign_out(frame *f, int i);

/* False with TypeError set if `other` is on another device than the inputs. */
bool gpo_check_apart(const frame *f, const gpo_foreign *other);

/* False with ValueError set if out= is read-only. */
bool gpo_check_writeable(bool writeable);

/* Now that the number of outputs is known: whether out= names as many. */
bool gpo_check_out_count(const frame *f);

#endif
