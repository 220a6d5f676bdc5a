/*
 * options.h  The typed arguments that are not arrays, and errors about them.
 */
#ifndef GPO_OPTIONS_H
#define GPO_OPTIONS_H

#include "bind.h"

/* Sets TypeError: "f() argument 'x' must be a str, not 'int'"; always false. */
bool gpo_raise_type(PyObject *object, const char *function, const char *argument,
                    const char *wanted);

/* Reads an argument as a 64-bit integer; false with an exception set. */
bool gpo_int_parse(PyObject *object, const char *function, const char *argument,
                   int64_t *out);

/*
 * Reads the object given for `arg` into `out`.  May run any Python code.  False with an
 * exception set.
 */
bool gpo_option_parse(PyObject *object, const char *function, const gpo_arg *arg,
                      gpo_option *out);

#endif
