/*
 * large.h  Calls on NumPy arrays that may be too large for the memory of a GPU.
 */
#ifndef GPO_LARGE_H
#define GPO_LARGE_H

#include "call.h"

/* After the backend is chosen: whether to ask gpo_call_in_blocks. */
bool gpo_is_large(const frame *f);

/*
 * The result of a call whose arrays do not fit, computed block by block on a device;
 * NotImplemented if they fit or the call cannot be cut.  Runs Python code, so that no
 * view of an array is valid after it.
 */
PyObject *gpo_call_in_blocks(gpo_binding *binding, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames, int device);

#endif
