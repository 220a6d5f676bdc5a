/*
 * detour.h  Calls that are computed by other calls, in Python.
 */
#ifndef GPO_DETOUR_H
#define GPO_DETOUR_H

#include "call.h"

/* After the shapes are checked: whether gpo_call_masked computes the call. */
bool gpo_is_masked(const frame *f);

/* The result of a reduction with where=. */
PyObject *gpo_call_masked(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames, int device);

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
