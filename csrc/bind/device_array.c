/*
 * device_array.c  gpuopt.DeviceArray: memory of a GPU, or of the simulator, with shape,
 * dtype and strides; no array library.  Order: memory, making and unmaking, attributes,
 * views, copies to and from the host, what other libraries ask for, the class,
 * asdevice.
 */
#include "bind.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static gpo_memory *
memory_new(gpo_backend_id id, const gpo_backend *backend, int device, void *stream,
           PyObject *keeper, void *base, PyObject *owner)
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
    memory->keeper = Py_XNewRef(keeper);
    memory->owner = Py_XNewRef(owner);
    memory->base = base;
    return memory;
}

/* Gives memory of ours back, in the order of its stream. */
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
        GPO_OK) { /* else the context is gone, and it too */
        backend->free(&task.call, base);
        backend->end(&task.call);
    }
}

static void
memory_free(gpo_memory *memory)
{
    if (!memory->owner) {
        base_free(memory->id, memory->backend, memory->device, memory->stream,
                  memory->base);
    }
    memory->base = NULL;
    Py_CLEAR(memory->owner);
    Py_CLEAR(memory->keeper);
}

static void
memory_release(gpo_memory *memory)
{
    if (memory && --memory->references == 0) {
        memory_free(memory);
        PyMem_Free(memory);
    }
}

/* ---- making and unmaking ---- */

bool
gpo_device_array_check(PyObject *object)
{
    return Py_TYPE(object) == gpo_py.device_array;
}

/* A view of `memory`, which it takes a new reference to. */
static gpo_device_array *
view_new(gpo_memory *memory, bool readonly, const gpo_array *array)
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
                     void *stream, PyObject *keeper, void *base, PyObject *owner,
                     const gpo_array *array)
{
    gpo_memory *memory = memory_new(id, backend, device, stream, keeper, base, owner);
    if (!memory) {
        if (!owner) {
            base_free(id, backend, device, stream, base);
        }
        return NULL;
    }
    memory->bytes = (size_t)array->size * (size_t)gpo_dtypes[array->dtype].bytes;
    gpo_device_array *self = view_new(memory, false, array);
    memory_release(memory); /* the view's reference remains */
    return (PyObject *)self;
}

static void
array_dealloc(gpo_device_array *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    memory_release(self->memory);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
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

/* A new C-contiguous array of `array`'s shape and dtype, uninitialised. */
static gpo_device_array *
empty_like(const gpo_array *shape, gpo_backend_id id, int device, void *stream,
           PyObject *keeper, const char *function)
{
    gpo_array array = *shape;
    gpo_task task;
    void *base = NULL;
    const gpo_backend *backend = gpo_backend_get(id);
    gpo_task_init(&task, function, backend, device, stream);
    gpo_status status = gpo_array_contiguous(&task.call, &array);
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
    return (gpo_device_array *)gpo_device_array_new(id, backend, device, stream, keeper,
                                                    base, NULL, &array);
}

/* ---- attributes ---- */

static PyObject *
get_shape(gpo_device_array *self, void *unused)
{
    (void)unused;
    return gpo_shape_tuple(self->array.ndim, self->array.shape);
}

static PyObject *
get_strides(gpo_device_array *self, void *unused)
{
    (void)unused;
    int64_t bytes[GPO_MAX_DIMS];
    for (int d = 0; d < self->array.ndim; d++) {
        bytes[d] = self->array.strides[d] * gpo_dtypes[self->array.dtype].bytes;
    }
    return gpo_shape_tuple(self->array.ndim, bytes);
}

static PyObject *
get_dtype(gpo_device_array *self, void *unused)
{
    (void)unused;
    return (PyObject *)gpo_dtype_descr(self->array.dtype);
}

static PyObject *
get_ndim(gpo_device_array *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(self->array.ndim);
}

static PyObject *
get_size(gpo_device_array *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(self->array.size);
}

static PyObject *
get_itemsize(gpo_device_array *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(gpo_dtypes[self->array.dtype].bytes);
}

static PyObject *
get_nbytes(gpo_device_array *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(self->array.size * gpo_dtypes[self->array.dtype].bytes);
}

static PyObject *
get_device(gpo_device_array *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(self->memory->device);
}

static PyObject *
get_backend(gpo_device_array *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(gpo_backend_names[self->memory->id]);
}

static PyObject *
get_stream(gpo_device_array *self, void *unused)
{
    (void)unused;
    return PyLong_FromVoidPtr(self->memory->stream);
}

static PyObject *
get_freed(gpo_device_array *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(!self->memory->base && self->memory->bytes > 0);
}

static PyObject *
get_transposed(gpo_device_array *self, void *unused)
{
    (void)unused;
    gpo_array turned = self->array;
    for (int d = 0; d < turned.ndim; d++) {
        turned.shape[d] = self->array.shape[turned.ndim - 1 - d];
        turned.strides[d] = self->array.strides[turned.ndim - 1 - d];
    }
    return (PyObject *)view_new(self->memory, self->readonly, &turned);
}

static PyObject *
array_repr(gpo_device_array *self)
{
    PyObject *shape = get_shape(self, NULL);
    if (!shape) {
        return NULL;
    }
    PyObject *text = PyUnicode_FromFormat(
        "<gpuopt.DeviceArray shape=%R dtype=%s on %s:%d%s>", shape,
        gpo_dtypes[self->array.dtype].name, gpo_backend_names[self->memory->id],
        self->memory->device,
        !self->memory->base && self->memory->bytes > 0 ? ", freed" : "");
    Py_DECREF(shape);
    return text;
}

static PyObject *
array_repr_html(gpo_device_array *self, PyObject *unused)
{
    (void)unused;
    PyObject *shape = get_shape(self, NULL);
    PyObject *strides = get_strides(self, NULL);
    PyObject *bytes = get_nbytes(self, NULL);
    PyObject *html = NULL;
    if (shape && strides && bytes) {
        html = PyUnicode_FromFormat(
            "<table><caption>gpuopt.DeviceArray on %s:%d</caption>"
            "<tr><th>shape</th><td>%R</td></tr><tr><th>dtype</th><td>%s</td></tr>"
            "<tr><th>strides</th><td>%R</td></tr><tr><th>bytes</th><td>%R</td></tr>"
            "</table>",
            gpo_backend_names[self->memory->id], self->memory->device, shape,
            gpo_dtypes[self->array.dtype].name, strides, bytes);
    }
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    Py_XDECREF(bytes);
    return html;
}

/* ---- views ---- */

static Py_ssize_t
array_length(gpo_device_array *self)
{
    if (self->array.ndim == 0) {
        PyErr_SetString(PyExc_TypeError, "len() of unsized object");
        return -1;
    }
    return (Py_ssize_t)self->array.shape[0];
}

static int
array_truth(gpo_device_array *self)
{
    (void)self;
    PyErr_SetString(PyExc_TypeError,
                    "the truth value of a DeviceArray is not known on the host; "
                    "use x.numpy()");
    return -1;
}

static void
move_data(gpo_array *view, int64_t elements)
{
    if (view->data) {
        view->data = (char *)view->data + elements * gpo_dtypes[view->dtype].bytes;
    }
}

/* Applies one item of an index to axis `axis` of `from`. */
static bool
apply_index(PyObject *item, const gpo_array *from, int axis, gpo_array *view)
{
    const int64_t length = from->shape[axis], stride = from->strides[axis];
    if (PySlice_Check(item)) {
        Py_ssize_t start, stop, step;
        if (PySlice_Unpack(item, &start, &stop, &step) < 0) {
            return false;
        }
        const Py_ssize_t n =
            PySlice_AdjustIndices((Py_ssize_t)length, &start, &stop, step);
        if (n > 0) {
            move_data(view, start * stride);
        }
        view->shape[view->ndim] = n;
        view->strides[view->ndim++] = stride * step;
        return true;
    }
    if (!PyIndex_Check(item) || PyBool_Check(item)) {
        PyErr_Format(PyExc_IndexError,
                     "a DeviceArray takes integers, slices (`:`), ellipsis (`...`) and "
                     "None as index, not %R",
                     (PyObject *)Py_TYPE(item));
        return false;
    }
    const Py_ssize_t i = PyNumber_AsSsize_t(item, PyExc_IndexError);
    if (i == -1 && PyErr_Occurred()) {
        return false;
    }
    if (i < -length || i >= length) {
        PyErr_Format(PyExc_IndexError,
                     "index %zd is out of bounds for axis %d with size %lld", i, axis,
                     (long long)length);
        return false;
    }
    move_data(view, (i < 0 ? i + length : i) * stride);
    return true;
}

static PyObject *
array_subscript(gpo_device_array *self, PyObject *index)
{
    const gpo_array *from = &self->array;
    PyObject *items = PyTuple_Check(index) ? Py_NewRef(index) : PyTuple_Pack(1, index);
    if (!items) {
        return NULL;
    }
    const Py_ssize_t count = PyTuple_Size(items);
    Py_ssize_t used = 0, added = 0, dots = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GetItem(items, i);
        dots += item == Py_Ellipsis;
        added += item == Py_None;
        used += item != Py_Ellipsis && item != Py_None;
    }
    PyObject *result = NULL;
    gpo_array view = *from;
    view.ndim = 0;
    int axis = 0;
    if (dots > 1) {
        PyErr_SetString(PyExc_IndexError,
                        "an index can only have a single ellipsis ('...')");
        goto fail;
    }
    if (used > from->ndim || from->ndim - used + used + added > GPO_MAX_DIMS) {
        PyErr_Format(
            PyExc_IndexError,
            "too many indices for array: array is %d-dimensional, but %zd were "
            "indexed",
            from->ndim, used);
        goto fail;
    }
    for (Py_ssize_t i = 0; i <= count; i++) {
        PyObject *item = i < count ? PyTuple_GetItem(items, i) : NULL;
        if (item == Py_None) {
            view.shape[view.ndim] = 1;
            view.strides[view.ndim++] = 0;
        }
        else if (item == Py_Ellipsis || !item) { /* the axes that no item names */
            const int last = item ? axis + from->ndim - (int)used : from->ndim;
            for (; axis < last; axis++) {
                view.shape[view.ndim] = from->shape[axis];
                view.strides[view.ndim++] = from->strides[axis];
            }
        }
        else if (!apply_index(item, from, axis++, &view)) {
            goto fail;
        }
    }
    view.size = 1;
    for (int d = 0; d < view.ndim; d++) {
        view.size *= view.shape[d];
    }
    result = (PyObject *)view_new(self->memory, self->readonly, &view);
fail:
    Py_DECREF(items);
    return result;
}

/* What iteration asks for. */
static PyObject *
array_item(gpo_device_array *self, Py_ssize_t i)
{
    PyObject *index = PyLong_FromSsize_t(i);
    PyObject *view = index ? array_subscript(self, index) : NULL;
    Py_XDECREF(index);
    return view;
}

PyDoc_STRVAR(reshape_doc, "reshape($self, /, *shape)\n--\n\n"
                          "A view of another shape; the array must be C-contiguous.");

static PyObject *
array_reshape(gpo_device_array *self, PyObject *args)
{
    PyObject *shape = args;
    if (PyTuple_Size(args) == 1 && PyTuple_Check(PyTuple_GetItem(args, 0))) {
        shape = PyTuple_GetItem(args, 0);
    }
    const Py_ssize_t ndim = PyTuple_Size(shape);
    gpo_array view = self->array;
    int free_axis = -1;
    int64_t known = 1;
    if (ndim > GPO_MAX_DIMS || !gpo_array_is_contiguous(&self->array)) {
        PyErr_SetString(PyExc_ValueError, ndim > GPO_MAX_DIMS
                                              ? "maximum supported dimension is 64"
                                              : "reshape() takes a C-contiguous array");
        return NULL;
    }
    view.ndim = (int)ndim;
    for (int d = 0; d < view.ndim; d++) {
        view.shape[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
        if (PyErr_Occurred()) {
            return NULL;
        }
        if (view.shape[d] == -1 && free_axis < 0) {
            free_axis = d;
        }
        else if (view.shape[d] < 0 ||
                 __builtin_mul_overflow(known, view.shape[d], &known)) {
            known = -1;
            break;
        }
    }
    if (known > 0 && free_axis >= 0 && view.size % known == 0) {
        view.shape[free_axis] = view.size / known;
        known = view.size;
    }
    if (known != view.size || (free_axis >= 0 && view.shape[free_axis] < 0)) {
        return PyErr_Format(PyExc_ValueError,
                            "cannot reshape array of size %lld into shape %R",
                            (long long)view.size, shape);
    }
    gpo_call unused;
    gpo_array_contiguous(&unused, &view); /* it fits: its size is that of an array */
    return (PyObject *)view_new(self->memory, self->readonly, &view);
}

/* ---- copies to and from the host ---- */

/* The elements of `self` in C order at `to`.  Without the GIL. */
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
        gpo_array_contiguous(call, &packed);
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

PyDoc_STRVAR(numpy_doc, "numpy($self, /)\n--\n\n"
                        "Copy to the host: a new ndarray.  Waits for the array.");

static PyObject *
array_numpy(gpo_device_array *self, PyObject *unused)
{
    (void)unused;
    const gpo_memory *memory = self->memory;
    if (!gpo_device_array_usable(self, "numpy")) {
        return NULL;
    }
    PyArrayObject *host = gpo_array_new(&self->array);
    if (!host || self->array.size == 0) {
        return (PyObject *)host;
    }
    if (memory->id == GPO_CPU) { /* always contiguous: nothing slices one */
        memcpy(PyArray_DATA(host), self->array.data, memory->bytes);
        return (PyObject *)host;
    }
    gpo_task task;
    gpo_task_init(&task, "numpy", memory->backend, memory->device, memory->stream);
    self->memory->references++; /* another thread may drop the array meanwhile */
    PyThreadState *thread = PyEval_SaveThread();
    const gpo_status status =
        download_packed(&task.call, &self->array, PyArray_DATA(host));
    PyEval_RestoreThread(thread);
    memory_release(self->memory);
    if (status) {
        gpo_raise(&task.call, status);
        Py_CLEAR(host);
    }
    return (PyObject *)host;
}

/* `from` in C order into `to`.  Without the GIL; `from` may be reused on return. */
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
        gpo_array_contiguous(call, &packed);
        status = gpo_scratch(call, bytes, &packed.data);
    }
    if (!status) {
        status = backend->upload(call, packed.data, from, bytes);
    }
    if (!status && !direct) {
        status = gpo_device_of(id)->copy(call, &packed, to);
    }
    if (!status) {
        status = backend->wait(call); /* pinned memory is read until then */
    }
    backend->end(call);
    return status;
}

/* Uploads a C-contiguous ndarray of the right shape and dtype. */
static bool
fill(gpo_device_array *self, PyArrayObject *host, const char *function)
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
    memory_release(self->memory);
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

/* `object` as a C-contiguous, native ndarray of a supported dtype. */
static PyArrayObject *
host_array(PyObject *object, const char *argument, gpo_array *array)
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
        gpo_call unused;
        gpo_array_contiguous(&unused, array);
        array->data = PyArray_DATA(owner);
    }
    return owner;
}

PyDoc_STRVAR(copy_from_doc,
             "copy_from($self, host, /)\n--\n\n"
             "Overwrite the array with a host array of its shape and dtype.\n\n"
             "The host array may be changed once the call is back.");

static PyObject *
array_copy_from(gpo_device_array *self, PyObject *object)
{
    gpo_array array;
    if (!gpo_device_array_usable(self, "copy_from")) {
        return NULL;
    }
    if (self->readonly) {
        PyErr_SetString(PyExc_ValueError, "the array is read-only");
        return NULL;
    }
    PyArrayObject *host = host_array(object, "host", &array);
    bool good = host != NULL;
    if (good && !gpo_same_shape(&array, &self->array)) {
        PyObject *is = gpo_shape_tuple(array.ndim, array.shape);
        PyObject *wanted = get_shape(self, NULL);
        if (is && wanted) {
            PyErr_Format(PyExc_ValueError, "host has shape %R, expected %R", is,
                         wanted);
        }
        Py_XDECREF(is);
        Py_XDECREF(wanted);
        good = false;
    }
    else if (good && array.dtype != self->array.dtype) {
        PyErr_Format(PyExc_TypeError, "host has dtype '%s', expected '%s'",
                     gpo_dtypes[array.dtype].name, gpo_dtypes[self->array.dtype].name);
        good = false;
    }
    good = good && fill(self, host, "copy_from");
    Py_XDECREF((PyObject *)host);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(free_doc, "free($self, /)\n--\n\n"
                       "Give the memory back now; the array and its views are unusable "
                       "then.");

static PyObject *
array_free(gpo_device_array *self, PyObject *unused)
{
    (void)unused;
    if (self->memory->exports > 0) {
        PyErr_SetString(PyExc_BufferError,
                        "the array cannot be freed: another library uses its memory");
        return NULL;
    }
    memory_free(self->memory);
    Py_RETURN_NONE;
}

static PyObject *
array_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *
array_exit(gpo_device_array *self, PyObject *unused)
{
    return array_free(self, unused);
}

/* ---- what other libraries ask for ---- */

static PyObject *
array_array(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self, (void)args, (void)kwargs;
    PyErr_SetString(PyExc_TypeError,
                    "Implicit conversion to a NumPy array is not allowed. Please use "
                    "`.numpy()` to construct a NumPy array explicitly.");
    return NULL;
}

/* BufferError for memory no other library can read. */
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

static PyObject *
array_dlpack_device(gpo_device_array *self, PyObject *unused)
{
    (void)unused;
    if (!can_export(self)) {
        return NULL;
    }
    const dl_device device = dlpack_device(self);
    return Py_BuildValue("(ii)", device.type, device.id);
}

/* What both kinds of capsule point at; `array` keeps the memory alive. */
typedef struct export
{
    dl_managed managed;
    dl_versioned versioned;
    gpo_device_array *array;
    bool has_stream;
    void *stream; /* where the consumer works */
}
export;

static void
export_free(export *e)
{
    if (!Py_IsInitialized()) {
        return; /* the process ends; so does the memory */
    }
    const PyGILState_STATE state = PyGILState_Ensure(); /* any thread may come here */
    gpo_memory *memory = e->array->memory;
    memory->exports--;
    if (e->has_stream && e->stream != memory->stream) {
        gpo_task task; /* the consumer's queue may still use what is freed next */
        gpo_task_init(&task, "DeviceArray", memory->backend, memory->device,
                      memory->stream);
        if (memory->backend->begin(&task.call) == GPO_OK) {
            gpo_device_of(memory->id)->order(&task.call, e->stream, memory->stream);
            memory->backend->end(&task.call);
        }
    }
    Py_DECREF((PyObject *)e->array);
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
    } /* else a consumer took it */
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

/* The host copy that dl_device=(1, 0) asks for, exported by NumPy. */
static PyObject *
export_host_copy(gpo_device_array *self, PyObject *max_version)
{
    PyObject *host = array_numpy(self, NULL);
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

/* DLPack's stream=: what it means, or -1 with an exception set; 1: order, 0: not. */
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

/* A packed copy on the same device, ordered on the memory's own stream. */
static gpo_device_array *
device_copy(gpo_device_array *self)
{
    const gpo_memory *memory = self->memory;
    gpo_device_array *copy = empty_like(&self->array, memory->id, memory->device,
                                        memory->stream, memory->keeper, "__dlpack__");
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

/* A pair of ints, or None, which leaves `pair` as it is. */
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

PyDoc_STRVAR(dlpack_doc,
             "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, "
             "copy=None)\n--\n\n"
             "Share the memory through DLPack.  dl_device=(1, 0) copies to the host.");

static PyObject *
array_dlpack(gpo_device_array *self, PyObject *args, PyObject *kwargs)
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

static PyObject *
get_interface(gpo_device_array *self, void *unused)
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
    PyObject *dtype = get_dtype(self, NULL);
    PyObject *typestr = dtype ? PyObject_GetAttrString(dtype, "str") : NULL;
    Py_XDECREF(dtype);
    if (!typestr) {
        return NULL;
    }
    const uintptr_t data = self->array.size > 0 ? (uintptr_t)self->array.data : 0;
    const uintptr_t stream = self->memory->stream ? (uintptr_t)self->memory->stream : 1;
    PyObject *strides = gpo_array_is_contiguous(&self->array) ? Py_NewRef(Py_None)
                                                              : get_strides(self, NULL);
    return Py_BuildValue("{s:N,s:N,s:(KO),s:N,s:i,s:K}", "shape", get_shape(self, NULL),
                         "typestr", typestr, "data", (unsigned long long)data,
                         self->readonly ? Py_True : Py_False, "strides", strides,
                         "version", 3, "stream", (unsigned long long)stream);
}

/* ---- the class ---- */

static PyGetSetDef attributes[] = {
    {"shape", (getter)get_shape, NULL, "Lengths of the axes, a tuple.", NULL},
    {"strides", (getter)get_strides, NULL, "Steps of the axes in bytes, a tuple.",
     NULL},
    {"dtype", (getter)get_dtype, NULL, "The NumPy dtype of an element.", NULL},
    {"ndim", (getter)get_ndim, NULL, "How many axes there are.", NULL},
    {"size", (getter)get_size, NULL, "How many elements there are.", NULL},
    {"itemsize", (getter)get_itemsize, NULL, "Bytes of an element.", NULL},
    {"nbytes", (getter)get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"device", (getter)get_device, NULL, "The number of the device.", NULL},
    {"backend", (getter)get_backend, NULL, "'cuda' or 'sim'.", NULL},
    {"stream", (getter)get_stream, NULL,
     "The handle of the stream the array is written on; 0 is the default stream.",
     NULL},
    {"freed", (getter)get_freed, NULL, "Whether free() was called.", NULL},
    {"T", (getter)get_transposed, NULL, "A view with the axes reversed.", NULL},
    {"__cuda_array_interface__", (getter)get_interface, NULL,
     "The CUDA array interface, version 3.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef array_methods[] = {
    {"numpy", (PyCFunction)array_numpy, METH_NOARGS, numpy_doc},
    {"copy_from", (PyCFunction)array_copy_from, METH_O, copy_from_doc},
    {"reshape", (PyCFunction)array_reshape, METH_VARARGS, reshape_doc},
    {"free", (PyCFunction)array_free, METH_NOARGS, free_doc},
    {"__enter__", array_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)array_exit, METH_VARARGS, NULL},
    {"__array__", (PyCFunction)(void (*)(void))array_array,
     METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack__", (PyCFunction)(void (*)(void))array_dlpack,
     METH_VARARGS | METH_KEYWORDS, dlpack_doc},
    {"__dlpack_device__", (PyCFunction)array_dlpack_device, METH_NOARGS, NULL},
    {"_repr_html_", (PyCFunction)array_repr_html, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    array_doc,
    "An array in the memory of a GPU, or of the simulator.\n\n"
    "Made by asdevice() and by operators on device arrays.  It has a shape, a\n"
    "dtype and strides, basic indexing (views), and numpy() to copy it to the\n"
    "host; for arithmetic hand it to another library, at no cost:\n"
    "cupy.from_dlpack(x), torch.from_dlpack(x).  Memory goes back to the\n"
    "device's pool with the last view, or at the end of `with x:`.");

static PyType_Slot array_slots[] = {
    {Py_tp_doc, (void *)array_doc},
    {Py_tp_dealloc, (void *)array_dealloc},
    {Py_tp_repr, (void *)array_repr},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, attributes},
    {Py_mp_length, (void *)array_length},
    {Py_sq_length, (void *)array_length},
    {Py_sq_item, (void *)array_item},
    {Py_mp_subscript, (void *)array_subscript},
    {Py_nb_bool, (void *)array_truth},
    {0, NULL},
};

static PyType_Spec array_spec = {
    .name = "gpuopt.DeviceArray",
    .basicsize = sizeof(gpo_device_array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
};

/* ---- asdevice and empty_pinned ---- */

PyDoc_STRVAR(
    asdevice_doc,
    "asdevice(x, *, device=None, backend=None, dtype=None, stream=None)\n--\n\n"
    "An array on the GPU as a DeviceArray: x copied there, or x itself.\n\n"
    "A host array is copied; it may be changed once the call is back.  An array\n"
    "that is on that device already is shared, whatever library it is of.\n"
    "backend is 'cuda' (default) or 'sim', whose arrays live in the simulator's\n"
    "memory and need no GPU.  dtype converts a host array first.");

/* A host array onto a device. */
static PyObject *
upload_new(PyObject *object, gpo_dtype dtype, gpo_backend_id id, int device,
           void *stream, PyObject *keeper)
{
    gpo_array array;
    PyArrayObject *host = host_array(object, "x", &array);
    if (host && dtype != GPO_NONE && dtype != array.dtype) {
        PyArrayObject *converted = gpo_array_converted(host, dtype);
        Py_DECREF((PyObject *)host);
        host = converted;
        array.dtype = dtype;
    }
    gpo_device_array *self =
        host ? empty_like(&array, id, device, stream, keeper, "asdevice") : NULL;
    if (self && !fill(self, host, "asdevice")) {
        Py_CLEAR(self);
    }
    Py_XDECREF((PyObject *)host);
    return (PyObject *)self;
}

/* An array that is on a device already, as a DeviceArray. */
static PyObject *
share(PyObject *object, gpo_foreign *foreign, gpo_dtype dtype, int id, int device,
      const void *const *stream)
{
    gpo_array array;
    if (!gpo_foreign_wrap(object, "asdevice", "x", stream, &array, foreign)) {
        return NULL;
    }
    PyObject *self = NULL;
    if (foreign->id == GPO_CPU) {
        PyArrayObject *host = gpo_foreign_ndarray(&array, foreign);
        const gpo_backend_id to = id < 0 ? GPO_CUDA : (gpo_backend_id)id;
        if (host && gpo_check_device(to, device < 0 ? 0 : device)) {
            self = upload_new((PyObject *)host, dtype, to, device < 0 ? 0 : device,
                              stream ? (void *)*stream : NULL, NULL);
        }
        Py_XDECREF((PyObject *)host);
    }
    else if ((id >= 0 && id != (int)foreign->id) ||
             (device >= 0 && device != foreign->device)) {
        PyErr_Format(
            PyExc_ValueError,
            "x is on %s:%d, not on %s:%d; gpuopt copies no array between devices",
            gpo_backend_names[foreign->id], foreign->device,
            gpo_backend_names[id < 0 ? foreign->id : (gpo_backend_id)id],
            device < 0 ? foreign->device : device);
    }
    else if (dtype != GPO_NONE && dtype != array.dtype) {
        PyErr_Format(PyExc_TypeError,
                     "dtype= converts host arrays; x is on %s:%d and has dtype '%s'",
                     gpo_backend_names[foreign->id], foreign->device,
                     gpo_dtypes[array.dtype].name);
    }
    else if (foreign->family == GPO_OWN) {
        self = Py_NewRef(object);
    }
    else {
        self = gpo_device_array_new(foreign->id, gpo_backend_get(foreign->id),
                                    foreign->device,
                                    foreign->has_stream ? foreign->stream
                                    : stream            ? (void *)*stream
                                                        : NULL,
                                    NULL, array.data, foreign->keep, &array);
        if (self) {
            ((gpo_device_array *)self)->readonly = foreign->readonly;
        }
    }
    Py_XDECREF(foreign->keep);
    return self;
}

static PyObject *
asdevice(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *names[] = {"x", "device", "backend", "dtype", "stream", NULL};
    PyObject *object, *device_object = Py_None, *backend_object = Py_None;
    PyObject *dtype_object = Py_None, *stream_object = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOOO:asdevice", names, &object,
                                     &device_object, &backend_object, &dtype_object,
                                     &stream_object)) {
        return NULL;
    }
    int device = -1, id = -1;
    gpo_dtype dtype = GPO_NONE;
    void *stream = NULL;
    if (device_object != Py_None) {
        const long number = PyLong_AsLong(device_object);
        if (number == -1 && PyErr_Occurred()) {
            return NULL;
        }
        device = number < 0 || number > 1 << 20 ? 1 << 20 : (int)number;
    }
    if (backend_object != Py_None) {
        id = gpo_backend_from_name(backend_object);
        if (id == GPO_CPU) {
            PyErr_SetString(PyExc_ValueError,
                            "backend must be 'cuda' or 'sim' (got 'cpu')");
        }
        if (id < 0 || id == GPO_CPU) {
            return NULL;
        }
    }
    if (dtype_object != Py_None) {
        dtype = gpo_dtype_from_object(dtype_object, "asdevice");
        if (dtype == GPO_NONE) {
            return NULL;
        }
    }
    const int given = gpo_stream_handle(stream_object, "asdevice", &stream);
    gpo_foreign foreign;
    const int family = given < 0 ? -1 : gpo_family_of(object, &foreign);
    if (family < 0) {
        return NULL;
    }
    if (family != GPO_HOST) {
        const void *handle = stream;
        return share(object, &foreign, dtype, id, device, given ? &handle : NULL);
    }
    const gpo_backend_id to = id < 0 ? GPO_CUDA : (gpo_backend_id)id;
    device = device < 0 ? 0 : device;
    if (!gpo_check_device(to, device) || !gpo_stream_fits(stream_object, to, device)) {
        return NULL;
    }
    PyObject *keeper = given ? stream_object : gpo_stream_current(to, device, &stream);
    return upload_new(object, dtype, to, device, stream, keeper);
}

static void
pinned_capsule_free(PyObject *capsule)
{
    gpo_device_cuda.pinned_free(PyCapsule_GetPointer(capsule, "gpuopt.pinned"));
}

PyDoc_STRVAR(
    empty_pinned_doc,
    "empty_pinned(shape, dtype=None)\n--\n\n"
    "A new, uninitialised ndarray in pinned host memory; float64 by default.\n\n"
    "The GPU copies from and to it without a detour.  Pinning costs much more\n"
    "than plain memory and is taken from the whole machine: make such an array\n"
    "once and reuse it.  Raises CudaError without a GPU.");

/* A shape, an int or a sequence of ints; its length, -1 with an exception set. */
static int
parse_shape(PyObject *object, npy_intp shape[GPO_MAX_DIMS])
{
    PyObject *items =
        PyIndex_Check(object) ? PyTuple_Pack(1, object) : PySequence_Tuple(object);
    const Py_ssize_t n = items ? PyTuple_Size(items) : -1;
    if (n > GPO_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "maximum supported dimension is %d",
                     GPO_MAX_DIMS);
    }
    for (Py_ssize_t d = 0; d < n && !PyErr_Occurred(); d++) {
        shape[d] = PyNumber_AsSsize_t(PyTuple_GetItem(items, d), PyExc_ValueError);
        if (shape[d] < 0 && !PyErr_Occurred()) {
            PyErr_SetString(PyExc_ValueError, "negative dimensions are not allowed");
        }
    }
    Py_XDECREF(items);
    return PyErr_Occurred() ? -1 : (int)n;
}

/* An ndarray over pinned memory it frees at its end; steals `descr`. */
static PyObject *
pinned_array(PyArray_Descr *descr, int ndim, npy_intp *shape, size_t bytes)
{
    gpo_task task;
    void *memory = NULL;
    gpo_task_init(&task, "empty_pinned", &gpo_backend_cuda, 0, NULL);
    gpo_status status = gpo_backend_cuda.begin(&task.call);
    if (!status) {
        status = gpo_device_cuda.pinned_new(&task.call, bytes ? bytes : 1, &memory);
        gpo_backend_cuda.end(&task.call);
    }
    if (status) {
        Py_DECREF((PyObject *)descr);
        return gpo_raise(&task.call, status);
    }
    PyObject *capsule = PyCapsule_New(memory, "gpuopt.pinned", pinned_capsule_free);
    if (!capsule) {
        gpo_device_cuda.pinned_free(memory);
        Py_DECREF((PyObject *)descr);
        return NULL;
    }
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, NULL,
                                           memory, NPY_ARRAY_CARRAY, NULL);
    if (!array) {
        Py_DECREF(capsule);
    }
    else if (PyArray_SetBaseObject((PyArrayObject *)array, capsule) < 0) { /* steals */
        Py_CLEAR(array);
    }
    return array;
}

static PyObject *
empty_pinned(PyObject *module, PyObject *args, PyObject *kwargs)
{
    (void)module;
    static char *names[] = {"shape", "dtype", NULL};
    PyObject *shape_object, *dtype = NULL;
    npy_intp shape[GPO_MAX_DIMS];
    PyArray_Descr *descr = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:empty_pinned", names,
                                     &shape_object, &dtype)) {
        return NULL;
    }
    const int ndim = parse_shape(shape_object, shape);
    if (ndim < 0 || !gpo_check_available(GPO_CUDA)) {
        return NULL;
    }
    if (!dtype || dtype == Py_None) {
        descr = PyArray_DescrFromType(NPY_DOUBLE);
    }
    else if (!PyArray_DescrConverter(dtype, &descr)) {
        return NULL;
    }
    size_t bytes = (size_t)PyDataType_ELSIZE(descr);
    bool fits = true;
    for (int d = 0; d < ndim; d++) {
        fits = fits && !__builtin_mul_overflow(bytes, (size_t)shape[d], &bytes);
    }
    if (PyDataType_REFCHK(descr) || !fits) {
        PyErr_SetString(fits ? PyExc_TypeError : PyExc_ValueError,
                        fits ? "pinned memory cannot hold Python objects"
                             : "array is too big; its size overflows");
        Py_DECREF((PyObject *)descr);
        return NULL;
    }
    return pinned_array(descr, ndim, shape, bytes);
}

static PyMethodDef methods[] = {
    {"asdevice", (PyCFunction)(void (*)(void))asdevice, METH_VARARGS | METH_KEYWORDS,
     asdevice_doc},
    {"empty_pinned", (PyCFunction)(void (*)(void))empty_pinned,
     METH_VARARGS | METH_KEYWORDS, empty_pinned_doc},
    {NULL, NULL, 0, NULL},
};

int
gpo_device_array_init(PyObject *module)
{
    gpo_py.device_array =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &array_spec, NULL);
    if (!gpo_py.device_array ||
        PyObject_SetAttrString((PyObject *)gpo_py.device_array, "__array_ufunc__",
                               Py_None) < 0 ||
        PyModule_AddType(module, gpo_py.device_array) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, methods);
}
