/*
 * numbers.h  Python ints among the inputs of a call.
 */
#ifndef GPO_NUMBERS_H
#define GPO_NUMBERS_H

#include "call.h"

/*
 * Input i, a Python int, as an array of int64 or uint64.  The shape rule sees the nearest
 * number there is in place of one beyond both; gpo_numbers_check looks at the exact one.
 */
PyArrayObject *gpo_number_take(frame *f, int i, PyObject *object);

/*
 * A Python int takes the dtype of the arrays beside it: one that this dtype does not
 * hold is an error, in NumPy's words.  The shape rule drops what does not count.
 */
bool gpo_numbers_check(const frame *f);

#endif
