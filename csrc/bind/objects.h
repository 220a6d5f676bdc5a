/*
 * objects.h  Attributes, modules and names of foreign objects.
 */
#ifndef GPO_OBJECTS_H
#define GPO_OBJECTS_H

#include "bind.h"

/* The qualified name of an object's type, such as "numpy.ndarray", for messages. */
PyObject *gpo_type_name(PyObject *object);

/* The attribute, or NULL without an exception if there is none. */
PyObject *gpo_lookup(PyObject *object, const char *name);

/* Whether `module`, a module's name, is package `name` or a module in it. */
bool gpo_is_of_package(PyObject *module, const char *name);

/* The last attribute of a path from a loaded module, and the result of calling it. */
PyObject *gpo_module_attribute(const char *module, const char *const *path);
PyObject *gpo_module_call(const char *module, const char *const *path,
                          PyObject *argument);

/* Imports a module and returns its attribute `name`; NULL on failure. */
PyObject *gpo_import_attribute(const char *module, const char *name);

#endif
