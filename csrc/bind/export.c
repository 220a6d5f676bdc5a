/*
 * export.c  The export of a DeviceArray to other libraries: DLPack 1.x with all
 * keywords, the CUDA array interface version 3, and the implicit conversion to NumPy,
 * an error.
 */
#include "array.h"
#include "backends.h"
#include "device_array.h"
#include "errors.h"
#include "exchange.h"
#include "task.h"

#include <limits.h>

PyObject *
gpo_device_array_array(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self, (void)args, (void)kwargs;
    PyErr_SetString(PyExc_TypeError,
                    "Implicit conversion to a NumPy array is not allowed. Please use "
                    "`.numpy()` to construct a NumPy array explicitly.");
    return NULL;
}

/* False with BufferError set for memory that no other library can read. */
static bool
can_export(const gpo_device_array *self)
{
    if (!self->memory->base && self->array.size > 0) {
        PyErr_SetString(PyExc_BufferError, "the array was freed");
        return false;
    }
    if (self->memory->id == GPO_SIM) {
        PyErr_SetString(
            PyExc_BufferError,
            "the array is in the simulator's memory, which no other library "
            "can use; x.numpy() copies it to the host");
        return false;
    }
    return true;
}

static dl_device
dlpack_device(const gpo_device_array *self)
{
    const bool cuda = self->memory->id == GPO_CUDA;
    return (dl_device){cuda ? DL_CUDA : DL_CPU, cuda ? self->memory->device : 0};
}

PyObject *
gpo_device_array_dlpack_device(gpo_device_array *self, PyObject *unused)
{
    (void)unused;
    if (!can_export(self)) {
        return NULL;
    }
    const dl_device device = dlpack_device(self);
    return Py_BuildValue("(ii)", device.type, device.id);
}

/* The content of both kinds of capsule; `array` keeps the memory alive. */
typedef struct export
{
    dl_managed managed;
    dl_versioned versioned;
    gpo_device_array *array;
    bool has_stream;
    void *stream;     /* the consumer's */
    PyObject *holder; /* the stream's object, or NULL */
}
export;

/* Streams that are never destroyed: the legacy default one, each thread's. */
static bool
is_eternal(void *stream)
{
    return (uintptr_t)stream <= 2;
}

/* Orders the release of the memory after the consumer's use of it. */
static void
order_free(const export *e, const gpo_memory *memory)
{
    const gpo_device *device = gpo_device_of(memory->id);
    gpo_task task;
    gpo_task_init(&task, "DeviceArray", memory->backend, memory->device,
                  memory->stream);
    if (memory->backend->begin(&task.call) != GPO_OK) {
        return;
    }
    if (e->holder || is_eternal(e->stream)) {
        device->order(&task.call, e->stream, memory->stream);
    }
    else {
        device->synchronize(&task.call); /* the stream itself may be gone */
    }
    memory->backend->end(&task.call);
}

static void
export_free(export *e)
{
    if (!Py_IsInitialized()) {
        return; /* the process ends, which frees the memory */
    }
    const PyGILState_STATE state = PyGILState_Ensure(); /* called by any thread */
    gpo_memory *memory = e->array->memory;
    memory->exports--;
    if (e->has_stream && e->stream != memory->stream) {
        order_free(e, memory);
    }
    Py_DECREF((PyObject *)e->array);
    Py_XDECREF(e->holder);
    PyMem_Free(e);
    PyGILState_Release(state);
}

static void
delete_managed(dl_managed *self)
{
    export_free(self->context);
}

static void
delete_versioned(dl_versioned *self)
{
    export_free(self->context);
}

static void
capsule_free(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        tensor->deleter(tensor);
    }
    else if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *tensor = PyCapsule_GetPointer(capsule, "dltensor");
        tensor->deleter(tensor);
    } /* else a consumer has taken the tensor */
}

static PyObject *
export_new(gpo_device_array *self, bool versioned, bool copied, bool has_stream,
           void *stream)
{
    export *e = PyMem_Calloc(1, sizeof *e);
    if (!e) {
        return PyErr_NoMemory();
    }
    gpo_array *array = &self->array;
    const dl_tensor tensor = {
        .data = array->data,
        .device = dlpack_device(self),
        .ndim = array->ndim,
        .dtype = gpo_dlpack_dtype(array->dtype),
        .shape = array->shape,
        .strides = array->strides,
    };
    e->array = (gpo_device_array *)Py_NewRef((PyObject *)self);
    e->has_stream = has_stream;
    e->stream = stream;
    e->holder = has_stream && stream != self->memory->stream && !is_eternal(stream)
                    ? gpo_stream_holder(stream, self->memory->device)
                    : NULL;
    e->managed = (dl_managed){tensor, e, delete_managed};
    e->versioned = (dl_versioned){
        .version = {DLPACK_MAJOR, DLPACK_MINOR},
        .context = e,
        .deleter = delete_versioned,
        .flags = (self->readonly ? DL_READ_ONLY : 0u) | (copied ? DL_IS_COPIED : 0u),
        .tensor = tensor,
    };
    self->memory->exports++;
    PyObject *capsule =
        versioned ? PyCapsule_New(&e->versioned, "dltensor_versioned", capsule_free)
                  : PyCapsule_New(&e->managed, "dltensor", capsule_free);
    if (!capsule) {
        e->has_stream = false;
        export_free(e);
    }
    return capsule;
}

/* The host copy for dl_device=(1, 0), exported by NumPy. */
static PyObject *
export_host_copy(gpo_device_array *self, PyObject *max_version)
{
    PyObject *host = gpo_device_array_numpy(self, NULL);
    PyObject *method = host ? PyObject_GetAttrString(host, "__dlpack__") : NULL;
    PyObject *none = PyTuple_New(0);
    PyObject *keywords = Py_BuildValue("{s:O}", "max_version", max_version);
    PyObject *capsule =
        method && none && keywords ? PyObject_Call(method, none, keywords) : NULL;
    Py_XDECREF(host);
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(keywords);
    return capsule;
}

/* Reads DLPack's stream=: 1 if the consumer's stream must wait, 0 if not, -1: error. */
static int
consumer_stream(PyObject *object, void **stream)
{
    *stream = NULL;
    if (object == Py_None) {
        return 1; /* the legacy default stream */
    }
    const long long value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) {
        return -1;
    }
    if (value == -1) {
        return 0;
    }
    if (value == 0 || value < -1) {
        PyErr_Format(
            PyExc_ValueError,
            "stream must be None, -1, 1, 2 or the handle of a stream (got %lld)",
            value);
        return -1;
    }
    *stream = value == 1 ? NULL : (void *)(intptr_t)value;
    return 1;
}

static bool
order_after(const gpo_memory *memory, void *first, void *then, const char *function)
{
    gpo_task task;
    gpo_task_init(&task, function, memory->backend, memory->device, then);
    gpo_status status = memory->backend->begin(&task.call);
    if (!status) {
        status = gpo_device_of(memory->id)->order(&task.call, first, then);
        memory->backend->end(&task.call);
    }
    if (status) {
        gpo_raise(&task.call, status);
    }
    return status == GPO_OK;
}

/* A C-contiguous copy on the same device, on the memory's own stream. */
static gpo_device_array *
device_copy(gpo_device_array *self)
{
    const gpo_memory *memory = self->memory;
    gpo_device_array *copy =
        gpo_device_array_empty(&self->array, memory->id, memory->device, memory->stream,
                               memory->stream_owner, "__dlpack__");
    if (!copy || self->array.size == 0) {
        return copy;
    }
    gpo_task task;
    gpo_task_init(&task, "__dlpack__", memory->backend, memory->device, memory->stream);
    gpo_status status = memory->backend->begin(&task.call);
    if (!status) {
        status =
            gpo_device_of(memory->id)->copy(&task.call, &self->array, &copy->array);
        memory->backend->end(&task.call);
    }
    if (status) {
        gpo_raise(&task.call, status);
        Py_CLEAR(copy);
    }
    return copy;
}

/* Reads a pair of ints; None leaves `pair` unchanged. */
static bool
parse_pair(PyObject *object, const char *name, int pair[2])
{
    if (object == Py_None) {
        return true;
    }
    if (!PyTuple_Check(object) || PyTuple_Size(object) != 2) {
        PyErr_Format(PyExc_TypeError, "%s must be a pair of ints, not %R", name,
                     object);
        return false;
    }
    for (int k = 0; k < 2; k++) {
        const long number = PyLong_AsLong(PyTuple_GetItem(object, k));
        pair[k] = number < INT_MIN || number > INT_MAX ? -1 : (int)number;
    }
    return !PyErr_Occurred();
}

PyObject *
gpo_device_array_dlpack(gpo_device_array *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream_object = Py_None, *max_version = Py_None, *wanted = Py_None;
    PyObject *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names,
                                     &stream_object, &max_version, &wanted, &copy)) {
        return NULL;
    }
    int version[2] = {0, 0}, place[2] = {0, 0};
    const int truth = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (truth < 0 || !parse_pair(max_version, "max_version", version) ||
        !parse_pair(wanted, "dl_device", place)) {
        return NULL;
    }
    if (place[0] == DL_CPU && place[1] == 0 && self->memory->id != GPO_CPU) {
        if (copy == Py_False || stream_object != Py_None) {
            PyErr_SetString(copy == Py_False ? PyExc_BufferError : PyExc_ValueError,
                            copy == Py_False
                                ? "the array is not on the host; only a copy can be"
                                : "stream must be None for a copy on the host");
            return NULL;
        }
        return export_host_copy(self, max_version);
    }
    if (!can_export(self)) {
        return NULL;
    }
    const dl_device own = dlpack_device(self);
    if (wanted != Py_None && (place[0] != own.type || place[1] != own.id)) {
        return PyErr_Format(PyExc_BufferError,
                            "the array is on device (%d, %d) and is not copied to %R",
                            own.type, own.id, wanted);
    }
    if (version[0] < 1 && self->readonly) {
        PyErr_SetString(PyExc_BufferError,
                        "the array is read-only, which a capsule before version 1.0 "
                        "cannot say; ask with max_version=(1, 0)");
        return NULL;
    }
    void *stream;
    const int ordered = consumer_stream(stream_object, &stream);
    if (ordered < 0) {
        return NULL;
    }
    gpo_device_array *shared = self;
    if (truth && self->memory->id == GPO_CUDA) {
        shared = device_copy(self);
    }
    else {
        Py_INCREF((PyObject *)shared);
    }
    PyObject *capsule = NULL;
    const bool on_device = shared && shared->memory->id == GPO_CUDA && ordered;
    if (shared && (!on_device || order_after(shared->memory, shared->memory->stream,
                                             stream, "__dlpack__"))) {
        capsule =
            export_new(shared, version[0] >= 1, shared != self, on_device, stream);
    }
    Py_XDECREF((PyObject *)shared);
    return capsule;
}

PyObject *
gpo_device_array_interface(gpo_device_array *self, void *unused)
{
    (void)unused;
    if (!can_export(self)) {
        return NULL;
    }
    if (self->memory->id == GPO_CPU || self->array.dtype == GPO_BF16) {
        PyErr_SetString(PyExc_AttributeError,
                        self->memory->id == GPO_CPU
                            ? "__cuda_array_interface__: the array is on the host"
                            : "__cuda_array_interface__ has no bfloat16; use DLPack");
        return NULL;
    }
    PyObject *dtype = (PyObject *)gpo_dtype_descr(self->array.dtype);
    PyObject *typestr = dtype ? PyObject_GetAttrString(dtype, "str") : NULL;
    Py_XDECREF(dtype);
    if (!typestr) {
        return NULL;
    }
    const uintptr_t data = self->array.size > 0 ? (uintptr_t)self->array.data : 0;
    const uintptr_t stream = self->memory->stream ? (uintptr_t)self->memory->stream : 1;
    PyObject *strides = gpo_array_is_contiguous(&self->array)
                            ? Py_NewRef(Py_None)
                            : gpo_device_array_strides(self, NULL);
    return Py_BuildValue("{s:N,s:N,s:(KO),s:N,s:i,s:K}", "shape",
                         gpo_device_array_shape(self, NULL), "typestr", typestr, "data",
                         (unsigned long long)data, self->readonly ? Py_True : Py_False,
                         "strides", strides, "version", 3, "stream",
                         (unsigned long long)stream);
}
