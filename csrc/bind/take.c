/*
 * take.c  The arrays of a call, from the objects that the caller passed: NumPy's
 * arrays, objects that np.asarray accepts, and foreign arrays (those of other
 * libraries, and DeviceArrays).  Order: pin, foreign arrays, take, view.
 * See array.c and exchange.c for the view of one array, place_*.c for what follows.
 */
#include "take.h"

#include "array.h"
#include "backends.h"
#include "gate.h"
#include "known.h"
#include "numbers.h"
#include "objects.h"
#include "stream.h"

#include <string.h>

/* ---- pin ---- */

bool
gpo_pin(frame *f, int k)
{
    PyArrayObject *array = k < GPO_MAX_IN ? f->given[k] : f->caller_out[k - GPO_MAX_IN];
    PyObject *owner = (PyObject *)array;
    for (PyObject *base = owner; base && PyArray_Check(base);
         base = PyArray_BASE((PyArrayObject *)base)) {
        owner = base; /* the array that owns the memory and could be resized */
    }
    if (owner && !f->pin[k]) {
        f->pin[k] = PyWeakref_NewRef(owner, NULL);
    }
    return !owner || f->pin[k];
}

/* ---- foreign arrays ---- */

/* Sets up the frame's fields for foreign arrays, once per call. */
static bool
go_foreign(frame *f)
{
    PyObject *stream = f->value[f->binding->nargs + COMMON_STREAM];
    if (f->any_foreign) {
        return true;
    }
    memset(f->memory, 0, sizeof f->memory);
    const int given = gpo_stream_handle(stream, f->binding->op->name, &f->stream);
    if (given < 0) {
        return false;
    }
    f->any_foreign = true;
    f->stream_given = given;
    f->stream_owner = given ? stream : NULL;
    return true;
}

bool
gpo_wrap_foreign(frame *f, PyObject *object, const char *name, gpo_array *array,
                 gpo_foreign *foreign)
{
    const void *stream = f->stream;
    return gpo_foreign_wrap(object, f->binding->op->name, name,
                            f->stream_given ? &stream : NULL, array, foreign);
}

/* Whether viewing it runs no Python code, so that gpo_view can do it. */
static bool
is_viewed_late(const gpo_foreign *foreign)
{
    return foreign->family == GPO_OWN ||
           (foreign->family == GPO_EXCHANGE && foreign->api->view_object);
}

/* Array k, whose family is in f->store: viewed now if that runs Python code. */
static bool
take_foreign(frame *f, int k, PyObject *object, const char *name, gpo_array *array)
{
    gpo_foreign *foreign = &f->store[k];
    if (!go_foreign(f)) {
        return false;
    }
    f->foreign[k] = foreign;
    return is_viewed_late(foreign) || gpo_wrap_foreign(f, object, name, array, foreign);
}

/* ---- take: makes arrays of the inputs and out=, which may run Python code ---- */

static bool
take_input(frame *f, int i, PyObject *object)
{
    const char *name = f->binding->op->args[i].name;
    if (!PyArray_CheckExact(object)) {
        const int family = gpo_family_of(object, &f->store[i]);
        if (family < 0) {
            return false;
        }
        if (family != GPO_HOST) {
            return take_foreign(f, i, object, name, &f->call.in[i]);
        }
        f->call.in[i].weak = PyFloat_CheckExact(object) || PyLong_CheckExact(object) ||
                             PyComplex_CheckExact(object);
    }
    f->given[i] = PyLong_CheckExact(object) ? gpo_number_take(f, i, object)
                                            : gpo_array_take(object, name);
    return f->given[i] != NULL;
}

static bool
take_inputs(frame *f)
{
    const gpo_binding *b = f->binding;
    for (int i = 0; i < b->narrays; i++) {
        PyObject *object = f->value[i];
        if (object && !(object == Py_None && b->op->args[i].preset) &&
            !take_input(f, i, object)) {
            return false;
        }
        if (i > 0 && i == b->op->indices && f->foreign[i]) {
            gpo_known_see(f, object);
        }
    }
    return true;
}

static bool
take_output(frame *f, int i, PyObject *object)
{
    const int k = GPO_MAX_IN + i;
    if (object == Py_None) {
        return true;
    }
    f->caller_object[i] = object;
    if (PyArray_Check(object)) {
        return gpo_gate_host(object, "out"); /* used as it is */
    }
    const int family = gpo_family_of(object, &f->store[k]);
    if (family == GPO_HOST) {
        PyErr_Format(PyExc_TypeError, "%s(): output must be an array, not %R",
                     f->binding->op->name, (PyObject *)Py_TYPE(object));
    }
    return family > GPO_HOST && take_foreign(f, k, object, "out", &f->target[i]);
}

/* The out= of a call: NULL where none was given. */
static PyObject *
given_out(const frame *f)
{
    PyObject *out = f->value[f->binding->nargs + COMMON_OUT];
    return out == Py_None ? NULL : out;
}

static bool
raise_out_count(const frame *f, int nout)
{
    PyErr_Format(PyExc_ValueError,
                 "%s(): the 'out' tuple must have exactly one entry per output (%d)",
                 f->binding->op->name, nout);
    return false;
}

static bool
take_outputs(frame *f)
{
    const int most = f->binding->op->nout;
    PyObject *out = given_out(f);
    if (!out || !PyTuple_Check(out)) {
        return !out || take_output(f, 0, out);
    }
    if (PyTuple_Size(out) > most) {
        return raise_out_count(f, most);
    }
    for (int i = 0; i < PyTuple_Size(out); i++) {
        if (!take_output(f, i, PyTuple_GetItem(out, i))) {
            return false;
        }
    }
    return true;
}

bool
gpo_take(frame *f)
{
    return take_inputs(f) && take_outputs(f);
}

bool
gpo_check_out_count(const frame *f)
{
    const int nout = f->call.nout;
    PyObject *out = given_out(f);
    if (out && !PyTuple_Check(out) && nout > 1) {
        PyErr_Format(PyExc_TypeError, "%s(): out must be a tuple of %d arrays",
                     f->binding->op->name, nout);
        return false;
    }
    if (out && PyTuple_Check(out) && PyTuple_Size(out) != nout) {
        return raise_out_count(f, nout);
    }
    return true;
}

/* ---- view: reads dtype, shape and address of the arrays taken ---- */

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

bool
gpo_check_apart(const frame *f, const gpo_foreign *other)
{
    const gpo_foreign *like = f->like;
    if (other->id == like->id && other->device == like->device) {
        return true;
    }
    PyErr_Format(
        PyExc_TypeError,
        "%s() got arrays on different devices: %s:%d and %s:%d; move them first",
        f->binding->op->name, gpo_backend_names[like->id], like->device,
        gpo_backend_names[other->id], other->device);
    return false;
}

/* All inputs must be of one library and on one device; 0-d host arrays are exempt. */
static bool
check_together(frame *f)
{
    PyObject *host = NULL;
    for (int i = 0; i < f->binding->narrays; i++) {
        const gpo_foreign *in = f->foreign[i];
        if (!in && f->call.in[i].present && f->call.in[i].ndim > 0) {
            host = f->value[i];
        }
        else if (in && f->like == &gpo_numpy) {
            f->like = in;
        }
        else if (in && (in->family != f->like->family || in->api != f->like->api)) {
            return raise_mixed(f, f->like->object, in->object);
        }
        else if (in && !gpo_check_apart(f, in)) {
            return false;
        }
    }
    if (host && f->like != &gpo_numpy) {
        return raise_mixed(f, host, f->like->object);
    }
    f->call.device = f->like->device;
    return true;
}

static bool
view_input(frame *f, int i)
{
    const char *name = f->binding->op->args[i].name;
    gpo_array *in = &f->call.in[i];
    if (f->given[i]) {
        const bool good = gpo_pin_large(f, i, f->given[i]) &&
                          gpo_array_view(f->given[i], name, in, &f->in[i]);
        if (good && in->size == 0 &&
            (PyList_CheckExact(f->value[i]) || PyTuple_CheckExact(f->value[i]))) {
            in->weak = true; /* [] has no dtype of its own; NumPy makes it float64 */
        }
        return good;
    }
    gpo_foreign *foreign = f->foreign[i];
    return !foreign || foreign->keep ||
           gpo_wrap_foreign(f, f->value[i], name, in, foreign);
}

bool
gpo_view(frame *f)
{
    for (int i = 0; i < f->binding->narrays; i++) {
        if (!view_input(f, i)) {
            return false;
        }
    }
    return !f->any_foreign || check_together(f);
}

bool
gpo_wrap_foreign_out(frame *f, int i)
{
    gpo_foreign *out = f->foreign[GPO_MAX_IN + i];
    return out->keep ||
           gpo_wrap_foreign(f, f->caller_object[i], "out", &f->target[i], out);
}

bool
gpo_check_writeable(bool writeable)
{
    if (!writeable) {
        PyErr_SetString(PyExc_ValueError, "output array is read-only");
    }
    return writeable;
}
