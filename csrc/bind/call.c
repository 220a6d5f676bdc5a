/*
 * call.c  One call of any operator, in the order it happens: parse, take, view, shape,
 * choose, place, run (run.c), return.  A step that fails sets a Python exception and
 * returns false; the frame owns everything that must be released.
 *
 * Parsing options (options.c) and taking arrays may run any Python code, which may
 * resize an array that was taken before.  All of it is done before a view reads the
 * first shape or address, and from there on to the result no such code runs.
 */
#include "call.h"

#include <string.h>

/* Of a call that is alone; those within it, or beside it, take theirs from the heap. */
static _Alignas(64) frame first;
static frame *spare = &first; /* for the next call; changed with the GIL held */

/* A frame that frame_free takes at any later moment; NULL with MemoryError set. */
static frame *
frame_new(gpo_binding *binding)
{
    frame *f = spare;
    spare = NULL;
    if (!f) {
        f = PyMem_Malloc(sizeof *f);
    }
    if (!f) {
        PyErr_NoMemory();
        return NULL;
    }
    f->binding = binding;
    f->is_away = false;
    f->packed = false;
    f->why[0] = 0;
    for (int i = 0; i < GPO_MAX_IN; i++) {
        f->given[i] = f->in[i] = NULL;
        f->beyond[i] = false;
    }
    for (int k = 0; k < GPO_MAX_IN + GPO_MAX_OUT; k++) {
        f->pin[k] = NULL;
    }
    for (int i = 0; i < GPO_MAX_OUT; i++) {
        f->out[i] = f->caller_out[i] = NULL;
        f->caller_object[i] = NULL;
    }
    gpo_call_init(&f->call, binding->op);
    return f;
}

static void
frame_free(frame *f)
{
    for (int i = 0; i < GPO_MAX_IN; i++) {
        Py_XDECREF(f->pin[i]);
        Py_XDECREF((PyObject *)f->given[i]);
        Py_XDECREF((PyObject *)f->in[i]);
    }
    for (int i = 0; i < GPO_MAX_OUT; i++) {
        Py_XDECREF(f->pin[GPO_MAX_IN + i]);
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
    if (f != &first) {
        PyMem_Free(f);
    }
    else {
        spare = f;
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
        else if (!gpo_option_parse(object, b->op->name, &b->op->args[i], out)) {
            return false;
        }
    }
    return true;
}

/* ---- take: inputs and out= as arrays, by whatever code makes them so ---- */

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

/* Whether a view of it runs no Python code, and so is late enough. */
static bool
is_viewed_late(const gpo_foreign *foreign)
{
    return foreign->family == GPO_OWN ||
           (foreign->family == GPO_EXCHANGE && foreign->api->view_object);
}

/* An array of another library: known by its family, viewed now if that asks it. */
static bool
take_away(frame *f, PyObject *object, const char *name, const gpo_foreign *family,
          gpo_array *array, gpo_foreign *foreign)
{
    if (!go_away(f)) {
        return false;
    }
    *foreign = *family;
    return is_viewed_late(foreign) || wrap_away(f, object, name, array, foreign);
}

/*
 * A Python int as an array of int64 or uint64.  The shape rule sees the nearest number
 * there is in place of one beyond both; check_numbers looks at the exact one.
 */
static PyArrayObject *
take_int(frame *f, int i, PyObject *object)
{
    const char *name = f->binding->op->args[i].name;
    int side = 0;
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

static bool
take_input(frame *f, int i, PyObject *object)
{
    const char *name = f->binding->op->args[i].name;
    if (!PyArray_CheckExact(object)) {
        gpo_foreign foreign;
        const int family = gpo_family_of(object, &foreign);
        if (family < 0) {
            return false;
        }
        if (family != GPO_HOST) {
            return take_away(f, object, name, &foreign, &f->call.in[i], &f->away.in[i]);
        }
        f->call.in[i].weak = PyFloat_CheckExact(object) || PyLong_CheckExact(object) ||
                             PyComplex_CheckExact(object);
    }
    f->given[i] = PyLong_CheckExact(object) ? take_int(f, i, object)
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
    }
    return true;
}

static bool
take_output(frame *f, int i, PyObject *object)
{
    gpo_foreign foreign;
    if (object == Py_None) {
        return true;
    }
    if (PyArray_Check(object)) {
        return gpo_gate_host(object, "out"); /* viewed as it is */
    }
    const int family = gpo_family_of(object, &foreign);
    if (family == GPO_HOST) {
        PyErr_Format(PyExc_TypeError, "%s(): output must be an array, not %R",
                     f->binding->op->name, (PyObject *)Py_TYPE(object));
    }
    return family > GPO_HOST &&
           take_away(f, object, "out", &foreign, &f->away.target[i], &f->away.out[i]);
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

/* Does `step` for each array of out=. */
static bool
for_outputs(frame *f, bool (*step)(frame *f, int i, PyObject *object))
{
    const int most = f->binding->op->nout;
    PyObject *out = given_out(f);
    if (!out || !PyTuple_Check(out)) {
        return !out || step(f, 0, out);
    }
    if (PyTuple_Size(out) > most) {
        return out_counts(f, most);
    }
    for (int i = 0; i < PyTuple_Size(out); i++) {
        if (!step(f, i, PyTuple_GetItem(out, i))) {
            return false;
        }
    }
    return true;
}

/* ---- view: dtype, shape and address of what was taken ---- */

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
    f->given[i] = gpo_foreign_ndarray(&array, &f->away.in[i]);
    return f->given[i] && gpo_array_view(f->given[i], f->binding->op->args[i].name,
                                         &f->call.in[i], &f->in[i]);
}

/* After all inputs are viewed and one of them is not the host's. */
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

bool
gpo_pin(frame *f, int k)
{
    PyArrayObject *array = k < GPO_MAX_IN ? f->given[k] : f->caller_out[k - GPO_MAX_IN];
    PyObject *owner = (PyObject *)array;
    for (PyObject *base = owner; base && PyArray_Check(base);
         base = PyArray_BASE((PyArrayObject *)base)) {
        owner = base; /* of the memory: the array that could be resized */
    }
    if (owner && !f->pin[k]) {
        f->pin[k] = PyWeakref_NewRef(owner, NULL);
    }
    return !owner || f->pin[k];
}

/* Pins an array that is large enough for NumPy to copy it without the GIL. */
static bool
pin_large(frame *f, int k, PyArrayObject *array)
{
    enum { PINNED_BYTES = 4096 }; /* NumPy keeps the GIL for 500 elements */
    return PyArray_NBYTES(array) < PINNED_BYTES || gpo_pin(f, k);
}

static bool
view_input(frame *f, int i)
{
    const char *name = f->binding->op->args[i].name;
    gpo_array *in = &f->call.in[i];
    if (f->given[i]) {
        const bool good = pin_large(f, i, f->given[i]) &&
                          gpo_array_view(f->given[i], name, in, &f->in[i]);
        if (good && in->size == 0 &&
            (PyList_CheckExact(f->value[i]) || PyTuple_CheckExact(f->value[i]))) {
            in->weak = true; /* [] says nothing of its elements; NumPy's is float64 */
        }
        return good;
    }
    gpo_foreign *foreign = &f->away.in[i];
    return !f->is_away || !foreign->object || foreign->keep ||
           wrap_away(f, f->value[i], name, in, foreign);
}

static bool
view_inputs(frame *f)
{
    bool any_away = false;
    for (int i = 0; i < f->binding->narrays; i++) {
        if (!view_input(f, i)) {
            return false;
        }
        any_away = any_away || (f->is_away && f->away.in[i].object);
    }
    return !any_away || settle_away(f);
}

/* out= of another library, or a DeviceArray. */
static bool
view_away_output(frame *f, int i, PyObject *object)
{
    away *w = &f->away;
    gpo_foreign *out = &w->out[i];
    if (!out->keep && !wrap_away(f, object, "out", &w->target[i], out)) {
        return false;
    }
    if (!w->first && out->id == GPO_CPU) { /* host inputs: a view does */
        w->first = out;
    }
    else if (!w->first) {
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
view_output(frame *f, int i, PyObject *object)
{
    if (object == Py_None) {
        return true;
    }
    if (!PyArray_Check(object)) {
        return view_away_output(f, i, object);
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
    return pin_large(f, GPO_MAX_IN + i, out);
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

/* numpy.shares_memory(a, b); true where it is too hard to say, or says nothing. */
static bool
ask_shared(PyArrayObject *a, PyArrayObject *b)
{
    /* Plain views: a subclass could answer with code of its own. */
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

/* Whether two ndarrays have bytes in common; NumPy decides the close cases. */
static bool
share_memory(PyArrayObject *a, PyArrayObject *b)
{
    const char *a_low, *a_high, *b_low, *b_high;
    span(a, &a_low, &a_high);
    span(b, &b_low, &b_high);
    return a_low != a_high && b_low != b_high && a_high > b_low && b_high > a_low &&
           ask_shared(a, b);
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

/* Whether two ndarrays are the same elements in the same order and the same format. */
static bool
same_elements(PyArrayObject *a, PyArrayObject *b)
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

/* The same of two arrays on a device. */
static bool
same_on_device(const gpo_array *a, const gpo_array *b)
{
    bool same = a->data == b->data && a->dtype == b->dtype && gpo_same_shape(a, b);
    for (int d = 0; same && d < a->ndim; d++) {
        same = a->shape[d] <= 1 || a->strides[d] == b->strides[d];
    }
    return same;
}

/*
 * Whether input k and the caller's out= number i are the very same elements.  What the
 * caller holds counts: a copy in native layout, or in another dtype, is no danger.
 */
static bool
output_is_input(const frame *f, int k, int i)
{
    if (f->is_away && f->away.on_device) {
        return same_on_device(&f->call.in[k], &f->away.target[i]);
    }
    return f->given[k] && same_elements(f->given[k], f->caller_out[i]);
}

/* Whether input k shares memory with the caller's out= number i. */
static bool
output_overlaps(const frame *f, int k, int i)
{
    if (f->is_away && f->away.on_device) {
        return f->call.in[k].present && spans_meet(&f->call.in[k], &f->away.target[i]);
    }
    return f->given[k] && share_memory(f->given[k], f->caller_out[i]);
}

/* Whether the caller's out= number i shares memory with an earlier one. */
static bool
outputs_overlap(const frame *f, int i)
{
    const bool on_device = f->is_away && f->away.on_device;
    bool meet = false;
    for (int k = 0; k < i && !meet; k++) {
        meet = f->caller_object[k] &&
               (on_device ? spans_meet(&f->away.target[k], &f->away.target[i])
                          : share_memory(f->caller_out[k], f->caller_out[i]));
    }
    if (meet) {
        PyErr_Format(PyExc_ValueError,
                     "%s(): the arrays of out share memory with each other",
                     f->binding->op->name);
    }
    return meet;
}

/*
 * A rule that computes in another dtype than that of out=, as NumPy's sums do, says so
 * in out_given: the result is cast into it at the end, and nothing is amiss here.
 */
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
    return !outputs_overlap(f, i);
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

/* Whether an integer dtype holds the Python int that input i came as. */
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

/*
 * A Python int takes the dtype of the arrays beside it: one that this dtype does not
 * hold is an error, in NumPy's words.  The shape rule drops what does not count.
 */
static bool
check_numbers(const frame *f)
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
        if (!digits) { /* thousands of them */
            PyErr_Clear();
        }
        PyErr_Format(PyExc_OverflowError, "Python integer %V out of bounds for %s",
                     digits, "of many digits", gpo_dtypes[dtype].name);
        Py_XDECREF(digits);
        return false;
    }
    return true;
}

/* Input i as an array of the dtype that the shape rule wants. */
static PyArrayObject *
converted(const frame *f, int i)
{
    const gpo_dtype dtype = f->call.convert[i];
    const char kind = gpo_dtypes[dtype].kind;
    return (kind == 'f' || kind == 'c') && PyLong_CheckExact(f->value[i])
               ? gpo_array_of_number(f->value[i], dtype)
               : gpo_array_converted(f->in[i], dtype);
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
        PyArrayObject *array = converted(f, i);
        if (!array) {
            return false;
        }
        Py_DECREF((PyObject *)f->in[i]);
        f->in[i] = NULL;
        const bool good = gpo_array_view(array, f->binding->op->args[i].name,
                                         &f->call.in[i], &f->in[i]);
        Py_DECREF((PyObject *)array);
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
    gpo_raise_variant(op, name, hint);
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
        return gpo_raise_type(name, op->name, "variant", "a str");
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

/* Whether the result can be written where it goes: in order, aligned and uncast. */
static bool
plain(PyArrayObject *a, gpo_dtype dtype)
{
    return PyArray_IS_C_CONTIGUOUS(a) && PyArray_ISBEHAVED(a) &&
           gpo_dtype_from_descr(PyArray_DESCR(a)) == dtype;
}

static bool
place_outputs(frame *f)
{
    for (int i = 0; i < f->call.nout; i++) {
        gpo_array *out = &f->call.out[i];
        if (f->caller_out[i] && plain(f->caller_out[i], out->dtype)) {
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
    return parse(f, args, nargs, kwnames) && parse_options(f) && take_inputs(f) &&
           for_outputs(f, take_output) && view_inputs(f) &&
           for_outputs(f, view_output) && apply_shape_rule(f) && check_numbers(f);
}

/*
 * A frame for one call, NULL with an exception set.  An argument's __array__ may make
 * a call of its own, and so on: Python counts the depth.
 */
static frame *
enter(gpo_binding *binding)
{
    if (Py_EnterRecursiveCall(" while calling a gpuopt operator")) {
        return NULL;
    }
    frame *f = frame_new(binding);
    if (!f) {
        Py_LeaveRecursiveCall();
    }
    return f;
}

static void
leave(frame *f)
{
    frame_free(f);
    Py_LeaveRecursiveCall();
}

PyObject *
gpo_op_call(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    PyObject *answer = NULL;
    frame *f = enter(binding);
    if (!f) {
        return NULL;
    }
    if (prepare(f, args, nargs, kwnames) && convert_inputs(f) && choose(f) &&
        check_stream(f) && place_outputs(f) &&
        (!f->call.backend->device_memory || (f->is_away && f->away.on_device) ||
         pack_inputs(f)) &&
        gpo_execute(f)) {
        answer = results(f);
    }
    leave(f);
    return answer;
}

/* What plan() tells of a call that is prepared. */
static PyObject *
describe(const frame *f, const gpo_cost *cost)
{
    PyObject *answer = NULL, *outputs = PyList_New(0);
    for (int i = 0; outputs && i < f->call.nout; i++) {
        const gpo_array *out = &f->call.out[i];
        const gpo_dtype dtype =
            f->caller_out[i] ? gpo_dtype_from_descr(PyArray_DESCR(f->caller_out[i]))
            : f->caller_object[i] ? f->away.target[i].dtype
                                  : out->dtype;
        PyObject *row = Py_BuildValue("(Ns)", gpo_shape_tuple(out->ndim, out->shape),
                                      gpo_dtypes[dtype].name);
        if (!row || PyList_Append(outputs, row) < 0) {
            Py_CLEAR(outputs);
        }
        Py_XDECREF(row);
    }
    if (outputs) {
        answer = Py_BuildValue("{s:s,s:s,s:s,s:d,s:d,s:d,s:O}", "backend",
                               f->call.backend->name, "variant", f->call.variant->name,
                               "why", f->why, "read_bytes", cost->read_bytes,
                               "written_bytes", cost->written_bytes, "flops",
                               cost->flops, "outputs", outputs);
    }
    Py_XDECREF(outputs);
    return answer;
}

PyObject *
gpo_op_plan(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
            PyObject *kwnames)
{
    PyObject *answer = NULL;
    frame *f = enter(binding);
    if (!f) {
        return NULL;
    }
    if (prepare(f, args, nargs, kwnames)) {
        gpo_cost cost = {0, 0, 0};
        binding->op->cost(&f->call, &cost);
        for (int i = 0; i < GPO_MAX_IN; i++) {
            if (f->call.convert[i] != GPO_NONE) { /* choose as the call itself would */
                f->call.in[i].dtype = f->call.convert[i];
            }
        }
        answer = choose(f) ? describe(f, &cost) : NULL;
    }
    leave(f);
    return answer;
}
