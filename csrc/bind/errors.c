/*
 * errors.c  The exception classes of gpuopt, and the exception for a status and its
 * message.  Failed computations are raised only here.
 * Order: the classes, a status, unknown variants and unsupported dtypes.
 */
#include "errors.h"

#include "../backend/sim.h"

#include <stdio.h>

/* ---- the classes ---- */

/* Makes class gpuopt.<name>, stores it in *slot and adds it to the module. */
static int
add_exception(PyObject *module, PyObject **slot, const char *name, const char *doc,
              PyObject *base)
{
    char qualified[64];
    snprintf(qualified, sizeof qualified, "gpuopt.%s", name);
    *slot = PyErr_NewExceptionWithDoc(qualified, doc, base, NULL);
    return *slot ? PyModule_AddObjectRef(module, name, *slot) : -1;
}

int
gpo_errors_init(PyObject *module)
{
    if (add_exception(
            module, &gpo_py.cuda_error, "CudaError",
            "A CUDA call failed, or the GPU cannot be used.  Attributes of a\n"
            "failed call: code, name, api, kernel, variant.",
            PyExc_RuntimeError) < 0 ||
        add_exception(
            module, &gpo_py.context_dead_error, "ContextDeadError",
            "A kernel broke the CUDA context; only a new process can use the\n"
            "GPU again.",
            gpo_py.cuda_error) < 0 ||
        add_exception(
            module, &gpo_py.out_of_memory_error, "OutOfMemoryError",
            "The GPU has not enough memory.  Attributes: requested, free and\n"
            "total, in bytes.",
            PyExc_MemoryError) < 0 ||
        add_exception(module, &gpo_py.variant_error, "VariantError",
                      "There is no variant of that name for this call.",
                      PyExc_ValueError) < 0) {
        return -1;
    }
    if (add_exception(module, &gpo_py.performance_warning, "PerformanceWarning",
                      "A call took a slow way where a fast one was expected.",
                      PyExc_RuntimeWarning) < 0) {
        return -1;
    }
    return add_exception(module, &gpo_py.simulator_error, "SimulatorError",
                         "The simulator found a fault in a kernel, or cannot run it.",
                         PyExc_RuntimeError);
}

/* ---- a status ---- */

/* Raises `class` with `message` and the attributes of a failed CUDA call. */
static void
raise_cuda(const gpo_call *call, PyObject *class)
{
    PyObject *error = PyObject_CallFunction(class, "s", call->error.message);
    if (!error) {
        return;
    }
    PyObject *code = PyLong_FromLong(call->error.code);
    PyObject *api = Py_BuildValue("z", call->error.api);
    PyObject *kernel = Py_BuildValue("z", call->error.kernel);
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
        PyObject_CallFunction(gpo_py.out_of_memory_error, "s", call->error.message);
    PyObject *requested = PyLong_FromSize_t(call->error.requested_bytes);
    PyObject *free_bytes = PyLong_FromSize_t(call->error.free_bytes);
    PyObject *total = PyLong_FromSize_t(call->error.total_bytes);
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
    PyErr_SetString(class, call->error.message);
    return NULL;
}

/* ---- unknown variants and unsupported dtypes ---- */

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
        const char *lack = gpo_sim_lacks(op);
        text = PyUnicode_FromString(lack ? lack : "see gpuopt.variants()");
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
