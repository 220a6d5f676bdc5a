/*
 * overlap.c  Checks of out=, on the host and on a device: its shape, and whether it
 * shares memory.  Order: host arrays and arrays on a device, errors.
 */
#include "overlap.h"

#include "array.h"

bool
gpo_ndarray_has_shape(PyArrayObject *out, const gpo_array *wanted)
{
    if (PyArray_NDIM(out) != wanted->ndim) {
        return false;
    }
    for (int d = 0; d < wanted->ndim; d++) {
        if (PyArray_DIM(out, d) != wanted->shape[d]) {
            return false;
        }
    }
    return true;
}

/* The addresses [*low, *high) an ndarray spans. */
static void
span(PyArrayObject *a, const char **low, const char **high)
{
    *low = *high = PyArray_BYTES(a);
    if (PyArray_SIZE(a) == 0) {
        return;
    }
    *high += PyArray_ITEMSIZE(a);
    for (int d = 0; d < PyArray_NDIM(a); d++) {
        const npy_intp reach = (PyArray_DIM(a, d) - 1) * PyArray_STRIDE(a, d);
        *(reach < 0 ? low : high) += reach;
    }
}

/* numpy.shares_memory(a, b); true if that is too hard to decide or fails. */
static bool
ask_shared(PyArrayObject *a, PyArrayObject *b)
{
    /* Plain views, because a subclass could run its own code. */
    PyObject *x = PyArray_View(a, NULL, &PyArray_Type);
    PyObject *y = PyArray_View(b, NULL, &PyArray_Type);
    PyObject *answer = NULL;
    if (x && y) {
        answer = PyObject_CallFunction(gpo_py.shares_memory, "OOi", x, y, 100000);
    }
    const bool shared = !answer || PyObject_IsTrue(answer) != 0;
    PyErr_Clear();
    Py_XDECREF(answer);
    Py_XDECREF(x);
    Py_XDECREF(y);
    return shared;
}

bool
gpo_ndarrays_overlap(PyArrayObject *a, PyArrayObject *b)
{
    const char *a_low, *a_high, *b_low, *b_high;
    span(a, &a_low, &a_high);
    span(b, &b_low, &b_high);
    return a_low != a_high && b_low != b_high && a_high > b_low && b_high > a_low &&
           ask_shared(a, b);
}

bool
gpo_arrays_overlap(const gpo_array *a, const gpo_array *b)
{
    int64_t a_low, a_high, b_low, b_high;
    gpo_array_extent(a, &a_low, &a_high);
    gpo_array_extent(b, &b_low, &b_high);
    const char *x = a->data, *y = b->data;
    return a->size > 0 && b->size > 0 && x + a_low < y + b_high &&
           y + b_low < x + a_high;
}

bool
gpo_ndarrays_same(PyArrayObject *a, PyArrayObject *b)
{
    bool same = PyArray_DATA(a) == PyArray_DATA(b) &&
                PyArray_NDIM(a) == PyArray_NDIM(b) &&
                PyArray_EquivTypes(PyArray_DESCR(a), PyArray_DESCR(b));
    for (int d = 0; same && d < PyArray_NDIM(a); d++) {
        same = PyArray_DIM(a, d) == PyArray_DIM(b, d) &&
               (PyArray_DIM(a, d) <= 1 || PyArray_STRIDE(a, d) == PyArray_STRIDE(b, d));
    }
    return same;
}

bool
gpo_arrays_same(const gpo_array *a, const gpo_array *b)
{
    bool same = a->data == b->data && a->dtype == b->dtype && gpo_same_shape(a, b);
    for (int d = 0; same && d < a->ndim; d++) {
        same = a->shape[d] <= 1 || a->strides[d] == b->strides[d];
    }
    return same;
}

/* ---- errors ---- */

bool
gpo_raise_out_shape(PyObject *shape, const gpo_array *wanted)
{
    PyObject *should = gpo_shape_tuple(wanted->ndim, wanted->shape);
    if (shape && should) {
        PyErr_Format(PyExc_ValueError, "out has shape %R, expected %R", shape, should);
    }
    Py_XDECREF(shape);
    Py_XDECREF(should);
    return false;
}

bool
gpo_raise_out_overlap(const frame *f, int k)
{
    PyErr_Format(PyExc_ValueError, "out shares memory with %s",
                 f->binding->op->args[k].name);
    return false;
}

bool
gpo_raise_outs_overlap(const frame *f)
{
    PyErr_Format(PyExc_ValueError,
                 "%s(): the arrays of out share memory with each other",
                 f->binding->op->name);
    return false;
}
