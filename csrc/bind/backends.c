/*
 * backends.c  The backends by name, the default backend of calls on host arrays, and
 * whether a backend and its devices are available.
 */
#include "backends.h"

#include <stdlib.h>
#include <string.h>

/* ---- names and the default ---- */

const char *const gpo_backend_names[GPO_NBACKENDS] = {"cpu", "cuda", "sim"};

static int used_backend = -1; /* set by use(); -1: GPUOPT_BACKEND, else automatic */

static int
backend_from_text(const char *source, const char *text)
{
    for (int id = 0; id < GPO_NBACKENDS; id++) {
        if (strcmp(text, gpo_backend_names[id]) == 0) {
            return id;
        }
    }
    PyErr_Format(PyExc_ValueError, "%s must be one of 'cpu', 'cuda', 'sim' (got '%s')",
                 source, text);
    return -1;
}

int
gpo_backend_from_name(PyObject *name)
{
    if (!PyUnicode_Check(name)) {
        PyObject *type = PyType_GetName(Py_TYPE(name));
        if (type) {
            PyErr_Format(PyExc_TypeError, "backend must be a str, not '%U'", type);
            Py_DECREF(type);
        }
        return -1;
    }
    for (int id = 0; id < GPO_NBACKENDS; id++) {
        if (PyUnicode_CompareWithASCIIString(name, gpo_backend_names[id]) == 0) {
            return id;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "backend must be one of 'cpu', 'cuda', 'sim' (got %R)", name);
    return -1;
}

int
gpo_default_backend(void)
{
    if (used_backend >= 0) {
        return used_backend;
    }
    const char *text = getenv("GPUOPT_BACKEND");
    if (text && *text) {
        return backend_from_text("GPUOPT_BACKEND", text);
    }
    const char *reason = gpo_backend_cuda.unavailable();
    if (reason && strncmp(reason, "GPUOPT_", 7) == 0) { /* a wrong setting */
        PyErr_SetString(PyExc_ValueError, reason);
        return -1;
    }
    return reason ? GPO_CPU : GPO_CUDA;
}

bool
gpo_backend_is_free(void)
{
    const char *text = getenv("GPUOPT_BACKEND");
    return used_backend < 0 && !(text && *text);
}

int
gpo_backend_use(int id)
{
    const int before = used_backend;
    used_backend = id;
    return before;
}

/* ---- availability ---- */

const gpo_device *
gpo_device_of(gpo_backend_id id)
{
    return id == GPO_SIM ? &gpo_device_sim : &gpo_device_cuda;
}

bool
gpo_check_available(gpo_backend_id id)
{
    const gpo_backend *backend = gpo_backend_get(id);
    const char *reason = backend->unavailable();
    if (reason && id == GPO_CPU) { /* only a wrong GPUOPT_CPU makes it unavailable */
        PyErr_SetString(PyExc_ValueError, reason);
    }
    else if (reason) {
        PyErr_Format(id == GPO_CUDA ? gpo_py.cuda_error : gpo_py.simulator_error,
                     "backend '%s' is not available: %s", backend->name, reason);
    }
    return !reason;
}

bool
gpo_check_device(gpo_backend_id id, int64_t device)
{
    if (!gpo_check_available(id)) {
        return false;
    }
    const int count = gpo_device_of(id)->count();
    if (device < 0 || device >= count) {
        PyErr_Format(PyExc_ValueError,
                     "device %lld is out of range; backend '%s' has %d device%s",
                     (long long)device, gpo_backend_names[id], count,
                     count == 1 ? "" : "s");
        return false;
    }
    return true;
}
