/*
 * device_memory.c  The memory of a DeviceArray, which its views share; creation of
 * arrays; copies to and from the host.  Order: memory, creation, shape, copies.
 * See device_array.c for the class.
 */
#include "device_array.h"

#include "array.h"
#include "backends.h"
#include "errors.h"
#include "task.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static gpo_memory *
memory_new(gpo_backend_id id, const gpo_backend *backend, int device, void *stream,
           PyObject *stream_owner, void *base, PyObject *owner)
{
    gpo_memory *memory = PyMem_Calloc(1, sizeof *memory);
    if (!memory) {
        PyErr_NoMemory();
        return NULL;
    }
    memory->references = 1;
    memory->id = id;
    memory->backend = backend;
    memory->device = device;
    memory->stream = stream;
    memory->stream_owner = Py_XNewRef(stream_owner);
    memory->owner = Py_XNewRef(owner);
    memory->base = base;
    return memory;
}

/* Frees memory of ours, in the order of its stream. */
static void
base_free(gpo_backend_id id, const gpo_backend *backend, int device, void *stream,
          void *base)
{
    if (!base || id == GPO_CPU) {
        free(base);
        return;
    }
    gpo_task task;
    gpo_task_init(&task, "DeviceArray", backend, device, stream);
    if (backend->begin(&task.call) ==
        GPO_OK) { /* else the context is gone, and the memory with it */
        backend->free(&task.call, base);
        backend->end(&task.call);
    }
}

void
gpo_memory_free(gpo_memory *memory)
{
    if (!memory->owner) {
        base_free(memory->id, memory->backend, memory->device, memory->stream,
                  memory->base);
    }
    memory->base = NULL;
    Py_CLEAR(memory->owner);
    Py_CLEAR(memory->stream_owner);
}

void
gpo_memory_release(gpo_memory *memory)
{
    if (memory && --memory->references == 0) {
        gpo_memory_free(memory);
        PyMem_Free(memory);
    }
}

/* ---- creation ---- */

bool
gpo_device_array_check(PyObject *object)
{
    return Py_TYPE(object) == gpo_py.device_array;
}

gpo_device_array *
gpo_device_array_view(gpo_memory *memory, bool readonly, const gpo_array *array)
{
    gpo_device_array *self = PyObject_New(gpo_device_array, gpo_py.device_array);
    if (!self) {
        return NULL;
    }
    memory->references++;
    self->memory = memory;
    self->readonly = readonly;
    self->array = *array;
    self->array.present = true;
    return self;
}

PyObject *
gpo_device_array_new(gpo_backend_id id, const gpo_backend *backend, int device,
                     void *stream, PyObject *stream_owner, void *base, PyObject *owner,
                     const gpo_array *array)
{
    gpo_memory *memory =
        memory_new(id, backend, device, stream, stream_owner, base, owner);
    if (!memory) {
        if (!owner) {
            base_free(id, backend, device, stream, base);
        }
        return NULL;
    }
    memory->bytes = (size_t)array->size * (size_t)gpo_dtypes[array->dtype].bytes;
    gpo_device_array *self = gpo_device_array_view(memory, false, array);
    gpo_memory_release(memory); /* the view's reference remains */
    return (PyObject *)self;
}

bool
gpo_device_array_usable(gpo_device_array *self, const char *function)
{
    const gpo_memory *memory = self->memory;
    if (!memory->base && self->array.size > 0) {
        PyErr_Format(PyExc_ValueError, "%s(): the array was freed", function);
        return false;
    }
    if (memory->id == GPO_SIM && memory->backend != gpo_backend_get(GPO_SIM)) {
        PyErr_Format(PyExc_ValueError,
                     "%s(): the simulator's settings changed after the array was made, "
                     "and it runs in another library now; make the array again",
                     function);
        return false;
    }
    return true;
}

gpo_device_array *
gpo_device_array_empty(const gpo_array *shape, gpo_backend_id id, int device,
                       void *stream, PyObject *stream_owner, const char *function)
{
    gpo_array array = *shape;
    gpo_task task;
    void *base = NULL;
    const gpo_backend *backend = gpo_backend_get(id);
    gpo_task_init(&task, function, backend, device, stream);
    gpo_status status = gpo_array_contiguous(&task.call.error, &array);
    const size_t bytes = (size_t)array.size * (size_t)gpo_dtypes[array.dtype].bytes;
    if (!status && bytes > 0) {
        PyThreadState *thread = PyEval_SaveThread();
        status = backend->begin(&task.call);
        if (!status) {
            status = backend->alloc(&task.call, bytes, &base);
            backend->end(&task.call);
        }
        PyEval_RestoreThread(thread);
    }
    if (status) {
        gpo_raise(&task.call, status);
        return NULL;
    }
    array.data = base;
    return (gpo_device_array *)gpo_device_array_new(id, backend, device, stream,
                                                    stream_owner, base, NULL, &array);
}

/* ---- shape ---- */

PyObject *
gpo_device_array_shape(gpo_device_array *self, void *unused)
{
    (void)unused;
    return gpo_shape_tuple(self->array.ndim, self->array.shape);
}

PyObject *
gpo_device_array_strides(gpo_device_array *self, void *unused)
{
    (void)unused;
    int64_t bytes[GPO_MAX_DIMS];
    for (int d = 0; d < self->array.ndim; d++) {
        bytes[d] = self->array.strides[d] * gpo_dtypes[self->array.dtype].bytes;
    }
    return gpo_shape_tuple(self->array.ndim, bytes);
}

/* ---- copies to and from the host ---- */

/* Copies the elements of `from` to `to`, in C order.  Without the GIL. */
static gpo_status
download_packed(gpo_call *call, const gpo_array *from, void *to)
{
    const gpo_backend *backend = call->backend;
    gpo_array packed = *from;
    const size_t bytes = (size_t)from->size * (size_t)gpo_dtypes[from->dtype].bytes;
    gpo_status status = backend->begin(call);
    if (status) {
        return status;
    }
    if (!gpo_array_is_contiguous(from)) {
        gpo_array_contiguous(&call->error, &packed);
        status = gpo_scratch(call, bytes, &packed.data);
        if (!status) {
            const gpo_backend_id id = backend == &gpo_backend_cuda ? GPO_CUDA : GPO_SIM;
            status = gpo_device_of(id)->copy(call, from, &packed);
        }
    }
    if (!status) {
        status = backend->download(call, to, packed.data, bytes);
    }
    if (!status) {
        status = backend->wait(call);
    }
    backend->end(call);
    return status;
}

bool
gpo_device_array_download(gpo_device_array *self, PyArrayObject *host,
                          const char *function)
{
    const gpo_memory *memory = self->memory;
    if (self->array.size == 0) {
        return true;
    }
    if (memory->id == GPO_CPU) { /* always contiguous: no view is made of it */
        memcpy(PyArray_DATA(host), self->array.data, memory->bytes);
        return true;
    }
    gpo_task task;
    gpo_task_init(&task, function, memory->backend, memory->device, memory->stream);
    self->memory->references++; /* another thread may drop the array meanwhile */
    PyThreadState *thread = PyEval_SaveThread();
    const gpo_status status =
        download_packed(&task.call, &self->array, PyArray_DATA(host));
    PyEval_RestoreThread(thread);
    gpo_memory_release(self->memory);
    if (status) {
        gpo_raise(&task.call, status);
        return false;
    }
    return true;
}

PyArrayObject *
gpo_device_array_host(gpo_device_array *self, const char *function)
{
    if (!gpo_device_array_usable(self, function)) {
        return NULL;
    }
    PyArrayObject *host = gpo_array_new(&self->array);
    if (host && !gpo_device_array_download(self, host, function)) {
        Py_CLEAR(host);
    }
    return host;
}

PyObject *
gpo_device_array_numpy(gpo_device_array *self, PyObject *unused)
{
    (void)unused;
    return (PyObject *)gpo_device_array_host(self, "numpy");
}

/* Copies `from` (C order) to `to`.  Without the GIL; `from` may be reused on return. */
static gpo_status
upload_packed(gpo_call *call, gpo_backend_id id, const gpo_array *to, const void *from)
{
    const gpo_backend *backend = call->backend;
    gpo_array packed = *to;
    const size_t bytes = (size_t)to->size * (size_t)gpo_dtypes[to->dtype].bytes;
    const bool direct = gpo_array_is_contiguous(to);
    gpo_status status = backend->begin(call);
    if (status) {
        return status;
    }
    if (!direct) {
        gpo_array_contiguous(&call->error, &packed);
        status = gpo_scratch(call, bytes, &packed.data);
    }
    if (!status) {
        status = backend->upload(call, packed.data, from, bytes);
    }
    if (!status && !direct) {
        status = gpo_device_of(id)->copy(call, &packed, to);
    }
    if (!status) {
        status = backend->wait(call); /* the GPU may still read pinned memory */
    }
    backend->end(call);
    return status;
}

bool
gpo_device_array_fill(gpo_device_array *self, PyArrayObject *host, const char *function)
{
    const gpo_memory *memory = self->memory;
    gpo_task task;
    if (self->array.size == 0) {
        return true;
    }
    gpo_task_init(&task, function, memory->backend, memory->device, memory->stream);
    self->memory->references++;
    PyThreadState *thread = PyEval_SaveThread();
    const gpo_status status =
        upload_packed(&task.call, memory->id, &self->array, PyArray_DATA(host));
    PyEval_RestoreThread(thread);
    const bool pageable = gpo_device_of(memory->id)->went_pageable();
    gpo_memory_release(self->memory);
    if (status) {
        gpo_raise(&task.call, status);
        return false;
    }
    return !pageable ||
           PyErr_WarnEx(gpo_py.performance_warning,
                        "there is no pinned memory left: a large array was "
                        "copied at the speed of pageable memory",
                        1) == 0;
}

/* ---- from another device ---- */

/* Waits for the array's device; packs an array with gaps into new memory there. */
static gpo_status
settle(gpo_call *call, const gpo_device *device, gpo_array *array, void **memory)
{
    const size_t bytes = (size_t)array->size * (size_t)gpo_dtypes[array->dtype].bytes;
    const gpo_array gapped = *array;
    gpo_status status = call->backend->begin(call);
    if (status) {
        return status;
    }
    status = device->synchronize(call);
    if (!status && !gpo_array_is_contiguous(array)) {
        gpo_array_contiguous(&call->error, array);
        status = call->backend->alloc(call, bytes, memory);
        array->data = *memory;
        if (!status) {
            status = device->copy(call, &gapped, array);
        }
        if (!status) {
            status = call->backend->wait(call);
        }
    }
    call->backend->end(call);
    return status;
}

/* settle() as a task of the device; *memory is NULL if nothing was packed. */
static bool
settle_on(const gpo_memory *of, int device, gpo_array *array, void **memory,
          const char *function)
{
    gpo_task task;
    gpo_task_init(&task, function, of->backend, device, NULL);
    PyThreadState *thread = PyEval_SaveThread();
    const gpo_status status = settle(&task.call, gpo_device_of(of->id), array, memory);
    PyEval_RestoreThread(thread);
    return !status || gpo_raise(&task.call, status);
}

static bool
copy_settled(gpo_device_array *self, const gpo_array *from, int device,
             const char *function)
{
    const gpo_memory *memory = self->memory;
    const size_t bytes = (size_t)from->size * (size_t)gpo_dtypes[from->dtype].bytes;
    gpo_task task;
    gpo_task_init(&task, function, memory->backend, memory->device, memory->stream);
    PyThreadState *thread = PyEval_SaveThread();
    gpo_status status = memory->backend->begin(&task.call);
    if (!status) {
        status =
            gpo_device_of(memory->id)
                ->copy_across(&task.call, self->array.data, from->data, device, bytes);
        status = status ? status : memory->backend->wait(&task.call);
        memory->backend->end(&task.call);
    }
    PyEval_RestoreThread(thread);
    return !status || gpo_raise(&task.call, status);
}

static void
release_on(const gpo_memory *of, int device, void *memory, const char *function)
{
    gpo_task task;
    gpo_task_init(&task, function, of->backend, device, NULL);
    if (memory && of->backend->begin(&task.call) == GPO_OK) {
        of->backend->free(&task.call, memory);
        of->backend->end(&task.call);
    }
}

bool
gpo_device_array_fill_across(gpo_device_array *self, const gpo_array *other, int device,
                             const char *function)
{
    gpo_array from = *other;
    void *packed = NULL;
    if (other->size == 0) {
        return true;
    }
    const bool good = settle_on(self->memory, device, &from, &packed, function) &&
                      copy_settled(self, &from, device, function);
    release_on(self->memory, device, packed, function);
    return good;
}

PyArrayObject *
gpo_host_array(PyObject *object, const char *argument, gpo_array *array)
{
    PyArrayObject *owner = NULL;
    if (!gpo_array_wrap(object, argument, array, &owner)) {
        return NULL;
    }
    if (!gpo_array_is_contiguous(array)) {
        PyArrayObject *packed = (PyArrayObject *)PyArray_NewCopy(owner, NPY_CORDER);
        Py_DECREF((PyObject *)owner);
        if (!packed) {
            return NULL;
        }
        owner = packed;
        gpo_row_major(array);
        array->data = PyArray_DATA(owner);
    }
    return owner;
}
