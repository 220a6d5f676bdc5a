/*
 * bind.h  Included first by every file of bind/: the headers of Python and NumPy, and
 * the objects made once at import.  Each file declares its functions in the header of
 * its name; module.h declares those that add functions to the module.  Ownership: a
 * function that returns PyObject * returns a new reference; arguments are borrowed.
 */
#ifndef GPO_BIND_H
#define GPO_BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define PY_ARRAY_UNIQUE_SYMBOL gpo_numpy_api
#ifndef GPO_IMPORT_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "../backend/device.h"

/* ---- objects made once at import: objects.c ---- */

typedef struct gpo_python {
    PyObject *cuda_error, *context_dead_error, *out_of_memory_error;
    PyObject *variant_error, *simulator_error, *performance_warning;
    PyObject *axis_error;    /* numpy.exceptions.AxisError */
    PyObject *shares_memory; /* numpy.shares_memory */
    PyObject *close_matches; /* difflib.get_close_matches */
    PyObject *bf16;          /* ml_dtypes.bfloat16 once seen, else NULL */
    int bf16_typenum;        /* its NumPy type number, else -1 */
    PyTypeObject *device_array, *stream, *event, *used_backend; /* the classes */
} gpo_python;

extern gpo_python gpo_py;

#endif
