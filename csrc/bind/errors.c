/*
 * errors.c  From a status and one sentence to a Python exception.  Nothing else in
 * gpuopt raises for a failed computation.
 */
#include "bind.h"

#include <string.h>

/* Raises `class` with `message` and the attributes of a failed CUDA call. */
static void
raise_cuda(const gpo_call *call, PyObject *class)
{
    PyObject *error = PyObject_CallFunction(class, "s", call->message);
    if (!error) {
        return;
    }
    PyObject *code = PyLong_FromLong(call->code);
    PyObject *api = Py_BuildValue("z", call->api);
    PyObject *kernel = Py_BuildValue("z", call->kernel);
    PyObject *variant = Py_BuildValue("z", call->variant ? call->variant->name : NULL);
    PyObject *name = Py_BuildValue("s", call->op->name);
    if (code && api && kernel && variant && name &&
        PyObject_SetAttrString(error, "code", code) == 0 &&
        PyObject_SetAttrString(error, "name", name) == 0 &&
        PyObject_SetAttrString(error, "api", api) == 0 &&
        PyObject_SetAttrString(error, "kernel", kernel) == 0 &&
        PyObject_SetAttrString(error, "variant", variant) == 0) {
        PyErr_SetObject(class, error);
    }
    Py_XDECREF(code);
    Py_XDECREF(api);
    Py_XDECREF(kernel);
    Py_XDECREF(variant);
    Py_XDECREF(name);
    Py_DECREF(error);
}

static void
raise_device_memory(const gpo_call *call)
{
    PyObject *error =
        PyObject_CallFunction(gpo_py.out_of_memory_error, "s", call->message);
    PyObject *requested = PyLong_FromSize_t(call->requested_bytes);
    PyObject *free_bytes = PyLong_FromSize_t(call->free_bytes);
    PyObject *total = PyLong_FromSize_t(call->total_bytes);
    if (error && requested && free_bytes && total &&
        PyObject_SetAttrString(error, "requested", requested) == 0 &&
        PyObject_SetAttrString(error, "free", free_bytes) == 0 &&
        PyObject_SetAttrString(error, "total", total) == 0) {
        PyErr_SetObject(gpo_py.out_of_memory_error, error);
    }
    Py_XDECREF(requested);
    Py_XDECREF(free_bytes);
    Py_XDECREF(total);
    Py_XDECREF(error);
}

PyObject *
gpo_raise(const gpo_call *call, gpo_status status)
{
    PyObject *class = PyExc_SystemError;
    switch (status) {
        case GPO_EPYTHON:
            return NULL;
        case GPO_ECUDA:
            raise_cuda(call, gpo_py.cuda_error);
            return NULL;
        case GPO_EDEAD:
            raise_cuda(call, gpo_py.context_dead_error);
            return NULL;
        case GPO_EDEVMEMORY:
            raise_device_memory(call);
            return NULL;
        case GPO_EVALUE:
            class = PyExc_ValueError;
            break;
        case GPO_ETYPE:
            class = PyExc_TypeError;
            break;
        case GPO_EAXIS:
            class = gpo_py.axis_error;
            break;
        case GPO_EINDEX:
            class = PyExc_IndexError;
            break;
        case GPO_EMEMORY:
            class = PyExc_MemoryError;
            break;
        case GPO_EVARIANT:
            class = gpo_py.variant_error;
            break;
        case GPO_EUNSUPPORTED:
            class = PyExc_NotImplementedError;
            break;
        case GPO_ESIM:
            class = gpo_py.simulator_error;
            break;
        case GPO_OK:
            break;
    }
    PyErr_SetString(class, call->message);
    return NULL;
}

/* Appends the row names of one table to `list`, each once; -1 on failure. */
static int
append_names(PyObject *list, const gpo_table *table)
{
    if (!table) {
        return 0;
    }
    for (const gpo_variant *v = table->variants; v->name; v++) {
        PyObject *name = PyUnicode_FromString(v->name);
        int there = name ? PySequence_Contains(list, name) : -1;
        if (there < 0 || (there == 0 && PyList_Append(list, name) < 0)) {
            Py_XDECREF(name);
            return -1;
        }
        Py_DECREF(name);
    }
    return 0;
}

PyObject *
gpo_raise_variant(const gpo_op *op, PyObject *name, const char *hint)
{
    PyObject *names = NULL, *close = NULL, *joined = NULL, *comma = NULL, *text = NULL;
    const char *suggestion = NULL;

    names = PyList_New(0);
    if (!names) {
        goto fail;
    }
    for (int id = 0; id < GPO_NBACKENDS; id++) {
        if (append_names(names, gpo_backend_table((gpo_backend_id)id, op)) < 0) {
            goto fail;
        }
    }
    close = PyObject_CallFunction(gpo_py.close_matches, "OOi", name, names, 1);
    comma = PyUnicode_FromString(", ");
    if (!close || !comma || !(joined = PyUnicode_Join(comma, names))) {
        goto fail;
    }
    if (PyList_Size(close) > 0) {
        suggestion = PyUnicode_AsUTF8AndSize(PyList_GetItem(close, 0), NULL);
    }
    if (hint) {
        text = PyUnicode_FromFormat("%s", hint);
    }
    else if (suggestion && PyUnicode_CompareWithASCIIString(name, suggestion) != 0) {
        text = PyUnicode_FromFormat("did you mean '%s'?", suggestion);
    }
    else {
        text = PyUnicode_FromString("see gpuopt.variants()");
    }
    if (text) {
        PyErr_Format(gpo_py.variant_error,
                     "%s() has no variant %R here; %U (variants: auto, %U)", op->name,
                     name, text, joined);
    }
fail:
    Py_XDECREF(names);
    Py_XDECREF(close);
    Py_XDECREF(joined);
    Py_XDECREF(comma);
    Py_XDECREF(text);
    return NULL;
}

PyObject *
gpo_supported_dtypes(const gpo_variant *variant)
{
    PyObject *text = PyUnicode_FromString("");
    for (int d = 0; text && d < GPO_NDTYPES; d++) {
        if (variant->run[d]) {
            PyObject *longer = PyUnicode_FromFormat(
                "%U%s%s", text, PyUnicode_GetLength(text) ? ", " : "",
                gpo_dtypes[d].name);
            Py_DECREF(text);
            text = longer;
        }
    }
    return text;
}
