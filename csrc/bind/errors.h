/*
 * errors.h  Python exceptions for failures.
 */
#ifndef GPO_ERRORS_H
#define GPO_ERRORS_H

#include "bind.h"

/* Sets the exception for `status` with the call's message; always returns NULL. */
PyObject *gpo_raise(const gpo_call *call, gpo_status status);

/* VariantError: no variant `name`; lists those of `op` and suggests one. */
PyObject *gpo_raise_variant(const gpo_op *op, PyObject *name, const char *hint);

/* The dtypes for which run[] is set, as "float16, float32, ...". */
PyObject *gpo_supported_dtypes(const gpo_variant *variant);

/* Makes the exception classes and adds them to the module; -1 on failure. */
int gpo_errors_init(PyObject *module);

#endif
