/*
 * exchange.c  Arrays of other libraries as inputs and out=, without importing or
 * linking any: DLPack's C exchange table, its Python protocol, the CUDA array
 * interface.
 * Order: dtypes, families, DLPack tensors, protocols, the CUDA array interface, CPU
 * arrays.
 * See results.c for results, retain.c for memory that is still being read.
 */
#include "exchange.h"

#include "array.h"
#include "backends.h"
#include "device_array.h"
#include "errors.h"
#include "gate.h"
#include "objects.h"
#include "stream.h"
#include "task.h"

#include <string.h>

/* ---- dtypes ---- */

dl_dtype
gpo_dlpack_dtype(gpo_dtype dtype)
{
    const gpo_dtype_info *info = &gpo_dtypes[dtype];
    uint8_t code = DL_FLOAT;
    switch (info->kind) {
        case 'b':
            code = DL_BOOL;
            break;
        case 'i':
            code = DL_INT;
            break;
        case 'u':
            code = DL_UINT;
            break;
        case 'c':
            code = DL_COMPLEX;
            break;
        default:
            code = dtype == GPO_BF16 ? DL_BFLOAT : DL_FLOAT;
            break;
    }
    return (dl_dtype){code, (uint8_t)(8 * info->bytes), 1};
}

static gpo_dtype
dtype_from_dlpack(dl_dtype dtype)
{
    for (int d = 0; d < GPO_NDTYPES; d++) {
        const dl_dtype known = gpo_dlpack_dtype((gpo_dtype)d);
        if (known.code == dtype.code && known.bits == dtype.bits && dtype.lanes == 1) {
            return (gpo_dtype)d;
        }
    }
    return GPO_NONE;
}

/* ---- families ---- */

/* The DLPack device of an object, (type, id); false with an exception set. */
static bool
device_of_object(PyObject *object, dl_device *device)
{
    PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    int type = 0, id = 0;
    const bool good = pair && PyTuple_Check(pair) && PyTuple_Size(pair) == 2;
    if (good) {
        PyObject *first =
            PyNumber_Long(PyTuple_GetItem(pair, 0)); /* in some libraries an enum */
        type = first ? (int)PyLong_AsLong(first) : -1;
        id = (int)PyLong_AsLong(PyTuple_GetItem(pair, 1));
        Py_XDECREF(first);
    }
    else if (pair) {
        PyErr_SetString(PyExc_TypeError,
                        "__dlpack_device__() must give a pair of ints");
    }
    Py_XDECREF(pair);
    *device = (dl_device){type, id};
    return !PyErr_Occurred();
}

static bool
is_gpu(int type)
{
    return type == DL_CUDA || type == DL_CUDA_MANAGED;
}

int
gpo_family_of(PyObject *object, gpo_foreign *out)
{
    PyTypeObject *type = Py_TYPE(object);
    if (PyFloat_CheckExact(object) || PyLong_CheckExact(object) ||
        PyList_CheckExact(object) || PyTuple_CheckExact(object) ||
        PyArray_Check(object) || PyArray_CheckScalar(object)) {
        return GPO_HOST;
    }
    memset(out, 0, sizeof *out);
    out->object = object;
    if (gpo_device_array_check(object)) {
        return out->family = GPO_OWN;
    }
    out->api = gpo_gate_table(object);
    if (out->api) {
        return out->family = GPO_EXCHANGE;
    }
    if (PyErr_Occurred()) {
        return -1;
    }
    int family = GPO_HOST;
    PyObject *dlpack = gpo_lookup((PyObject *)type, "__dlpack__");
    if (dlpack) {
        PyObject *module = gpo_lookup((PyObject *)type, "__module__");
        dl_device device;
        if (gpo_gate_is_torch(object) ||
            (module && gpo_is_of_package(module, "torch"))) {
            family = GPO_TORCH;
        }
        else if (module && gpo_is_of_package(module, "cupy")) {
            family = GPO_CUPY;
        }
        else if (module && (gpo_is_of_package(module, "jaxlib") ||
                            gpo_is_of_package(module, "jax"))) {
            family = GPO_JAX;
        }
        else if (!device_of_object(object, &device)) {
            family = -1;
        }
        else if (is_gpu(device.type)) {
            family = GPO_INTERFACE;
        }
        Py_XDECREF(module);
        Py_DECREF(dlpack);
    }
    else if (!PyErr_Occurred()) {
        PyObject *interface = gpo_lookup((PyObject *)type, "__cuda_array_interface__");
        if (interface) {
            family = GPO_INTERFACE;
            Py_DECREF(interface);
        }
    }
    out->family = (gpo_family)family;
    return PyErr_Occurred() ? -1 : family;
}

/* ---- DLPack tensors ---- */

/* Fills `array` and the device of `foreign`; false with an exception set. */
static bool
read_tensor(const dl_tensor *tensor, const char *argument, gpo_array *array,
            gpo_foreign *foreign)
{
    array->dtype = dtype_from_dlpack(tensor->dtype);
    if (array->dtype == GPO_NONE) {
        PyErr_Format(PyExc_TypeError,
                     "%s has a dtype that gpuopt does not support (DLPack code %d, %d "
                     "bits, %d lanes)",
                     argument, tensor->dtype.code, tensor->dtype.bits,
                     tensor->dtype.lanes);
        return false;
    }
    if (tensor->ndim < 0 || tensor->ndim > GPO_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s has %d dimensions; at most %d are possible",
                     argument, tensor->ndim, GPO_MAX_DIMS);
        return false;
    }
    const size_t bytes = (size_t)gpo_dtypes[array->dtype].bytes;
    array->data = tensor->data ? (char *)tensor->data + tensor->byte_offset : NULL;
    array->ndim = tensor->ndim;
    array->size = 1;
    array->present = true;
    for (int d = 0; d < array->ndim; d++) {
        array->shape[d] = tensor->shape[d];
        array->size *= tensor->shape[d];
        array->strides[d] = tensor->strides ? tensor->strides[d] : 0;
    }
    if (!tensor->strides) {
        gpo_row_major(array);
    }
    if (tensor->device.type == DL_CPU || tensor->device.type == DL_CUDA_HOST) {
        foreign->id = GPO_CPU;
        foreign->device = 0;
    }
    else if (is_gpu(tensor->device.type)) {
        foreign->id = GPO_CUDA;
        foreign->device = tensor->device.id;
    }
    else {
        PyErr_Format(
            PyExc_TypeError,
            "%s is on a device of DLPack type %d; gpuopt knows the CPU and CUDA",
            argument, (int)tensor->device.type);
        return false;
    }
    /* Misaligned complex numbers of the host are copied later: see gpo_array_view. */
    const bool halves = array->dtype == GPO_C64 || array->dtype == GPO_C128;
    const size_t align = foreign->id == GPO_CPU && halves ? bytes / 2 : bytes;
    if (array->size > 0 && (uintptr_t)array->data % align != 0) {
        PyErr_Format(PyExc_ValueError, "%s is not aligned to its dtype", argument);
        return false;
    }
    return true;
}

static void
versioned_free(PyObject *capsule)
{
    PyObject *type, *value, *traceback;
    dl_versioned *tensor = PyCapsule_GetPointer(capsule, "gpuopt.versioned");
    PyErr_Fetch(&type, &value, &traceback); /* a deleter may run Python code */
    if (tensor && tensor->deleter) {
        tensor->deleter(tensor);
    }
    PyErr_Restore(type, value, traceback);
}

static void
managed_free(PyObject *capsule)
{
    PyObject *type, *value, *traceback;
    dl_managed *tensor = PyCapsule_GetPointer(capsule, "gpuopt.managed");
    PyErr_Fetch(&type, &value, &traceback); /* a deleter may run Python code */
    if (tensor && tensor->deleter) {
        tensor->deleter(tensor);
    }
    PyErr_Restore(type, value, traceback);
}

/* Takes over a versioned tensor: foreign->keep owns it. */
static bool
take_versioned(dl_versioned *tensor, const char *argument, gpo_array *array,
               gpo_foreign *foreign)
{
    foreign->keep = PyCapsule_New(tensor, "gpuopt.versioned", versioned_free);
    if (!foreign->keep) {
        if (tensor->deleter) {
            tensor->deleter(tensor);
        }
        return false;
    }
    if (tensor->version.major != DLPACK_MAJOR) {
        PyErr_Format(PyExc_BufferError,
                     "%s comes in DLPack version %u.%u; gpuopt knows version %d",
                     argument, tensor->version.major, tensor->version.minor,
                     DLPACK_MAJOR);
        return false;
    }
    foreign->readonly = tensor->flags & DL_READ_ONLY;
    return read_tensor(&tensor->tensor, argument, array, foreign);
}

/* ---- protocols ---- */

static bool
wrap_own(gpo_device_array *self, const char *function, gpo_array *array,
         gpo_foreign *foreign)
{
    if (!gpo_device_array_usable(self, function)) {
        return false;
    }
    *array = self->array;
    foreign->id = self->memory->id;
    foreign->device = self->memory->device;
    foreign->readonly = self->readonly;
    foreign->retain = self->memory->owner != NULL;
    foreign->has_stream = true;
    foreign->stream = self->memory->stream;
    foreign->keep = Py_NewRef((PyObject *)self);
    foreign->stream_owner = Py_XNewRef(self->memory->stream_owner);
    return true;
}

/* NULL, 1 and 2 are handles of default streams, also in torch; 1 means NULL. */
static void *
normal_stream(void *stream)
{
    return (uintptr_t)stream == 1 ? NULL : stream;
}

static bool
wrap_exchange(PyObject *object, const char *argument, gpo_array *array,
              gpo_foreign *foreign)
{
    const dl_exchange *api = foreign->api;
    if (!gpo_gate_class(object, argument)) {
        return false;
    }
    if (api->view_object) {
        dl_tensor tensor;
        if (api->view_object(object, &tensor) != 0) {
            return gpo_gate_explain(object, argument);
        }
        if (!read_tensor(&tensor, argument, array, foreign)) {
            return false;
        }
        foreign->keep = Py_NewRef(object);
    }
    else {
        dl_versioned *tensor = NULL;
        if (api->from_object(object, &tensor) != 0) {
            return gpo_gate_explain(object, argument);
        }
        if (!take_versioned(tensor, argument, array, foreign)) {
            return false;
        }
    }
    /* Nothing has been read yet, and now the dtype is known. */
    if (!gpo_gate_tensor(object, argument, gpo_dtypes[array->dtype].kind == 'c',
                         &foreign->detach)) {
        return false;
    }
    if (foreign->id == GPO_CUDA) {
        void *stream = NULL;
        if (api->current_stream(DL_CUDA, foreign->device, &stream) != 0) {
            return false;
        }
        foreign->has_stream = true;
        foreign->stream = normal_stream(stream);
    }
    return true;
}

/* The library's current stream; false with an exception set. */
static bool
current_stream(gpo_foreign *foreign)
{
    static const char *const cupy[] = {"cuda", "get_current_stream", NULL};
    static const char *const torch[] = {"cuda", "current_stream", NULL};
    PyObject *stream = NULL;
    if (foreign->family == GPO_CUPY) {
        stream = gpo_module_call("cupy", cupy, NULL);
    }
    else if (foreign->family == GPO_TORCH) {
        PyObject *device = PyLong_FromLong(foreign->device);
        stream = device ? gpo_module_call("torch", torch, device) : NULL;
        Py_XDECREF(device);
    }
    else {
        return true; /* JAX does not expose its streams */
    }
    const int given =
        stream ? gpo_stream_handle(stream, "stream", &foreign->stream) : -1;
    foreign->stream_owner = stream;
    foreign->has_stream = given == 1;
    return given >= 0;
}

PyObject *
gpo_stream_holder(void *stream, int device)
{
    static const char *const initialized[] = {"cuda", "is_initialized", NULL};
    PyObject *ready =
        gpo_module_call("torch", initialized, NULL); /* current_stream starts CUDA */
    gpo_foreign library[] = {{.family = GPO_CUPY, .device = device},
                             {.family = GPO_TORCH, .device = device}};
    PyObject *holder = NULL;
    const int libraries = ready == Py_True ? 2 : 1;
    PyErr_Clear();
    for (int k = 0; k < libraries && !holder; k++) {
        if (current_stream(&library[k]) && library[k].stream == stream) {
            holder = Py_XNewRef(library[k].stream_owner);
        }
        PyErr_Clear(); /* for example, the library is not loaded */
        gpo_foreign_clear(&library[k]);
    }
    Py_XDECREF(ready);
    return holder;
}

/*
 * object.__dlpack__(...), with the newest keywords first; NULL with an exception set.
 * A torch tensor that requires grad refuses it even if nothing is recorded; `detach`
 * calls it on a detached tensor.
 */
static PyObject *
call_dlpack(PyObject *object, PyObject *stream, bool detach)
{
    PyObject *plain =
        detach ? PyObject_CallMethod(object, "detach", NULL) : Py_NewRef(object);
    PyObject *method = plain ? PyObject_GetAttrString(plain, "__dlpack__") : NULL;
    PyObject *none = PyTuple_New(0);
    PyObject *old = PyDict_New();
    PyObject *capsule = NULL;
    if (method && none && old &&
        (!stream || PyDict_SetItemString(old, "stream", stream) == 0)) {
        PyObject *new = PyDict_Copy(old);
        PyObject *version = Py_BuildValue("(ii)", DLPACK_MAJOR, DLPACK_MINOR);
        if (new &&version && PyDict_SetItemString(new, "max_version", version) == 0) {
            capsule = PyObject_Call(method, none, new);
            if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
                PyErr_Clear(); /* older than max_version */
                capsule = PyObject_Call(method, none, old);
            }
        }
        Py_XDECREF(new);
        Py_XDECREF(version);
    }
    Py_XDECREF(plain);
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(old);
    return capsule;
}

/* Takes the tensor out of a capsule, as its consumer. */
static bool
take_capsule(PyObject *capsule, const char *argument, gpo_array *array,
             gpo_foreign *foreign)
{
    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        dl_versioned *tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
        PyCapsule_SetName(capsule, "used_dltensor_versioned");
        return take_versioned(tensor, argument, array, foreign);
    }
    if (PyCapsule_IsValid(capsule, "dltensor")) {
        dl_managed *tensor = PyCapsule_GetPointer(capsule, "dltensor");
        PyCapsule_SetName(capsule, "used_dltensor");
        foreign->keep = PyCapsule_New(tensor, "gpuopt.managed", managed_free);
        if (!foreign->keep) {
            if (tensor->deleter) {
                tensor->deleter(tensor);
            }
            return false;
        }
        return read_tensor(&tensor->tensor, argument, array, foreign);
    }
    PyErr_Format(PyExc_BufferError, "%s: __dlpack__() gave no DLPack capsule",
                 argument);
    return false;
}

static bool
wrap_dlpack(PyObject *object, const char *argument, const void *const *stream,
            gpo_array *array, gpo_foreign *foreign)
{
    dl_device device;
    if (!device_of_object(object, &device)) {
        if (foreign->family == GPO_JAX &&
            PyErr_ExceptionMatches(PyExc_AttributeError)) {
            PyErr_Format(
                PyExc_TypeError,
                "%s is a JAX tracer (%R), which has no memory yet; call gpuopt "
                "outside of jax.jit and jax.grad",
                argument, (PyObject *)Py_TYPE(object));
        }
        return gpo_gate_explain(object, argument);
    }
    PyObject *number = NULL;
    if (is_gpu(device.type)) {
        foreign->device = device.id;
        if (!gpo_check_device(GPO_CUDA, device.id) || !current_stream(foreign)) {
            return false;
        }
        /* The producer makes this stream wait for its own work. */
        void *consumer = stream ? (void *)*stream : foreign->stream;
        number = PyLong_FromVoidPtr(consumer ? consumer : (void *)1);
        if (!number) {
            return false;
        }
        if (!foreign->has_stream) {
            foreign->has_stream = true;
            foreign->stream = consumer;
            foreign->retain = true;
        }
    }
    PyObject *capsule = call_dlpack(object, number, foreign->detach);
    Py_XDECREF(number);
    const bool good = capsule ? take_capsule(capsule, argument, array, foreign)
                              : gpo_gate_explain(object, argument);
    Py_XDECREF(capsule);
    if (foreign->family == GPO_JAX) {
        foreign->readonly = true; /* immutable, which an old capsule cannot express */
    }
    return good;
}

/* ---- the CUDA array interface ---- */

static bool
read_shape(PyObject *dict, gpo_array *array, const char *argument)
{
    PyObject *shape = PyDict_GetItemString(dict, "shape");
    PyObject *strides = PyDict_GetItemString(dict, "strides");
    const int64_t bytes = gpo_dtypes[array->dtype].bytes;
    if (!shape || !PyTuple_Check(shape) || PyTuple_Size(shape) > GPO_MAX_DIMS ||
        (strides && strides != Py_None &&
         (!PyTuple_Check(strides) || PyTuple_Size(strides) != PyTuple_Size(shape)))) {
        PyErr_Format(PyExc_ValueError,
                     "%s: __cuda_array_interface__ has no valid shape and strides",
                     argument);
        return false;
    }
    array->ndim = (int)PyTuple_Size(shape);
    array->size = 1;
    for (int d = 0; d < array->ndim; d++) {
        array->shape[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
        array->size *= array->shape[d];
        if (strides && strides != Py_None) {
            array->strides[d] = PyLong_AsLongLong(PyTuple_GetItem(strides, d));
            if (array->strides[d] % bytes != 0) {
                PyErr_Format(PyExc_ValueError,
                             "%s has a stride that is no whole number of elements",
                             argument);
                return false;
            }
            array->strides[d] /= bytes;
        }
    }
    if (!strides || strides == Py_None) {
        gpo_row_major(array);
    }
    return !PyErr_Occurred();
}

static bool
read_interface(PyObject *dict, const char *function, const char *argument,
               gpo_array *array, gpo_foreign *foreign)
{
    PyObject *typestr = PyDict_GetItemString(dict, "typestr");
    PyObject *data = PyDict_GetItemString(dict, "data");
    PyObject *mask = PyDict_GetItemString(dict, "mask");
    PyObject *stream = PyDict_GetItemString(dict, "stream");
    if (mask && mask != Py_None) {
        PyErr_Format(PyExc_TypeError, "%s has a mask, which gpuopt does not support",
                     argument);
        return false;
    }
    if (!typestr || !data || !PyTuple_Check(data) || PyTuple_Size(data) != 2) {
        PyErr_Format(PyExc_ValueError,
                     "%s: __cuda_array_interface__ has no valid typestr and data",
                     argument);
        return false;
    }
    array->dtype = gpo_dtype_from_object(typestr, function);
    if (array->dtype == GPO_NONE || !read_shape(dict, array, argument)) {
        return false;
    }
    array->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    array->present = true;
    foreign->readonly = PyObject_IsTrue(PyTuple_GetItem(data, 1)) != 0;
    if (stream && stream != Py_None) {
        foreign->stream = PyLong_AsVoidPtr(stream);
        if (!PyErr_Occurred() && !foreign->stream) {
            PyErr_Format(
                PyExc_ValueError,
                "%s: __cuda_array_interface__ has stream 0, which is ambiguous",
                argument);
        }
        foreign->stream = normal_stream(foreign->stream);
        foreign->has_stream = true;
    }
    foreign->retain = !foreign->has_stream;
    return !PyErr_Occurred();
}

static bool
wrap_interface(PyObject *object, const char *function, const char *argument,
               gpo_array *array, gpo_foreign *foreign)
{
    PyObject *dict = PyObject_GetAttrString(object, "__cuda_array_interface__");
    if (!dict) {
        return false;
    }
    bool good = PyDict_Check(dict);
    if (!good) {
        PyErr_Format(PyExc_TypeError, "%s: __cuda_array_interface__ is no dict",
                     argument);
    }
    good = good && gpo_check_available(GPO_CUDA) &&
           read_interface(dict, function, argument, array, foreign);
    Py_DECREF(dict);
    foreign->id = GPO_CUDA;
    if (good && array->size > 0) { /* the interface does not name the device */
        gpo_task task;
        gpo_task_init(&task, function, &gpo_backend_cuda, 0, NULL);
        gpo_status status = gpo_backend_cuda.begin(&task.call);
        if (!status) {
            status =
                gpo_device_cuda.device_of(&task.call, array->data, &foreign->device);
            gpo_backend_cuda.end(&task.call);
        }
        if (status) {
            gpo_raise(&task.call, status);
            good = false;
        }
    }
    if (good) {
        foreign->keep = Py_NewRef(object);
    }
    return good;
}

bool
gpo_foreign_wrap(PyObject *object, const char *function, const char *argument,
                 const void *const *stream, gpo_array *array, gpo_foreign *foreign)
{
    bool good;
    if (foreign->family != GPO_OWN && foreign->family != GPO_EXCHANGE &&
        !(gpo_gate_class(object, argument) &&
          gpo_gate_tensor(object, argument, true, &foreign->detach))) {
        return false;
    }
    switch (foreign->family) {
        case GPO_OWN:
            good = wrap_own((gpo_device_array *)object, function, array, foreign);
            break;
        case GPO_EXCHANGE:
            good = wrap_exchange(object, argument, array, foreign);
            break;
        case GPO_INTERFACE: {
            PyObject *dlpack = gpo_lookup((PyObject *)Py_TYPE(object), "__dlpack__");
            good = dlpack
                       ? wrap_dlpack(object, argument, stream, array, foreign)
                       : !PyErr_Occurred() &&
                             wrap_interface(object, function, argument, array, foreign);
            Py_XDECREF(dlpack);
            break;
        }
        default:
            good = wrap_dlpack(object, argument, stream, array, foreign);
            break;
    }
    if (good && foreign->id == GPO_CUDA) {
        good = gpo_check_device(GPO_CUDA, foreign->device);
    }
    if (good && foreign->family != GPO_OWN) {
        good = gpo_gate_memory(object, argument, array);
    }
    if (!good) {
        gpo_foreign_clear(foreign);
    }
    array->weak = array->on_host = false;
    return good;
}

void
gpo_foreign_clear(gpo_foreign *foreign)
{
    Py_CLEAR(foreign->keep);
    Py_CLEAR(foreign->stream_owner);
}

/* ---- CPU arrays ---- */

PyArrayObject *
gpo_foreign_ndarray(const gpo_array *array, const gpo_foreign *foreign)
{
    npy_intp shape[GPO_MAX_DIMS], strides[GPO_MAX_DIMS];
    for (int d = 0; d < array->ndim; d++) {
        shape[d] = array->shape[d];
        strides[d] = array->strides[d] * gpo_dtypes[array->dtype].bytes;
    }
    PyArray_Descr *descr = gpo_dtype_descr(array->dtype);
    if (!descr) {
        return NULL;
    }
    static char nothing[16]; /* an empty array may have no address; NumPy needs one */
    PyArrayObject *view = (PyArrayObject *)PyArray_NewFromDescr(
        &PyArray_Type, descr, array->ndim, shape, strides,
        array->data ? array->data : nothing,
        foreign->readonly ? 0 : NPY_ARRAY_WRITEABLE, NULL); /* steals descr */
    if (view && PyArray_SetBaseObject(view, Py_NewRef(foreign->keep)) < 0) {
        Py_CLEAR(view);
    }
    if (view) {
        PyArray_UpdateFlags(view, NPY_ARRAY_UPDATE_ALL);
    }
    return view;
}
