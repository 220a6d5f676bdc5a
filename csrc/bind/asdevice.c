/*
 * asdevice.c  asdevice(), which makes a DeviceArray, and empty_pinned(), which makes an
 * ndarray that the GPU copies from directly.
 */
#include "array.h"
#include "backends.h"
#include "device_array.h"
#include "errors.h"
#include "exchange.h"
#include "module.h"
#include "options.h"
#include "stream.h"
#include "task.h"

/* ---- asdevice ---- */

#define ANY_DEVICE INT64_MIN /* device= was not given */

PyDoc_STRVAR(
    asdevice_doc,
    "asdevice(x, *, device=None, backend=None, dtype=None, stream=None)\n--\n\n"
    "An array on the GPU as a DeviceArray: x copied there, or x itself.\n\n"
    "A host array is copied, and so is one on another GPU if device= asks for it;\n"
    "it may be changed once the call is back.  An array that is on that device\n"
    "already is shared, whatever library it is of.\n"
    "What is more than its memory (masks, units, gradients, conjugate bits) is\n"
    "refused with TypeError, as by every operator: see help(gpuopt).\n"
    "backend is 'cuda' (default) or 'sim', whose arrays live in the simulator's\n"
    "memory and need no GPU.  dtype converts a host array first.");

/* A new DeviceArray with a copy of a host array. */
static PyObject *
upload_new(PyObject *object, gpo_dtype dtype, gpo_backend_id id, int device,
           void *stream, PyObject *stream_owner)
{
    gpo_array array;
    PyArrayObject *host = gpo_host_array(object, "x", &array);
    if (host && dtype != GPO_NONE && dtype != array.dtype) {
        PyArrayObject *converted = gpo_array_converted(host, dtype);
        Py_DECREF((PyObject *)host);
        host = converted;
        array.dtype = dtype;
    }
    gpo_device_array *self = host ? gpo_device_array_empty(&array, id, device, stream,
                                                           stream_owner, "asdevice")
                                  : NULL;
    if (self && !gpo_device_array_fill(self, host, "asdevice")) {
        Py_CLEAR(self);
    }
    Py_XDECREF((PyObject *)host);
    return (PyObject *)self;
}

/* A new DeviceArray on `device` with a copy of an array on another one. */
static PyObject *
copy_across(const gpo_array *array, const gpo_foreign *foreign, int64_t device,
            const void *const *given, PyObject *stream_owner)
{
    void *stream = given ? (void *)*given : NULL;
    const int at = (int)device;
    if (!gpo_check_device(foreign->id, device) ||
        (given && !gpo_stream_fits(stream_owner, foreign->id, at))) {
        return NULL;
    }
    if (!given) {
        stream_owner = gpo_stream_current(foreign->id, at, &stream);
    }
    gpo_device_array *self = gpo_device_array_empty(array, foreign->id, at, stream,
                                                    stream_owner, "asdevice");
    if (self &&
        !gpo_device_array_fill_across(self, array, foreign->device, "asdevice")) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

/* A foreign array as a DeviceArray, copied only from the host or another device;
   `stream_owner` is of `stream`. */
static PyObject *
share(PyObject *object, gpo_foreign *foreign, gpo_dtype dtype, int id, int64_t device,
      const void *const *stream, PyObject *stream_owner)
{
    gpo_array array;
    if (!gpo_foreign_wrap(object, "asdevice", "x", stream, &array, foreign)) {
        return NULL;
    }
    PyObject *self = NULL;
    if (foreign->id == GPO_CPU) {
        PyArrayObject *host = gpo_foreign_ndarray(&array, foreign);
        const gpo_backend_id to = id < 0 ? GPO_CUDA : (gpo_backend_id)id;
        const int64_t at = device == ANY_DEVICE ? 0 : device;
        if (host && gpo_check_device(to, at)) {
            self = upload_new((PyObject *)host, dtype, to, (int)at,
                              stream ? (void *)*stream : NULL, stream_owner);
        }
        Py_XDECREF((PyObject *)host);
    }
    else if (id >= 0 && id != (int)foreign->id) {
        PyErr_Format(PyExc_ValueError,
                     "x is on %s:%d, not on %s; copy it by way of the host: x.numpy()",
                     gpo_backend_names[foreign->id], foreign->device,
                     gpo_backend_names[id]);
    }
    else if (dtype != GPO_NONE && dtype != array.dtype) {
        PyErr_Format(PyExc_TypeError,
                     "dtype= converts host arrays; x is on %s:%d and has dtype '%s'",
                     gpo_backend_names[foreign->id], foreign->device,
                     gpo_dtypes[array.dtype].name);
    }
    else if (device != ANY_DEVICE && device != foreign->device) {
        self = copy_across(&array, foreign, device, stream, stream_owner);
    }
    else if (foreign->family == GPO_OWN) {
        self = Py_NewRef(object);
    }
    else {
        self = gpo_device_array_new(
            foreign->id, gpo_backend_get(foreign->id), foreign->device,
            foreign->has_stream ? foreign->stream
            : stream            ? (void *)*stream
                                : NULL,
            foreign->has_stream ? foreign->stream_owner : stream_owner, array.data,
            foreign->keep, &array);
        if (self) {
            ((gpo_device_array *)self)->readonly = foreign->readonly;
        }
    }
    gpo_foreign_clear(foreign);
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
    int64_t device = ANY_DEVICE;
    int id = -1;
    gpo_dtype dtype = GPO_NONE;
    void *stream = NULL;
    if (device_object != Py_None) {
        if (!gpo_int_parse(device_object, "asdevice", "device", &device)) {
            return NULL;
        }
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
        return share(object, &foreign, dtype, id, device, given ? &handle : NULL,
                     given ? stream_object : NULL);
    }
    const gpo_backend_id to = id < 0 ? GPO_CUDA : (gpo_backend_id)id;
    if (!gpo_check_device(to, device == ANY_DEVICE ? 0 : device)) {
        return NULL;
    }
    const int at = device == ANY_DEVICE ? 0 : (int)device;
    if (!gpo_stream_fits(stream_object, to, at)) {
        return NULL;
    }
    PyObject *stream_owner =
        given ? stream_object : gpo_stream_current(to, at, &stream);
    return upload_new(object, dtype, to, at, stream, stream_owner);
}

/* ---- empty_pinned ---- */

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

/* Reads a shape, an int or a sequence of ints.  Returns its length; -1 on failure. */
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

/* An ndarray that owns its pinned memory; steals `descr`. */
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
gpo_asdevice_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
