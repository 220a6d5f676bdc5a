/*
 * numbers.c  Python ints among the inputs of a call: their conversion to arrays, and
 * the check that the dtype they take can hold them.
 */
#include "numbers.h"

#include "array.h"

#include <string.h>

PyArrayObject *
gpo_number_take(frame *f, int i, PyObject *object)
{
    const char *name = f->binding->op->args[i].name;
    int side = 0;
    f->any_int = true;
    (void)PyLong_AsLongLongAndOverflow(object, &side);
    if (side == 0) {
        return gpo_array_take(object, name);
    }
    PyObject *nearest = NULL;
    if (side > 0 && (PyLong_AsUnsignedLongLong(object) != (unsigned long long)-1 ||
                     !PyErr_Occurred())) {
        return gpo_array_take(object, name);
    }
    PyErr_Clear();
    nearest = side > 0 ? PyLong_FromUnsignedLongLong(UINT64_MAX)
                       : PyLong_FromLongLong(INT64_MIN);
    PyArrayObject *array = nearest ? gpo_array_take(nearest, name) : NULL;
    f->beyond[i] = true;
    Py_XDECREF(nearest);
    return array;
}

/* Whether an integer dtype can hold the Python int passed as input i. */
static bool
holds_number(const frame *f, int i, gpo_dtype dtype)
{
    const int bits = 8 * gpo_dtypes[dtype].bytes;
    const bool is_signed = gpo_dtypes[dtype].kind == 'i';
    const uint64_t most = UINT64_MAX >> (64 - bits + is_signed);
    int64_t value;
    memcpy(&value, PyArray_DATA(f->in[i]), sizeof value);
    if (f->call.in[i].dtype == GPO_I64 && value < 0) {
        return !f->beyond[i] && is_signed && value >= -(int64_t)most - 1;
    }
    return !f->beyond[i] && (uint64_t)value <= most;
}

bool
gpo_numbers_check(const frame *f)
{
    for (int i = 0; i < f->binding->narrays; i++) {
        const gpo_array *in = &f->call.in[i];
        const gpo_dtype dtype =
            f->call.convert[i] == GPO_NONE ? in->dtype : f->call.convert[i];
        const char kind = in->present ? gpo_dtypes[dtype].kind : 'b';
        if ((kind != 'i' && kind != 'u') || !f->value[i] ||
            !PyLong_CheckExact(f->value[i]) || holds_number(f, i, dtype)) {
            continue;
        }
        PyObject *digits = PyObject_Str(f->value[i]);
        if (!digits) { /* too many for int's str() */
            PyErr_Clear();
        }
        PyErr_Format(PyExc_OverflowError, "Python integer %V out of bounds for %s",
                     digits, "of many digits", gpo_dtypes[dtype].name);
        Py_XDECREF(digits);
        return false;
    }
    return true;
}
