/*
 * detour.c  Hands calls over to Python: those on large NumPy arrays to gpuopt.stream,
 * which knows how to cut them (_stream.py), reductions with where= to _masked.py.
 * Order: which calls, their arguments as Python has them, the calls.
 */
#include "detour.h"

#include "objects.h"

/* No GPU has so little memory that an array of fewer bytes needs a look at it. */
enum { LARGE_BYTES = 256 << 20 };

bool
gpo_is_masked(const frame *f)
{
    const int mask = f->call.op->mask;
    return mask > 0 && f->call.in[mask].present;
}

bool
gpo_is_large(const frame *f)
{
    if (f->place->bound || f->id != GPO_CUDA) { /* there already, or not going there */
        return false;
    }
    for (int i = 0; i < f->binding->narrays; i++) {
        const gpo_array *in = &f->call.in[i];
        if (f->in[i] && in->size * gpo_dtypes[in->dtype].bytes >= LARGE_BYTES) {
            return true;
        }
    }
    return false;
}

/* The arguments of a call by keyword as a dict. */
static PyObject *
keywords(PyObject *const *values, PyObject *names)
{
    PyObject *dict = PyDict_New();
    const Py_ssize_t n = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t i = 0; dict && i < n; i++) {
        if (PyDict_SetItem(dict, PyTuple_GetItem(names, i), values[i]) < 0) {
            Py_CLEAR(dict);
        }
    }
    return dict;
}

static PyObject *
positional(PyObject *const *values, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple && i < n; i++) {
        PyTuple_SetItem(tuple, i, Py_NewRef(values[i])); /* steals */
    }
    return tuple;
}

/* module.name(operator, args, kwargs, device), in Python. */
static PyObject *
hand_over(const char *module, const char *name, const gpo_binding *binding,
          PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, int device)
{
    PyObject *answer = NULL;
    PyObject *function = gpo_import_attribute(module, name);
    PyObject *tuple = positional(args, nargs);
    PyObject *dict = keywords(args + nargs, kwnames);
    if (function && tuple && dict) {
        answer = PyObject_CallFunction(function, "sOOi", binding->op->name, tuple, dict,
                                       device);
    }
    Py_XDECREF(function);
    Py_XDECREF(tuple);
    Py_XDECREF(dict);
    return answer;
}

PyObject *
gpo_call_masked(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames, int device)
{
    return hand_over("gpuopt._masked", "call", binding, args, nargs, kwnames, device);
}

PyObject *
gpo_call_in_blocks(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                   PyObject *kwnames, int device)
{
    return hand_over("gpuopt._stream", "in_blocks", binding, args, nargs, kwnames,
                     device);
}
