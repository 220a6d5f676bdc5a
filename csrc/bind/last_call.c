/*
 * last_call.c  What the last call did, and how long its parts took: gpuopt.last_call()
 * and gpuopt.measure_calls().  run.c writes the record.
 */
#include "last_call.h"

#include "module.h"

gpo_last gpo_last_call;
bool gpo_measuring;

static PyObject *
milliseconds(double ms)
{
    return ms < 0 ? Py_NewRef(Py_None) : PyFloat_FromDouble(ms);
}

PyDoc_STRVAR(
    last_call_doc,
    "last_call()\n--\n\n"
    "A dict of what the last operator call did; None before the first one.\n\n"
    "Keys: op, backend, variant; packed (an input was copied into another layout\n"
    "or dtype first), pageable (a copy went without pinned memory); upload_ms,\n"
    "kernel_ms and download_ms, which are None unless measure_calls(True).");

static PyObject *
last_call(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    const gpo_last *l = &gpo_last_call;
    if (!l->op) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue(
        "{s:s,s:s,s:s,s:O,s:O,s:N,s:N,s:N}", "op", l->op, "backend", l->backend,
        "variant", l->variant, "packed", l->packed ? Py_True : Py_False, "pageable",
        l->pageable ? Py_True : Py_False, "upload_ms", milliseconds(l->upload_ms),
        "kernel_ms", milliseconds(l->kernel_ms), "download_ms",
        milliseconds(l->download_ms));
}

PyDoc_STRVAR(
    measure_calls_doc,
    "measure_calls(on)\n--\n\n"
    "Measure the parts of every call for last_call(); give what was set before.\n\n"
    "The times are those of events on the call's stream.  Measuring costs four\n"
    "events a call, and a call on device arrays then waits for its result.");

static PyObject *
measure_calls(PyObject *module, PyObject *on)
{
    (void)module;
    const int truth = PyObject_IsTrue(on);
    if (truth < 0) {
        return NULL;
    }
    const bool before = gpo_measuring;
    gpo_measuring = truth;
    return PyBool_FromLong(before);
}

static PyMethodDef methods[] = {
    {"last_call", last_call, METH_NOARGS, last_call_doc},
    {"measure_calls", measure_calls, METH_O, measure_calls_doc},
    {NULL, NULL, 0, NULL},
};

int
gpo_last_call_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
