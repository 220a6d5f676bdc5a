/*
 * results.c  Results for the library whose arrays were passed, NumPy included: memory
 * for a result before the call runs, the library's array of it afterwards.
 */
#include "results.h"

#include "array.h"
#include "device_array.h"
#include "gate.h"
#include "objects.h"

#include <stdlib.h>
#include <string.h>

const gpo_foreign gpo_numpy = {.family = GPO_HOST, .id = GPO_CPU};

/* An ndarray; a result without axes becomes a NumPy scalar, stored in `made` first. */
static inline bool
alloc_numpy(gpo_array *out, gpo_made *made)
{
    if (out->ndim == 0) {
        made->dtype = out->dtype;
        out->data = made->scalar;
        return true;
    }
    made->array = (PyObject *)gpo_array_new(out);
    if (made->array) {
        out->data = PyArray_DATA((PyArrayObject *)made->array);
    }
    return made->array != NULL;
}

static void
set_error(void *context, const char *kind, const char *message)
{
    (void)context;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyErr_Format(strcmp(kind, "MemoryError") == 0 ? PyExc_MemoryError
                                                  : PyExc_RuntimeError,
                 "%s: %s", kind, message);
    PyGILState_Release(state);
}

static bool
alloc_exchange(const gpo_foreign *like, gpo_array *out, gpo_made *made)
{
    dl_tensor prototype = {
        .device = {like->id == GPO_CUDA ? DL_CUDA : DL_CPU, like->device},
        .ndim = out->ndim,
        .dtype = gpo_dlpack_dtype(out->dtype),
        .shape = out->shape,
    };
    if (like->api->allocate(&prototype, &made->tensor, NULL, set_error) != 0) {
        made->tensor = NULL;
        if (!PyErr_Occurred()) {
            PyErr_NoMemory();
        }
        return gpo_gate_no_result();
    }
    const dl_tensor *result = &made->tensor->tensor;
    out->data = result->data ? (char *)result->data + result->byte_offset : NULL;
    if (out->size > 0 && !out->data) {
        gpo_made_clear(made);
        return gpo_gate_no_result();
    }
    return true;
}

/* Host memory that another library will take over; JAX requires this alignment. */
static bool
alloc_host(gpo_array *out, gpo_made *made)
{
    enum { ALIGNMENT = 64 };
    const size_t bytes = (size_t)out->size * (size_t)gpo_dtypes[out->dtype].bytes;
    void *memory =
        aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT);
    if (!memory) {
        PyErr_NoMemory();
        return false;
    }
    out->data = memory;
    made->array = gpo_device_array_new(GPO_CPU, &gpo_backend_cpu, 0, NULL, NULL, memory,
                                       NULL, out);
    return made->array != NULL;
}

bool
gpo_result_alloc(const gpo_foreign *like, gpo_array *out, gpo_made *made)
{
    if (like->family == GPO_HOST) {
        return alloc_numpy(out, made);
    }
    if (like->family == GPO_EXCHANGE) {
        return alloc_exchange(like, out, made);
    }
    return like->id != GPO_CPU || alloc_host(out, made);
}

PyObject *
gpo_result_finish(const gpo_foreign *like, gpo_made *made)
{
    static const char *const from_dlpack[] = {"from_dlpack", NULL};
    PyObject *result = NULL;
    if (like->family == GPO_HOST) {
        PyObject *array = made->array;
        made->array = NULL;
        return array ? array : gpo_array_scalar(made->dtype, made->scalar);
    }
    switch (like->family) {
        case GPO_EXCHANGE: {
            void *object = NULL;
            if (like->api->to_object(made->tensor, &object) == 0) {
                result = object;
            }
            made->tensor = NULL;
            return result;
        }
        case GPO_TORCH:
            return gpo_module_call("torch", from_dlpack, made->array);
        case GPO_CUPY:
            return gpo_module_call("cupy", from_dlpack, made->array);
        case GPO_JAX:
            return gpo_module_call("jax.dlpack", from_dlpack, made->array);
        default:
            return Py_NewRef(made->array);
    }
}

void
gpo_made_clear(gpo_made *made)
{
    if (made->tensor && made->tensor->deleter) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        made->tensor->deleter(made->tensor);
        PyErr_Restore(type, value, traceback);
    }
    made->tensor = NULL;
    Py_CLEAR(made->array);
}
