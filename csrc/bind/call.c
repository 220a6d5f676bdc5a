/*
 * call.c  One call of any operator, in the order it happens: parse, wrap, shape, choose,
 * place, run (run.c), return.  A step that fails sets a Python exception and returns
 * false; the frame owns everything that must be released.
 */
#include "call.h"

#include <string.h>

/* Prepares a frame so that frame_clear is right at any later moment. */
static void
frame_init(frame *f, gpo_binding *binding)
{
    f->binding = binding;
    f->is_away = false;
    f->packed = false;
    f->why[0] = 0;
    for (int i = 0; i < GPO_MAX_IN; i++) {
        f->in[i] = NULL;
    }
    for (int i = 0; i < GPO_MAX_OUT; i++) {
        f->out[i] = f->caller_out[i] = NULL;
        f->caller_object[i] = NULL;
    }
    gpo_call_init(&f->call, binding->op);
}

static void
frame_clear(frame *f)
{
    for (int i = 0; i < GPO_MAX_IN; i++) {
        Py_XDECREF((PyObject *)f->in[i]);
    }
    for (int i = 0; i < GPO_MAX_OUT; i++) {
        Py_XDECREF((PyObject *)f->out[i]);
    }
    if (f->is_away) {
        for (int i = 0; i < GPO_MAX_IN; i++) {
            gpo_foreign_clear(&f->away.in[i]);
        }
        for (int i = 0; i < GPO_MAX_OUT; i++) {
            gpo_foreign_clear(&f->away.out[i]);
            gpo_made_clear(&f->away.made[i]);
        }
    }
}

/* ---- parse: arguments by position and keyword, in CPython's words ---- */

static int
find_argument(const gpo_binding *b, PyObject *name)
{
    const int total = b->nargs + NCOMMON;
    for (int i = 0; i < total; i++) {
        if (b->name[i] == name) {
            return i;
        }
    }
    for (int i = 0; i < total; i++) { /* a name that was not interned */
        if (PyUnicode_Compare(b->name[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

static bool
parse(frame *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    const gpo_binding *b = f->binding;
    const gpo_arg *arg = b->op->args;
    const int total = b->nargs + NCOMMON;
    const int positional = b->nargs + 1; /* its own arguments and out */
    int required = 0;
    while (arg[required].name && !arg[required].preset) {
        required++;
    }
    if (nargs > positional) {
        PyErr_Format(PyExc_TypeError,
                     "%s() takes from %d to %d positional arguments but %zd were given",
                     b->op->name, required, positional, nargs);
        return false;
    }
    for (int i = 0; i < total; i++) {
        f->value[i] = i < nargs ? args[i] : NULL;
    }
    const Py_ssize_t nkeywords = kwnames ? PyTuple_Size(kwnames) : 0;
    for (Py_ssize_t k = 0; k < nkeywords; k++) {
        PyObject *name = PyTuple_GetItem(kwnames, k);
        const int i = find_argument(b, name);
        if (i < 0) {
            PyErr_Format(PyExc_TypeError,
                         "%s() got an unexpected keyword argument '%U'", b->op->name,
                         name);
            return false;
        }
        if (f->value[i]) {
            PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'",
                         b->op->name, name);
            return false;
        }
        f->value[i] = args[nargs + k];
    }
    for (int i = 0; i < required; i++) {
        if (!f->value[i]) {
            PyErr_Format(PyExc_TypeError,
                         "%s() missing required argument '%s' (pos %d)", b->op->name,
                         arg[i].name, i + 1);
            return false;
        }
    }
    return true;
}

/* ---- options ---- */

static bool
parse_int(PyObject *object, int64_t *out)
{
    PyObject *whole = PyNumber_Index(object);
    if (!whole) {
        return false;
    }
    *out = PyLong_AsLongLong(whole);
    Py_DECREF(whole);
    return !(*out == -1 && PyErr_Occurred());
}

static bool
parse_double(PyObject *object, double *out)
{
    *out = PyFloat_AsDouble(object);
    return !(*out == -1.0 && PyErr_Occurred());
}

/* One number or a tuple of them, each by `GPO_KIND_INTS` or `GPO_KIND_FLOATS`. */
static bool
parse_numbers(PyObject *object, const char *function, const gpo_arg *arg,
              gpo_option *out)
{
    const bool whole = arg->kind == GPO_KIND_INTS;
    out->is_tuple = PyTuple_Check(object) || PyList_Check(object);
    if (!out->is_tuple) {
        out->i = 1;
        return whole ? parse_int(object, &out->ints[0])
                     : parse_double(object, &out->floats[0]);
    }
    const Py_ssize_t n = PySequence_Size(object);
    if (n < 0 || n > GPO_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "%s() argument '%s' has more than %d values",
                     function, arg->name, GPO_MAX_DIMS);
        return false;
    }
    out->i = n;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = PySequence_GetItem(object, k);
        const bool good = item && (whole ? parse_int(item, &out->ints[k])
                                         : parse_double(item, &out->floats[k]));
        Py_XDECREF(item);
        if (!good) {
            return false;
        }
    }
    return true;
}

static bool
parse_enum(PyObject *object, const char *function, const gpo_arg *arg, int64_t *out)
{
    if (!PyUnicode_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s() argument '%s' must be str, not %R",
                     function, arg->name, (PyObject *)Py_TYPE(object));
        return false;
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

static bool
parse_float(PyObject *object, gpo_option *out)
{
    out->is_int = PyLong_Check(object) || PyArray_IsScalar(object, Integer);
    if (out->is_int && !parse_int(object, &out->i)) {
        return false;
    }
    return parse_double(object, &out->f);
}

static bool
parse_option(PyObject *object, const char *function, const gpo_arg *arg,
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
            return parse_int(object, &out->i);
        case GPO_KIND_FLOAT:
            return parse_float(object, out);
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

static bool
parse_options(frame *f)
{
    const gpo_binding *b = f->binding;
    for (int i = b->narrays; i < b->nargs; i++) {
        gpo_option *out = &f->call.opt[i];
        PyObject *object = f->value[i];
        const char *preset_text = b->op->args[i].preset; /* NULL: required */
        const bool none =
            object == Py_None && preset_text && strcmp(preset_text, "None") == 0;
        if (!object || none) {
            const gpo_option *preset = &b->preset[i];
            out->given = preset->given;
            out->is_int = preset->is_int;
            out->i = preset->i;
            out->f = preset->f;
            out->is_tuple = false;
            out->ints[0] = preset->ints[0]; /* a default is at most one number */
        }
        else if (!parse_option(object, b->op->name, &b->op->args[i], out)) {
            return false;
        }
    }
    return true;
}

/* ---- wrap: inputs and out= as arrays ---- */

/* Marks a call as one on arrays that are not the host's. */
static bool
go_away(frame *f)
{
    PyObject *stream = f->value[f->binding->nargs + COMMON_STREAM];
    if (f->is_away) {
        return true;
    }
    away *w = &f->away;
    memset(w->in, 0, sizeof w->in);
    memset(w->out, 0, sizeof w->out);
    memset(w->memory, 0, sizeof w->memory);
    memset(w->made, 0, sizeof w->made);
    w->first = NULL;
    w->on_device = false;
    w->keeper = NULL;
    const int given = gpo_stream_handle(stream, f->binding->op->name, &w->stream);
    if (given < 0) {
        return false;
    }
    f->is_away = true;
    w->stream_given = given;
    w->keeper = given ? stream : NULL;
    return true;
}

static bool
wrap_away(frame *f, PyObject *object, const char *name, gpo_array *array,
          gpo_foreign *foreign)
{
    const void *stream = f->away.stream;
    return gpo_foreign_wrap(object, f->binding->op->name, name,
                            f->away.stream_given ? &stream : NULL, array, foreign);
}

static bool
raise_mixed(const frame *f, PyObject *a, PyObject *b)
{
    PyObject *first = gpo_type_name(a), *second = gpo_type_name(b);
    if (first && second) {
        PyErr_Format(
            PyExc_TypeError,
            "%s() got arrays from different libraries: '%U' and '%U'; move them "
            "first",
            f->binding->op->name, first, second);
    }
    Py_XDECREF(first);
    Py_XDECREF(second);
    return false;
}

static bool
raise_apart(const frame *f, const gpo_foreign *a, const gpo_foreign *b)
{
    PyErr_Format(
        PyExc_TypeError,
        "%s() got arrays on different devices: %s:%d and %s:%d; move them first",
        f->binding->op->name, gpo_backend_names[a->id], a->device,
        gpo_backend_names[b->id], b->device);
    return false;
}

/* Whether input i is a number from the host beside arrays on a device. */
static bool
is_host_number(const frame *f, int i)
{
    return f->call.in[i].present && !f->away.in[i].object && f->call.in[i].ndim == 0;
}

/* All inputs must be of one library and on one device; numbers go with any of them. */
static bool
check_together(frame *f)
{
    away *w = &f->away;
    PyObject *host = NULL;
    for (int i = 0; i < f->binding->narrays; i++) {
        gpo_foreign *in = &w->in[i];
        if (!f->call.in[i].present || is_host_number(f, i)) {
            continue;
        }
        if (!in->object) {
            host = f->value[i];
        }
        else if (!w->first) {
            w->first = in;
        }
        else if (in->family != w->first->family || in->api != w->first->api) {
            return raise_mixed(f, w->first->object, in->object);
        }
        else if (in->id != w->first->id || in->device != w->first->device) {
            return raise_apart(f, w->first, in);
        }
    }
    if (host) {
        return raise_mixed(f, host, w->first->object);
    }
    w->on_device = w->first->id != GPO_CPU;
    f->call.device = w->first->device;
    return true;
}

/* The stream of a call on a device: stream=, the entered one, the producer's, 0. */
static bool
settle_stream(frame *f)
{
    away *w = &f->away;
    PyObject *given = f->value[f->binding->nargs + COMMON_STREAM];
    const gpo_backend_id id = w->first->id;
    if (!gpo_stream_fits(given, id, w->first->device)) {
        return false;
    }
    if (!w->stream_given &&
        (w->first->family == GPO_OWN || w->first->family == GPO_INTERFACE)) {
        w->keeper = gpo_stream_current(id, w->first->device, &w->stream);
    }
    if (!w->stream_given && !w->keeper && w->first->has_stream) {
        w->stream = w->first->stream;
        w->keeper = w->first->keeper;
    }
    f->call.stream = w->stream;
    return true;
}

/* CPU memory of another library goes the way of host arrays. */
static bool
view_on_host(frame *f, int i)
{
    gpo_array array = f->call.in[i];
    PyArrayObject *view = gpo_foreign_ndarray(&array, &f->away.in[i]);
    const bool good =
        view && gpo_array_wrap((PyObject *)view, f->binding->op->args[i].name,
                               &f->call.in[i], &f->in[i]);
    Py_XDECREF((PyObject *)view);
    return good;
}

/* After all inputs are wrapped and one of them is not the host's. */
static bool
settle_away(frame *f)
{
    if (!check_together(f)) {
        return false;
    }
    if (f->away.on_device) {
        return settle_stream(f);
    }
    for (int i = 0; i < f->binding->narrays; i++) {
        if (f->call.in[i].present && !is_host_number(f, i) && !view_on_host(f, i)) {
            return false;
        }
    }
    return true;
}

static bool
wrap_input(frame *f, int i, PyObject *object)
{
    const char *name = f->binding->op->args[i].name;
    gpo_array *array = &f->call.in[i];
    if (!PyArray_CheckExact(object)) {
        gpo_foreign foreign;
        const int family = gpo_family_of(object, &foreign);
        if (family < 0) {
            return false;
        }
        if (family != GPO_HOST) {
            if (!go_away(f)) {
                return false;
            }
            f->away.in[i] = foreign;
            return wrap_away(f, object, name, array, &f->away.in[i]);
        }
    }
    array->weak = PyFloat_CheckExact(object) || PyLong_CheckExact(object) ||
                  PyComplex_CheckExact(object);
    return gpo_array_wrap(object, name, array, &f->in[i]);
}

static bool
wrap_inputs(frame *f)
{
    const gpo_binding *b = f->binding;
    for (int i = 0; i < b->narrays; i++) {
        if (!f->value[i] || (f->value[i] == Py_None && b->op->args[i].preset)) {
            continue;
        }
        if (!wrap_input(f, i, f->value[i])) {
            return false;
        }
    }
    return !f->is_away || settle_away(f);
}

/* out= of another library, or a DeviceArray. */
static bool
wrap_away_output(frame *f, int i, PyObject *object, const gpo_foreign *family)
{
    away *w = &f->away;
    gpo_foreign *out = &w->out[i];
    const bool inputs_away = f->is_away;
    if (!go_away(f)) {
        return false;
    }
    *out = *family;
    if (!wrap_away(f, object, "out", &w->target[i], out)) {
        return false;
    }
    if (!inputs_away && out->id == GPO_CPU) { /* host inputs: a view does */
        w->first = out;
    }
    else if (!inputs_away) {
        PyErr_Format(PyExc_TypeError,
                     "%s(): out is on %s:%d, the inputs are host arrays; "
                     "gpuopt.asdevice() moves them",
                     f->binding->op->name, gpo_backend_names[out->id], out->device);
        return false;
    }
    else if (out->id != w->first->id || out->device != w->first->device) {
        return raise_apart(f, w->first, out);
    }
    if (out->readonly) {
        PyErr_SetString(PyExc_ValueError, "output array is read-only");
        return false;
    }
    if (out->id == GPO_CPU) {
        PyArrayObject *view = gpo_foreign_ndarray(&w->target[i], out);
        if (!view) {
            return false;
        }
        Py_DECREF(out->keep);
        out->keep = (PyObject *)view; /* it owns what `keep` was */
        f->caller_out[i] = view;
    }
    f->call.out_given[i] = w->target[i].dtype;
    f->caller_object[i] = object;
    return true;
}

static bool
wrap_output(frame *f, int i, PyObject *object)
{
    gpo_foreign foreign;
    if (object == Py_None) {
        return true;
    }
    const int family =
        PyArray_Check(object) ? GPO_HOST : gpo_family_of(object, &foreign);
    if (family < 0) {
        return false;
    }
    if (family != GPO_HOST) {
        return wrap_away_output(f, i, object, &foreign);
    }
    if (!PyArray_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s(): output must be an array, not %R",
                     f->binding->op->name, (PyObject *)Py_TYPE(object));
        return false;
    }
    if (!gpo_gate_host(object, "out")) {
        return false;
    }
    if (f->is_away && f->away.on_device) {
        PyErr_Format(PyExc_TypeError,
                     "%s(): out is a host array, the inputs are on %s:%d",
                     f->binding->op->name, gpo_backend_names[f->away.first->id],
                     f->away.first->device);
        return false;
    }
    PyArrayObject *out = (PyArrayObject *)object;
    if (!PyArray_ISWRITEABLE(out)) {
        PyErr_SetString(PyExc_ValueError, "output array is read-only");
        return false;
    }
    f->call.out_given[i] = gpo_dtype_from_descr(PyArray_DESCR(out));
    if (f->call.out_given[i] == GPO_NONE) {
        PyErr_Format(PyExc_TypeError,
                     "out has dtype '%S', which gpuopt does not support",
                     PyArray_DESCR(out));
        return false;
    }
    f->caller_out[i] = out;
    f->caller_object[i] = object;
    return true;
}

/* The out= of a call: NULL where none was given. */
static PyObject *
given_out(const frame *f)
{
    PyObject *out = f->value[f->binding->nargs + COMMON_OUT];
    return out == Py_None ? NULL : out;
}

static bool
out_counts(const frame *f, int nout)
{
    PyErr_Format(PyExc_ValueError,
                 "%s(): the 'out' tuple must have exactly one entry per output (%d)",
                 f->binding->op->name, nout);
    return false;
}

static bool
wrap_outputs(frame *f)
{
    const int most = f->binding->op->nout;
    PyObject *out = given_out(f);
    if (!out || !PyTuple_Check(out)) {
        return !out || wrap_output(f, 0, out);
    }
    if (PyTuple_Size(out) > most) {
        return out_counts(f, most);
    }
    for (int i = 0; i < PyTuple_Size(out); i++) {
        if (!wrap_output(f, i, PyTuple_GetItem(out, i))) {
            return false;
        }
    }
    return true;
}

/* ---- shape: the operator's rule, then what out= must agree with ---- */

PyObject *
gpo_shape_tuple(int ndim, const int64_t *shape)
{
    PyObject *tuple = PyTuple_New(ndim);
    for (int d = 0; tuple && d < ndim; d++) {
        PyObject *length = PyLong_FromLongLong(shape[d]);
        if (!length) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SetItem(tuple, d, length);
    }
    return tuple;
}

static bool
same_shape(PyArrayObject *out, const gpo_array *wanted)
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

bool
gpo_same_shape(const gpo_array *a, const gpo_array *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0;
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

/* Whether the bytes of `out` meet those of `in`; NumPy decides the close cases. */
static bool
share_memory(PyArrayObject *in, PyArrayObject *out)
{
    const char *in_low, *in_high, *out_low, *out_high;
    span(in, &in_low, &in_high);
    span(out, &out_low, &out_high);
    if (in_low == in_high || out_low == out_high || in_high <= out_low ||
        out_high <= in_low) {
        return false;
    }
    PyObject *answer = PyObject_CallFunction(gpo_py.shares_memory, "OOi",
                                             (PyObject *)in, (PyObject *)out, 100000);
    if (!answer) {
        PyErr_Clear(); /* too hard to say: treat it as shared */
        return true;
    }
    const bool shared = PyObject_IsTrue(answer) != 0;
    Py_DECREF(answer);
    return shared;
}

/* Whether two arrays on a device span common bytes: their elements may interleave. */
static bool
spans_meet(const gpo_array *a, const gpo_array *b)
{
    int64_t a_low, a_high, b_low, b_high;
    gpo_array_extent(a, &a_low, &a_high);
    gpo_array_extent(b, &b_low, &b_high);
    const char *x = a->data, *y = b->data;
    return a->size > 0 && b->size > 0 && x + a_low < y + b_high &&
           y + b_low < x + a_high;
}

/* Whether input k and the caller's out= number i are the very same elements. */
static bool
output_is_input(const frame *f, int k, int i)
{
    const gpo_array *in = &f->call.in[k];
    if (f->value[k] ==
        f->caller_object[i]) { /* if it was copied first, so much safer */
        return true;
    }
    if (f->call.convert[k] != GPO_NONE || in->dtype != f->call.out_given[i]) {
        return false;
    }
    if (f->is_away && f->away.on_device) {
        const gpo_array *out = &f->away.target[i];
        return in->data == out->data && gpo_same_shape(in, out) &&
               memcmp(in->strides, out->strides, (size_t)in->ndim * sizeof(int64_t)) ==
                   0;
    }
    PyArrayObject *out = f->caller_out[i];
    bool same = f->in[k] && PyArray_DATA(f->in[k]) == PyArray_DATA(out) &&
                PyArray_NDIM(out) == in->ndim;
    for (int d = 0; same && d < in->ndim; d++) {
        same = PyArray_DIM(out, d) == in->shape[d] &&
               PyArray_STRIDE(out, d) == PyArray_STRIDE(f->in[k], d);
    }
    return same;
}

/* Whether input k shares memory with the caller's out= number i. */
static bool
output_overlaps(const frame *f, int k, int i)
{
    if (f->is_away && f->away.on_device) {
        return f->call.in[k].present && spans_meet(&f->call.in[k], &f->away.target[i]);
    }
    /* The caller's own array, not the copy that a byte-swapped one was read into. */
    PyObject *value = f->value[k];
    PyObject *in = value && PyArray_Check(value) ? value : (PyObject *)f->in[k];
    return in && share_memory((PyArrayObject *)in, f->caller_out[i]);
}

static bool
check_output(frame *f, int i)
{
    const gpo_array *wanted = &f->call.out[i];
    const bool on_device = f->is_away && f->away.on_device;
    if (!f->caller_object[i]) {
        return true;
    }
    if (f->call.out_given[i] != wanted->dtype) {
        PyErr_Format(PyExc_TypeError, "out has dtype '%s', expected '%s'",
                     gpo_dtypes[f->call.out_given[i]].name,
                     gpo_dtypes[wanted->dtype].name);
        return false;
    }
    if (!(on_device ? gpo_same_shape(&f->away.target[i], wanted)
                    : same_shape(f->caller_out[i], wanted))) {
        const gpo_array *target = &f->away.target[i]; /* of another library's out= */
        PyObject *is = f->is_away && f->away.out[i].object
                           ? gpo_shape_tuple(target->ndim, target->shape)
                           : PyObject_GetAttrString(f->caller_object[i], "shape");
        PyObject *should = gpo_shape_tuple(wanted->ndim, wanted->shape);
        if (is && should) {
            PyErr_Format(PyExc_ValueError, "out has shape %R, expected %R", is, should);
        }
        Py_XDECREF(is);
        Py_XDECREF(should);
        return false;
    }
    for (int k = 0; k < f->binding->narrays; k++) {
        const bool allowed =
            (f->binding->op->in_place >> k & 1u) && output_is_input(f, k, i);
        if (!allowed && output_overlaps(f, k, i)) {
            PyErr_Format(PyExc_ValueError, "out shares memory with %s",
                         f->binding->op->args[k].name);
            return false;
        }
    }
    return true;
}

/* Now that the number of outputs is known: whether out= names as many. */
static bool
count_outputs(const frame *f)
{
    const int nout = f->call.nout;
    PyObject *out = given_out(f);
    if (out && !PyTuple_Check(out) && nout > 1) {
        PyErr_Format(PyExc_TypeError, "%s(): out must be a tuple of %d arrays",
                     f->binding->op->name, nout);
        return false;
    }
    if (out && PyTuple_Check(out) && PyTuple_Size(out) != nout) {
        return out_counts(f, nout);
    }
    return true;
}

static bool
apply_shape_rule(frame *f)
{
    const gpo_status status = f->binding->op->shape(&f->call);
    if (status) {
        gpo_raise(&f->call, status);
        return false;
    }
    if (!count_outputs(f)) {
        return false;
    }
    for (int i = 0; i < f->call.nout; i++) {
        if (!check_output(f, i)) {
            return false;
        }
    }
    return true;
}

/* Replaces the inputs that the shape rule wants in another dtype. */
static bool
convert_inputs(frame *f)
{
    for (int i = 0; i < f->binding->narrays; i++) {
        if (f->call.convert[i] == GPO_NONE) {
            continue;
        }
        if (f->is_away && f->away.on_device && !is_host_number(f, i)) {
            /* run_in_place converts */
            f->away.source[i] = f->call.in[i];
            f->call.in[i].dtype = f->call.convert[i];
            if (gpo_array_contiguous(&f->call, &f->call.in[i]) != GPO_OK) {
                gpo_raise(&f->call, GPO_EVALUE);
                return false;
            }
            continue;
        }
        PyArrayObject *converted = gpo_array_converted(f->in[i], f->call.convert[i]);
        if (!converted) {
            return false;
        }
        Py_DECREF((PyObject *)f->in[i]);
        f->in[i] = NULL;
        const bool good =
            gpo_array_wrap((PyObject *)converted, f->binding->op->args[i].name,
                           &f->call.in[i], &f->in[i]);
        Py_DECREF((PyObject *)converted);
        if (!good) {
            return false;
        }
    }
    return true;
}

/* ---- choose: backend and variant ---- */

static const gpo_variant *
find_variant(const gpo_table *table, PyObject *name)
{
    for (const gpo_variant *v = table ? table->variants : NULL; v && v->name; v++) {
        if (PyUnicode_CompareWithASCIIString(name, v->name) == 0) {
            return v;
        }
    }
    return NULL;
}

static bool
raise_no_variant(const frame *f, PyObject *name)
{
    const gpo_op *op = f->binding->op;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    if (!text) {
        return false;
    }
    const char *hint = NULL;
    if (f->is_away && f->away.on_device && find_variant(op->cpu, name)) {
        hint = "it runs on the CPU and the arrays are on a device; "
               "x.numpy() brings them to the host";
    }
    else if (find_variant(gpo_backend_table(GPO_SIM, op), name) ||
             find_variant(gpo_backend_table(GPO_CUDA, op), name)) {
        hint = "it is a CUDA rung and this call runs on the CPU; "
               "backend=\"sim\" runs it in the simulator";
    }
    gpo_raise_variant(op, text, hint);
    return false;
}

/* The TypeError for a dtype no row, or this row, supports. */
static bool
raise_dtype(const frame *f, const gpo_variant *variant, bool named)
{
    PyObject *supported = gpo_supported_dtypes(variant);
    if (supported) {
        PyErr_Format(
            PyExc_TypeError, "%s(%s%s) does not support dtype '%s'; supported: %U",
            f->binding->op->name, named ? "variant=" : "", named ? variant->name : "",
            gpo_dtypes[f->call.in[f->binding->op->by].dtype].name, supported);
        Py_DECREF(supported);
    }
    return false;
}

/* Whether the call's device runs its variant, chosen or named. */
static bool
check_needs(const frame *f)
{
    const gpo_variant *variant = f->call.variant;
    const char *lack = gpo_lacks(&f->call, variant->needs);
    if (lack) {
        PyErr_Format(gpo_py.variant_error,
                     "%s(variant='%s') needs %s and %s; gpuopt.variants() lists what "
                     "runs here",
                     f->binding->op->name, variant->name, variant->needs, lack);
    }
    return !lack;
}

static bool
choose(frame *f)
{
    const gpo_op *op = f->binding->op;
    gpo_call *call = &f->call;
    PyObject *backend = f->value[f->binding->nargs + COMMON_BACKEND];
    PyObject *name = f->value[f->binding->nargs + COMMON_VARIANT];
    bool named_backend = backend && backend != Py_None;
    int id = named_backend ? gpo_backend_from_name(backend)
             : f->is_away  ? (int)f->away.first->id
                           : gpo_default_backend();
    if (id < 0) {
        return false;
    }
    if (f->is_away && f->away.on_device) {
        if (id != (int)f->away.first->id) {
            PyErr_Format(PyExc_ValueError,
                         "%s() got backend='%s' for arrays on %s:%d; x.numpy() brings "
                         "them to the host",
                         op->name, gpo_backend_names[id],
                         gpo_backend_names[f->away.first->id], f->away.first->device);
            return false;
        }
        named_backend = true; /* no other backend can run it */
    }
    f->id = (gpo_backend_id)id;
    call->backend = gpo_backend_get(f->id);
    if (!gpo_check_available(f->id)) {
        return false;
    }
    const gpo_table *table = gpo_backend_table(f->id, op);
    if (!table) {
        PyErr_Format(PyExc_NotImplementedError,
                     "%s() has no '%s' backend in this build", op->name,
                     call->backend->name);
        return false;
    }
    if (name && name != Py_None && !PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "%s() argument 'variant' must be str, not %R",
                     op->name, (PyObject *)Py_TYPE(name));
        return false;
    }
    if (!name || name == Py_None ||
        PyUnicode_CompareWithASCIIString(name, "auto") == 0) {
        call->variant = table->choose(call, f->why);
        if (!call->variant || !call->variant->run[call->in[op->by].dtype]) {
            return raise_dtype(f, table->variants, false);
        }
        return check_needs(f);
    }
    call->variant = find_variant(table, name);
    if (!call->variant && !named_backend && f->id != GPO_CPU) {
        call->variant =
            find_variant(op->cpu, name); /* simd, threads, ...: on the CPU */
        f->id = GPO_CPU;
        call->backend = gpo_backend_get(GPO_CPU);
    }
    if (!call->variant) {
        return raise_no_variant(f, name);
    }
    if (!call->variant->run[call->in[op->by].dtype]) {
        return raise_dtype(f, call->variant, true);
    }
    PyOS_snprintf(f->why, sizeof f->why, "asked for by name");
    return check_needs(f);
}

/* ---- stream ---- */

static bool
check_stream(const frame *f)
{
    PyObject *stream = f->value[f->binding->nargs + COMMON_STREAM];
    if (stream && stream != Py_None && !(f->is_away && f->away.on_device)) {
        PyErr_Format(PyExc_ValueError,
                     "%s() takes stream= for arrays on the GPU; these are host arrays, "
                     "and the call waits for its result",
                     f->binding->op->name);
        return false;
    }
    return true;
}

/* ---- place: memory for the results ---- */

static bool
plain(PyArrayObject *a)
{
    return PyArray_IS_C_CONTIGUOUS(a) && PyArray_ISBEHAVED(a);
}

static bool
place_outputs(frame *f)
{
    for (int i = 0; i < f->call.nout; i++) {
        gpo_array *out = &f->call.out[i];
        if (f->caller_out[i] && plain(f->caller_out[i])) {
            f->out[i] = (PyArrayObject *)Py_NewRef((PyObject *)f->caller_out[i]);
        }
        else if (f->is_away && !f->caller_object[i]) {
            if (!gpo_foreign_alloc(f->away.first, out, &f->away.made[i])) {
                return false;
            }
            continue;
        }
        else if (f->is_away && f->away.on_device) {
            continue;
        }
        else if (out->ndim == 0 && !f->caller_out[i]) {
            out->data = f->scalar[i];
            continue;
        }
        else {
            f->out[i] = gpo_array_new(out);
            if (!f->out[i]) {
                return false;
            }
        }
        out->data = PyArray_DATA(f->out[i]);
    }
    return true;
}

/*
 * A device copy keeps the caller's layout, so that a rung sees the strides it was
 * given; a view that spans more than twice its elements is packed here first.
 */
static bool
pack_inputs(frame *f)
{
    for (int i = 0; i < f->binding->narrays; i++) {
        gpo_array *in = &f->call.in[i];
        int64_t low, high;
        if (!in->present) {
            continue;
        }
        gpo_array_extent(in, &low, &high);
        if (high - low <= 2 * in->size * gpo_dtypes[in->dtype].bytes) {
            continue;
        }
        PyArrayObject *packed = (PyArrayObject *)PyArray_NewCopy(f->in[i], NPY_CORDER);
        if (!packed) {
            return false;
        }
        Py_DECREF((PyObject *)f->in[i]);
        f->in[i] = packed;
        in->data = PyArray_DATA(packed);
        f->packed = true;
        gpo_array_contiguous(&f->call, in);
    }
    return true;
}

/* ---- return ---- */

static PyObject *
result(frame *f, int i)
{
    if (f->caller_object[i]) {
        if (f->caller_out[i] && f->out[i] != f->caller_out[i] &&
            PyArray_CopyInto(f->caller_out[i], f->out[i]) < 0) {
            return NULL;
        }
        if (f->is_away) {
            gpo_gate_written(f->caller_object[i]);
        }
        return Py_NewRef(f->caller_object[i]);
    }
    if (f->is_away) {
        return gpo_foreign_finish(f->away.first, &f->away.made[i]);
    }
    if (!f->out[i]) {
        return gpo_array_scalar(f->call.out[i].dtype, f->scalar[i]);
    }
    return Py_NewRef((PyObject *)f->out[i]);
}

static PyObject *
results(frame *f)
{
    const int nout = f->call.nout;
    if (nout == 1) {
        return result(f, 0);
    }
    PyObject *tuple = PyTuple_New(nout);
    for (int i = 0; tuple && i < nout; i++) {
        PyObject *item = result(f, i);
        if (!item) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SetItem(tuple, i, item); /* steals */
    }
    return tuple;
}

/* ---- the two ways in ---- */

static bool
prepare(frame *f, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return parse(f, args, nargs, kwnames) && parse_options(f) && wrap_inputs(f) &&
           wrap_outputs(f) && apply_shape_rule(f);
}

PyObject *
gpo_op_call(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    PyObject *answer = NULL;
    frame f;
    frame_init(&f, binding);
    if (prepare(&f, args, nargs, kwnames) && convert_inputs(&f) && choose(&f) &&
        check_stream(&f) && place_outputs(&f) &&
        (!f.call.backend->device_memory || (f.is_away && f.away.on_device) ||
         pack_inputs(&f)) &&
        gpo_execute(&f)) {
        answer = results(&f);
    }
    frame_clear(&f);
    return answer;
}

PyObject *
gpo_op_plan(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    PyObject *answer = NULL, *outputs = NULL;
    frame f;
    frame_init(&f, binding);
    if (!prepare(&f, args, nargs, kwnames)) {
        goto fail;
    }
    gpo_cost cost = {0, 0, 0};
    binding->op->cost(&f.call, &cost);
    for (int i = 0; i < GPO_MAX_IN; i++) {
        if (f.call.convert[i] != GPO_NONE) { /* choose as the call itself would */
            f.call.in[i].dtype = f.call.convert[i];
        }
    }
    if (!choose(&f)) {
        goto fail;
    }
    outputs = PyList_New(0);
    for (int i = 0; outputs && i < f.call.nout; i++) {
        const gpo_array *out = &f.call.out[i];
        PyObject *row = Py_BuildValue("(Ns)", gpo_shape_tuple(out->ndim, out->shape),
                                      gpo_dtypes[out->dtype].name);
        if (!row || PyList_Append(outputs, row) < 0) {
            Py_CLEAR(outputs);
        }
        Py_XDECREF(row);
    }
    if (outputs) {
        answer =
            Py_BuildValue("{s:s,s:s,s:s,s:d,s:d,s:d,s:O}", "backend",
                          f.call.backend->name, "variant", f.call.variant->name, "why",
                          f.why, "read_bytes", cost.read_bytes, "written_bytes",
                          cost.written_bytes, "flops", cost.flops, "outputs", outputs);
    }
fail:
    Py_XDECREF(outputs);
    frame_clear(&f);
    return answer;
}
