/*
 * device_scalar.c  A DeviceArray of one element as a Python number: item(), float(),
 * int(), complex(), operator.index() and bool().  Each waits for the array and copies
 * its element to the host.
 * See device_array.c for the class.
 */
#include "device_array.h"

/* The element as the Python number that NumPy's item() gives; NULL on failure. */
static PyObject *
element(gpo_device_array *self, const char *function)
{
    PyArrayObject *host = gpo_device_array_host(self, function);
    PyObject *value = NULL;
    if (host) {
        value = PyObject_CallMethod((PyObject *)host, "item", NULL);
        Py_DECREF((PyObject *)host);
    }
    if (value && self->array.dtype == GPO_BF16) { /* item() leaves it a bfloat16 */
        PyObject *number = PyNumber_Float(value);
        Py_DECREF(value);
        value = number;
    }
    return value;
}

/* convert(element); TypeError, in NumPy's words, unless there is exactly one. */
static PyObject *
converted(gpo_device_array *self, const char *function,
          PyObject *(*convert)(PyObject *))
{
    if (self->array.size != 1) {
        PyErr_SetString(PyExc_TypeError,
                        "only length-1 arrays can be converted to Python scalars");
        return NULL;
    }
    PyObject *value = element(self, function);
    PyObject *number = value ? convert(value) : NULL;
    Py_XDECREF(value);
    return number;
}

static PyObject *
to_complex(PyObject *value)
{
    return PyObject_CallFunctionObjArgs((PyObject *)&PyComplex_Type, value, NULL);
}

PyObject *
gpo_device_array_float(gpo_device_array *self)
{
    return converted(self, "float", PyNumber_Float);
}

PyObject *
gpo_device_array_int(gpo_device_array *self)
{
    return converted(self, "int", PyNumber_Long);
}

PyObject *
gpo_device_array_complex(gpo_device_array *self, PyObject *unused)
{
    (void)unused;
    return converted(self, "complex", to_complex);
}

PyObject *
gpo_device_array_index(gpo_device_array *self)
{
    const char kind = gpo_dtypes[self->array.dtype].kind;
    if (self->array.size != 1 || (kind != 'i' && kind != 'u')) {
        PyErr_SetString(
            PyExc_TypeError,
            "only integer scalar arrays can be converted to a scalar index");
        return NULL;
    }
    return element(self, "index");
}

int
gpo_device_array_truth(gpo_device_array *self)
{
    if (self->array.size != 1) {
        PyErr_SetString(PyExc_ValueError,
                        self->array.size == 0
                            ? "The truth value of an empty array is ambiguous. Use "
                              "`array.size > 0` to check that an array is not empty."
                            : "The truth value of an array with more than one element "
                              "is ambiguous. Use gpuopt.reduce(a, 'any') or "
                              "gpuopt.reduce(a, 'all')");
        return -1;
    }
    PyObject *value = element(self, "bool");
    const int truth = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return truth;
}

PyObject *
gpo_device_array_item(gpo_device_array *self, PyObject *unused)
{
    (void)unused;
    if (self->array.size != 1) {
        PyErr_SetString(PyExc_ValueError,
                        "can only convert an array of size 1 to a Python scalar");
        return NULL;
    }
    return element(self, "item");
}
