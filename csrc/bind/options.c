/*
 * options.c  Reads the typed arguments that are not arrays from Python objects.  An
 * error message names the function, the argument, what was expected and what was given;
 * an exception raised by an object's own __index__ or __float__ is passed on.
 * Order: integers, real numbers, sequences of them, strings, any option.
 */
#include "options.h"

#include "array.h"

bool
gpo_raise_type(PyObject *object, const char *function, const char *argument,
               const char *wanted)
{
    PyObject *name = PyType_GetName(Py_TYPE(object));
    if (name) {
        PyErr_Format(PyExc_TypeError, "%s() argument '%s' must be %s, not '%U'",
                     function, argument, wanted, name);
        Py_DECREF(name);
    }
    return false;
}

/* The same for an object without __index__, in the words of CPython and NumPy. */
static void
raise_no_index(PyObject *object, const char *function, const char *argument,
               const char *wanted)
{
    PyObject *name = PyType_GetName(Py_TYPE(object));
    if (name) {
        PyErr_Format(PyExc_TypeError,
                     "%s() argument '%s' must be %s: '%U' object cannot be interpreted "
                     "as an integer",
                     function, argument, wanted, name);
        Py_DECREF(name);
    }
}

/* Whether the current exception only says that `object` lacks `method`. */
static bool
is_wrong_type(PyObject *object, const char *method)
{
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
        return false;
    }
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *found = PyObject_GetAttrString((PyObject *)Py_TYPE(object), method);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
    const bool wrong = !found || PyArray_Check(object); /* every ndarray has it */
    Py_XDECREF(found);
    return wrong;
}

/* object.__index__(); NULL with an exception set. */
static PyObject *
whole_number(PyObject *object, const char *function, const char *argument,
             const char *wanted)
{
    PyObject *whole = PyNumber_Index(object);
    if (!whole && is_wrong_type(object, "__index__")) {
        PyErr_Clear();
        raise_no_index(object, function, argument, wanted);
    }
    return whole;
}

static bool
read_int(PyObject *object, const char *function, const char *argument,
         const char *wanted, int64_t *out)
{
    int overflow = 0;
    PyObject *whole = whole_number(object, function, argument, wanted);
    if (!whole) {
        return false;
    }
    *out = PyLong_AsLongLongAndOverflow(whole, &overflow);
    if (overflow) {
        PyErr_Format(PyExc_OverflowError,
                     "%s() argument '%s': Python int too large for 64 bits", function,
                     argument);
    }
    Py_DECREF(whole);
    return !overflow && !(*out == -1 && PyErr_Occurred());
}

bool
gpo_int_parse(PyObject *object, const char *function, const char *argument,
              int64_t *out)
{
    return read_int(object, function, argument, "an int", out);
}

static bool
read_double(PyObject *object, const char *function, const char *argument,
            const char *wanted, double *out)
{
    *out = PyFloat_AsDouble(object);
    if (*out != -1.0 || !PyErr_Occurred()) {
        return true;
    }
    if (is_wrong_type(object, "__float__")) {
        PyErr_Clear();
        gpo_raise_type(object, function, argument, wanted);
    }
    return false;
}

/*
 * A real number; of an integer also its value modulo 2^64.  An integer too large for a
 * double becomes an infinity.
 */
static bool
parse_float(PyObject *object, const char *function, const gpo_arg *arg, gpo_option *out)
{
    static const char wanted[] = "a real number";
    out->is_int =
        PyLong_Check(object) || PyArray_IsScalar(object, Integer) ||
        (PyArray_Check(object) && PyArray_NDIM((PyArrayObject *)object) == 0 &&
         PyArray_ISINTEGER((PyArrayObject *)object));
    if (!out->is_int) {
        return read_double(object, function, arg->name, wanted, &out->f);
    }
    PyObject *whole = whole_number(object, function, arg->name, wanted);
    if (!whole) {
        return false;
    }
    out->i = (int64_t)PyLong_AsUnsignedLongLongMask(whole);
    out->f = PyLong_AsDouble(whole);
    if (out->f == -1.0 && PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        int sign = 0;
        (void)PyLong_AsLongLongAndOverflow(whole, &sign);
        out->f = sign * Py_HUGE_VAL;
    }
    Py_DECREF(whole);
    return !PyErr_Occurred();
}

/* Whether an object is several numbers: a tuple, a list, an array with axes. */
static bool
is_sequence(PyObject *object)
{
    if (PyTuple_Check(object) || PyList_Check(object)) {
        return true;
    }
    if (PyArray_Check(object)) {
        return PyArray_NDIM((PyArrayObject *)object) > 0;
    }
    if (PyLong_Check(object) || PyFloat_Check(object) || PyUnicode_Check(object) ||
        PyBytes_Check(object) || PyByteArray_Check(object) ||
        !PySequence_Check(object)) {
        return false;
    }
    const bool sized =
        PySequence_Size(object) >= 0; /* fails for another library's 0-d array */
    PyErr_Clear();
    return sized;
}

/* One number or a sequence of numbers, for GPO_KIND_INTS and GPO_KIND_FLOATS. */
static bool
parse_numbers(PyObject *object, const char *function, const gpo_arg *arg,
              gpo_option *out)
{
    const bool whole = arg->kind == GPO_KIND_INTS;
    const char *wanted = whole ? "an int or a sequence of ints"
                               : "a real number or a sequence of real numbers";
    out->is_tuple = is_sequence(object);
    if (!out->is_tuple) {
        out->i = 1;
        return whole
                   ? read_int(object, function, arg->name, wanted, &out->ints[0])
                   : read_double(object, function, arg->name, wanted, &out->floats[0]);
    }
    PyObject *items = PySequence_Tuple(object); /* no __index__ can change a tuple */
    const Py_ssize_t n = items ? PyTuple_Size(items) : -1;
    bool good = n >= 0;
    if (n > GPO_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s() argument '%s' has more than %d values",
                     function, arg->name, GPO_MAX_DIMS);
        good = false;
    }
    out->i = n;
    for (Py_ssize_t k = 0; good && k < n; k++) {
        PyObject *item = PyTuple_GetItem(items, k);
        good = whole ? read_int(item, function, arg->name, wanted, &out->ints[k])
                     : read_double(item, function, arg->name, wanted, &out->floats[k]);
    }
    Py_XDECREF(items);
    return good;
}

static bool
parse_enum(PyObject *object, const char *function, const gpo_arg *arg, int64_t *out)
{
    if (!PyUnicode_Check(object)) {
        return gpo_raise_type(object, function, arg->name, "a str");
    }
    for (int k = 0; arg->choices[k]; k++) {
        if (PyUnicode_CompareWithASCIIString(object, arg->choices[k]) == 0) {
            *out = k;
            return true;
        }
    }
    PyObject *text = PyUnicode_FromFormat("'%s'", arg->choices[0]);
    for (int k = 1; text && arg->choices[k]; k++) {
        PyObject *longer = PyUnicode_FromFormat("%U, '%s'", text, arg->choices[k]);
        Py_DECREF(text);
        text = longer;
    }
    if (text) {
        PyErr_Format(PyExc_ValueError, "%s() argument '%s' must be one of %U (got %R)",
                     function, arg->name, text, object);
        Py_DECREF(text);
    }
    return false;
}

bool
gpo_option_parse(PyObject *object, const char *function, const gpo_arg *arg,
                 gpo_option *out)
{
    out->given = true;
    switch (arg->kind) {
        case GPO_KIND_BOOL: {
            const int truth = PyObject_IsTrue(object);
            out->i = truth;
            return truth >= 0;
        }
        case GPO_KIND_INT:
            return gpo_int_parse(object, function, arg->name, &out->i);
        case GPO_KIND_FLOAT:
            return parse_float(object, function, arg, out);
        case GPO_KIND_INTS:
        case GPO_KIND_FLOATS:
            return parse_numbers(object, function, arg, out);
        case GPO_KIND_ENUM:
            return parse_enum(object, function, arg, &out->i);
        case GPO_KIND_DTYPE:
            out->i = gpo_dtype_from_object(object, function);
            return out->i != GPO_NONE;
        case GPO_KIND_ARRAY:
            break;
    }
    return true;
}
