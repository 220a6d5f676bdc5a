/*
 * objects.h  Attributes, modules and names of objects that are not ours.
 */
#ifndef GPO_OBJECTS_H
#define GPO_OBJECTS_H

#include "bind.h"

/* "numpy.ndarray" of an object, for messages. */
PyObject *gpo_type_name(PyObject *object);

/* The attribute, or NULL without an exception if there is none. */
PyObject *gpo_lookup(PyObject *object, const char *name);

/* Whether `module`, a name, is that of package `name` or of one below. */
bool gpo_is_of_package(PyObject *module, const char *name);

/* The last attribute of a chain from a loaded module, and what a call of it gives. */
PyObject *gpo_module_attribute(const char *module, const char *const *path);
PyObject *gpo_module_call(const char *module, const char *const *path,
                          PyObject *argument);

/* The attribute `name` of a module, which is imported; NULL on failure. */
PyObject *gpo_import_attribute(const char *module, const char *name);

#endif
