/*
 * device_array.c  The class gpuopt.DeviceArray: memory of a GPU, or of the simulator,
 * with shape, dtype and strides; no arithmetic.  Order: attributes, views, methods, the
 * class.
 * See device_memory.c for its memory, device_scalar.c for its conversion to a number,
 * export.c for its export to other libraries, asdevice.c for its creation.
 */
#include "device_array.h"

#include "array.h"
#include "backends.h"
#include "module.h"
#include "objects.h"

static void
array_dealloc(gpo_device_array *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    gpo_memory_release(self->memory);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- attributes ---- */

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
    return (PyObject *)gpo_device_array_view(self->memory, self->readonly, &turned);
}

static PyObject *
array_repr(gpo_device_array *self)
{
    PyObject *shape = gpo_device_array_shape(self, NULL);
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
    PyObject *shape = gpo_device_array_shape(self, NULL);
    PyObject *strides = gpo_device_array_strides(self, NULL);
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
        else if (item == Py_Ellipsis || !item) { /* axes without an item */
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
    result = (PyObject *)gpo_device_array_view(self->memory, self->readonly, &view);
fail:
    Py_DECREF(items);
    return result;
}

/* x[i] for iteration. */
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
    gpo_row_major(&view); /* cannot overflow: the size is unchanged */
    return (PyObject *)gpo_device_array_view(self->memory, self->readonly, &view);
}

/* ---- methods ---- */

PyDoc_STRVAR(numpy_doc, "numpy($self, /)\n--\n\n"
                        "Copy to the host: a new ndarray.  Waits for the array.");

PyDoc_STRVAR(item_doc, "item($self, /)\n--\n\n"
                       "The only element as a Python number.  Waits for the array.");

PyDoc_STRVAR(copy_from_doc,
             "copy_from($self, host, /)\n--\n\n"
             "Overwrite the array with a host array of its shape and dtype.\n\n"
             "The host array may be changed once the call is back.");

/* Whether a host array has the shape and dtype of `self`; false with an exception. */
static bool
fits(gpo_device_array *self, const gpo_array *array)
{
    if (!gpo_same_shape(array, &self->array)) {
        PyObject *is = gpo_shape_tuple(array->ndim, array->shape);
        PyObject *wanted = gpo_device_array_shape(self, NULL);
        if (is && wanted) {
            PyErr_Format(PyExc_ValueError, "host has shape %R, expected %R", is,
                         wanted);
        }
        Py_XDECREF(is);
        Py_XDECREF(wanted);
        return false;
    }
    if (array->dtype != self->array.dtype) {
        PyErr_Format(PyExc_TypeError, "host has dtype '%s', expected '%s'",
                     gpo_dtypes[array->dtype].name, gpo_dtypes[self->array.dtype].name);
        return false;
    }
    return true;
}

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
    PyArrayObject *host = gpo_host_array(object, "host", &array);
    const bool good =
        host && fits(self, &array) && gpo_device_array_fill(self, host, "copy_from");
    Py_XDECREF((PyObject *)host);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(
    copy_to_doc,
    "copy_to($self, host, /)\n--\n\n"
    "Overwrite an ndarray of the array's shape and dtype with its elements.\n\n"
    "Waits for the array.  No new memory is needed if `host` is C-contiguous.");

/* Copies into an ndarray whose elements are apart, by way of a new one. */
static bool
copy_apart(gpo_device_array *self, PyArrayObject *host)
{
    PyArrayObject *packed = gpo_device_array_host(self, "copy_to");
    const bool good = packed && PyArray_CopyInto(host, packed) == 0;
    Py_XDECREF((PyObject *)packed);
    return good;
}

static PyObject *
array_copy_to(gpo_device_array *self, PyObject *object)
{
    gpo_array array;
    PyArrayObject *host = NULL;
    if (!gpo_device_array_usable(self, "copy_to")) {
        return NULL;
    }
    if (!PyArray_Check(object)) {
        PyObject *name = gpo_type_name(object);
        if (name) {
            PyErr_Format(PyExc_TypeError, "host must be a numpy.ndarray, not %U", name);
        }
        Py_XDECREF(name);
        return NULL;
    }
    if (!gpo_array_wrap(object, "host", &array, &host)) {
        return NULL;
    }
    bool good = fits(self, &array);
    if (good && array.data != PyArray_DATA((PyArrayObject *)object)) {
        PyErr_SetString(PyExc_ValueError,
                        "host must be aligned and in native byte order");
        good = false;
    }
    else if (good && PyArray_FailUnlessWriteable((PyArrayObject *)object, "host") < 0) {
        good = false;
    }
    if (good) {
        good = PyArray_IS_C_CONTIGUOUS(host)
                   ? gpo_device_array_download(self, host, "copy_to")
                   : copy_apart(self, host);
    }
    Py_DECREF((PyObject *)host);
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
    gpo_memory_free(self->memory);
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

PyDoc_STRVAR(dlpack_doc,
             "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, "
             "copy=None)\n--\n\n"
             "Share the memory through DLPack.  dl_device=(1, 0) copies to the host.");

/* ---- the class ---- */

static PyGetSetDef attributes[] = {
    {"shape", (getter)gpo_device_array_shape, NULL, "Lengths of the axes, a tuple.",
     NULL},
    {"strides", (getter)gpo_device_array_strides, NULL,
     "Steps of the axes in bytes, a tuple.", NULL},
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
    {"__cuda_array_interface__", (getter)gpo_device_array_interface, NULL,
     "The CUDA array interface, version 3.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef array_methods[] = {
    {"numpy", (PyCFunction)gpo_device_array_numpy, METH_NOARGS, numpy_doc},
    {"item", (PyCFunction)gpo_device_array_item, METH_NOARGS, item_doc},
    {"copy_from", (PyCFunction)array_copy_from, METH_O, copy_from_doc},
    {"copy_to", (PyCFunction)array_copy_to, METH_O, copy_to_doc},
    {"reshape", (PyCFunction)array_reshape, METH_VARARGS, reshape_doc},
    {"free", (PyCFunction)array_free, METH_NOARGS, free_doc},
    {"__enter__", array_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)array_exit, METH_VARARGS, NULL},
    {"__complex__", (PyCFunction)gpo_device_array_complex, METH_NOARGS, NULL},
    {"__array__", (PyCFunction)(void (*)(void))gpo_device_array_array,
     METH_VARARGS | METH_KEYWORDS, NULL},
    {"__dlpack__", (PyCFunction)(void (*)(void))gpo_device_array_dlpack,
     METH_VARARGS | METH_KEYWORDS, dlpack_doc},
    {"__dlpack_device__", (PyCFunction)gpo_device_array_dlpack_device, METH_NOARGS,
     NULL},
    {"_repr_html_", (PyCFunction)array_repr_html, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    array_doc,
    "An array in the memory of a GPU, or of the simulator.\n\n"
    "Made by asdevice() and by operators on device arrays.  It has a shape, a\n"
    "dtype and strides, basic indexing (views), and numpy() to copy it to the\n"
    "host; one of a single element converts to a Python number, float(x) or\n"
    "x.item().  For arithmetic hand it to another library, at no cost:\n"
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
    {Py_nb_bool, (void *)gpo_device_array_truth},
    {Py_nb_float, (void *)gpo_device_array_float},
    {Py_nb_int, (void *)gpo_device_array_int},
    {Py_nb_index, (void *)gpo_device_array_index},
    {0, NULL},
};

static PyType_Spec array_spec = {
    .name = "gpuopt.DeviceArray",
    .basicsize = sizeof(gpo_device_array),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = array_slots,
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
    return 0;
}
