/*
 * objects.c  The objects made once at import, and helpers for foreign objects: their
 * attributes, modules and names.
 */
#include "objects.h"

#include <string.h>

gpo_python gpo_py = {.bf16_typenum = -1};

PyObject *
gpo_type_name(PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    PyObject *module = PyObject_GetAttrString(type, "__module__");
    PyObject *name = PyObject_GetAttrString(type, "__qualname__");
    PyObject *text = NULL;
    if (module && name) {
        text = PyUnicode_FromFormat("%S.%S", module, name);
    }
    Py_XDECREF(module);
    Py_XDECREF(name);
    return text;
}

PyObject *
gpo_lookup(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (!value && PyErr_ExceptionMatches(PyExc_AttributeError)) {
        PyErr_Clear();
    }
    return value;
}

bool
gpo_is_of_package(PyObject *module, const char *name)
{
    const char *text =
        PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : "";
    const size_t n = strlen(name);
    if (!text) {
        PyErr_Clear();
        return false;
    }
    return strncmp(text, name, n) == 0 && (text[n] == 0 || text[n] == '.');
}

PyObject *
gpo_module_attribute(const char *module, const char *const *path)
{
    PyObject *object = PyDict_GetItemString(PyImport_GetModuleDict(), module);
    Py_XINCREF(object);
    for (; object && *path; path++) {
        PyObject *next = PyObject_GetAttrString(object, *path);
        Py_DECREF(object);
        object = next;
    }
    if (!object && !PyErr_Occurred()) {
        PyErr_Format(PyExc_RuntimeError, "module '%s' is not loaded", module);
    }
    return object;
}

PyObject *
gpo_module_call(const char *module, const char *const *path, PyObject *argument)
{
    PyObject *object = gpo_module_attribute(module, path);
    if (!object) {
        return NULL;
    }
    PyObject *result = argument ? PyObject_CallFunctionObjArgs(object, argument, NULL)
                                : PyObject_CallFunctionObjArgs(object, NULL);
    Py_DECREF(object);
    return result;
}

PyObject *
gpo_import_attribute(const char *module, const char *name)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *attribute = imported ? PyObject_GetAttrString(imported, name) : NULL;
    Py_XDECREF(imported);
    return attribute;
}
