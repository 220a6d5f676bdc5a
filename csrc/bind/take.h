/*
 * take.h  The arrays of a call, from the objects the caller passed.
 */
#ifndef GPO_TAKE_H
#define GPO_TAKE_H

#include "call.h"

/*
 * Two steps, because code that makes an array of an object may resize one that was
 * taken before: gpo_take makes arrays of the inputs and of out=, and may run any Python
 * code; gpo_view reads dtype, shape and address of the inputs, and from there on to the
 * result none runs.  gpo_view also sets f->like.  False with an exception set.
 */
bool gpo_take(frame *f);
bool gpo_view(frame *f);

/*
 * Prevents a resize of a host array until the call ends: NumPy does not resize an array
 * that has a weak reference, not even with refcheck=False.  A call that releases the
 * GIL pins all that it reads and writes.  gpo_pin_large pins only an array large enough
 * for NumPy to release the GIL while it copies it.
 */
bool gpo_pin(frame *f, int k);

static inline bool
gpo_pin_large(frame *f, int k, PyArrayObject *array)
{
    enum { PINNED_BYTES = 4096 }; /* NumPy keeps the GIL up to 500 elements */
    return PyArray_NBYTES(array) < PINNED_BYTES || gpo_pin(f, k);
}

/* Views a foreign array that was taken; `name` is its argument's name. */
bool gpo_wrap_foreign(frame *f, PyObject *object, const char *name, gpo_array *array,
                      gpo_foreign *foreign);

/* Views the caller's out= number i, a foreign array, if it is not viewed yet. */
bool gpo_wrap_foreign_out(frame *f, int i);

/* False with TypeError set if `other` is on another device than the inputs. */
bool gpo_check_apart(const frame *f, const gpo_foreign *other);

/* False with ValueError set if out= is read-only. */
bool gpo_check_writeable(bool writeable);

/* Once the number of outputs is known: whether out= has as many. */
bool gpo_check_out_count(const frame *f);

#endif
