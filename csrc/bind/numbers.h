/*
 * numbers.h  Python ints among the inputs of a call.
 */
#ifndef GPO_NUMBERS_H
#define GPO_NUMBERS_H

#include "call.h"

/*
 * Input i, a Python int, as an array of int64 or uint64.  An int beyond both is clamped
 * for the shape rule; gpo_numbers_check then reports it.
 */
PyArrayObject *gpo_number_take(frame *f, int i, PyObject *object);

/*
 * A Python int takes the dtype of the arrays beside it; one that this dtype cannot hold
 * is an error, with NumPy's message.  Inputs that the shape rule marks as not present
 * are not checked.
 */
bool gpo_numbers_check(const frame *f);

#endif
