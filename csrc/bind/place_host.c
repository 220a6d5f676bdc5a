/*
 * place_host.c  Calls on host memory, of NumPy or another library, by the CPU, which
 * computes in place.  Arrays of other libraries are viewed as ndarrays first.
 * Order: wrap, check_out, convert, place, run, result.
 * See place_copy.c for copies to a device, results.c for memory for results.
 */
#include "place_host.h"

#include "array.h"
#include "backends.h"
#include "errors.h"
#include "gate.h"
#include "overlap.h"
#include "run.h"
#include "take.h"

/* ---- wrap ---- */

static bool
wrap_input(frame *f, int i)
{
    const gpo_array array = f->call.in[i];
    f->given[i] = gpo_foreign_ndarray(&array, f->foreign[i]);
    return f->given[i] && gpo_array_view(f->given[i], f->binding->op->args[i].name,
                                         &f->call.in[i], &f->in[i]);
}

/* A NumPy array as out=. */
static bool
wrap_ndarray_out(frame *f, int i)
{
    PyArrayObject *out = (PyArrayObject *)f->caller_object[i];
    if (!gpo_check_writeable(PyArray_ISWRITEABLE(out))) {
        return false;
    }
    f->caller_dtype[i] = gpo_dtype_from_descr(PyArray_DESCR(out));
    if (f->caller_dtype[i] == GPO_NONE) {
        PyErr_Format(PyExc_TypeError,
                     "out has dtype '%S', which gpuopt does not support",
                     PyArray_DESCR(out));
        return false;
    }
    f->caller_out[i] = out;
    return gpo_pin_large(f, GPO_MAX_IN + i, out);
}

/* An array of another library as out=: it then decides the library of all results. */
static bool
wrap_foreign_out(frame *f, int i)
{
    gpo_foreign *out = f->foreign[GPO_MAX_IN + i];
    if (!gpo_wrap_foreign_out(f, i)) {
        return false;
    }
    if (f->like == &gpo_numpy && out->id != GPO_CPU) {
        PyErr_Format(PyExc_TypeError,
                     "%s(): out is on %s:%d, the inputs are host arrays; "
                     "gpuopt.asdevice() moves them",
                     f->binding->op->name, gpo_backend_names[out->id], out->device);
        return false;
    }
    if (f->like == &gpo_numpy) {
        f->like = out;
    }
    if (!gpo_check_apart(f, out) || !gpo_check_writeable(!out->readonly)) {
        return false;
    }
    PyArrayObject *view = gpo_foreign_ndarray(&f->target[i], out);
    if (!view) {
        return false;
    }
    Py_DECREF(out->keep);
    out->keep = (PyObject *)view; /* it holds a reference to the old `keep` */
    f->caller_out[i] = view;
    f->caller_dtype[i] = f->target[i].dtype;
    return true;
}

bool
gpo_host_wrap(frame *f)
{
    for (int i = 0; i < f->binding->narrays && f->any_foreign; i++) {
        if (f->foreign[i] && !wrap_input(f, i)) {
            return false;
        }
    }
    for (int i = 0; i < f->binding->op->nout; i++) {
        if (f->caller_object[i] &&
            !(f->foreign[GPO_MAX_IN + i] ? wrap_foreign_out(f, i)
                                         : wrap_ndarray_out(f, i))) {
            return false;
        }
    }
    return true;
}

/* ---- check_out ---- */

/* Checks the arrays that were passed: a copy in native layout cannot overlap. */
bool
gpo_host_check_out(const frame *f, int i)
{
    PyArrayObject *out = f->caller_out[i];
    if (!gpo_ndarray_has_shape(out, &f->call.out[i])) {
        PyObject *shape = PyObject_GetAttrString((PyObject *)out, "shape");
        return gpo_raise_out_shape(shape, &f->call.out[i]);
    }
    for (int k = 0; k < f->binding->narrays; k++) {
        PyArrayObject *in = f->given[k];
        const bool may_be = f->binding->op->in_place >> k & 1u;
        if (in && !(may_be && gpo_ndarrays_same(in, out)) &&
            gpo_ndarrays_overlap(in, out)) {
            return gpo_raise_out_overlap(f, k);
        }
    }
    for (int k = 0; k < i; k++) {
        if (f->caller_out[k] && gpo_ndarrays_overlap(f->caller_out[k], out)) {
            return gpo_raise_outs_overlap(f);
        }
    }
    return true;
}

/* ---- convert ---- */

/* Input i as an array of the dtype that the shape rule requests. */
static PyArrayObject *
converted(const frame *f, int i)
{
    const gpo_dtype dtype = f->call.convert[i];
    const char kind = gpo_dtypes[dtype].kind;
    return (kind == 'f' || kind == 'c') && PyLong_CheckExact(f->value[i])
               ? gpo_array_of_number(f->value[i], dtype)
               : gpo_array_converted(f->in[i], dtype);
}

bool
gpo_host_convert(frame *f, int i)
{
    PyArrayObject *array = converted(f, i);
    if (!array) {
        return false;
    }
    Py_DECREF((PyObject *)f->in[i]);
    f->in[i] = NULL;
    const bool good =
        gpo_array_view(array, f->binding->op->args[i].name, &f->call.in[i], &f->in[i]);
    Py_DECREF((PyObject *)array);
    return good;
}

/* ---- place ---- */

static bool
check_stream(const frame *f)
{
    PyObject *stream = f->value[f->binding->nargs + COMMON_STREAM];
    if (stream && stream != Py_None) {
        PyErr_Format(PyExc_ValueError,
                     "%s() takes stream= for arrays on the GPU; these are host arrays, "
                     "and the call waits for its result",
                     f->binding->op->name);
        return false;
    }
    return true;
}

/* Whether a result can be written directly: C-contiguous, aligned, the same dtype. */
static bool
is_plain(PyArrayObject *a, gpo_dtype dtype)
{
    return PyArray_IS_C_CONTIGUOUS(a) && PyArray_ISBEHAVED(a) &&
           gpo_dtype_from_descr(PyArray_DESCR(a)) == dtype;
}

bool
gpo_host_place(frame *f)
{
    if (!check_stream(f)) {
        return false;
    }
    for (int i = 0; i < f->call.nout; i++) {
        gpo_array *out = &f->call.out[i];
        PyArrayObject *caller = f->caller_out[i];
        if (!caller) {
            if (!gpo_result_alloc(f->like, out, &f->made[i])) {
                return false;
            }
            continue;
        }
        f->out[i] = is_plain(caller, out->dtype)
                        ? (PyArrayObject *)Py_NewRef((PyObject *)caller)
                        : gpo_array_new(out);
        if (!f->out[i]) {
            return false;
        }
        out->data = PyArray_DATA(f->out[i]);
    }
    return true;
}

/* ---- run ---- */

/* Whether the call is so small that releasing the GIL does not pay off. */
static bool
is_little(const frame *f)
{
    enum { GIL_BYTES = 1 << 16 };
    int64_t bytes = 0;
    for (int i = 0; i < f->binding->narrays; i++) {
        const gpo_array *in = &f->call.in[i];
        if (in->present) {
            bytes += in->size * gpo_dtypes[in->dtype].bytes;
        }
    }
    return bytes < GIL_BYTES;
}

static bool
run(frame *f)
{
    gpo_call *call = &f->call;
    gpo_last last = gpo_unmeasured;
    const bool alone = is_little(f);
    if (!alone && !gpo_let_go(f)) {
        return false;
    }
    gpo_status status = call->backend->begin(call);
    if (!status) {
        const double start = gpo_measuring ? gpo_milliseconds() : 0;
        status = call->variant->run[call->in[call->op->by].dtype](call);
        if (gpo_measuring) {
            last.kernel_ms = gpo_milliseconds() - start;
        }
        call->backend->end(call);
    }
    if (!alone) {
        gpo_take_back();
    }
    return gpo_run_end(f, status, &last);
}

/* ---- result ---- */

PyObject *
gpo_host_result(frame *f, int i)
{
    if (!f->caller_object[i]) {
        return gpo_result_finish(f->like, &f->made[i]);
    }
    if (f->out[i] != f->caller_out[i] &&
        PyArray_CopyInto(f->caller_out[i], f->out[i]) < 0) {
        return NULL;
    }
    if (f->foreign[GPO_MAX_IN + i]) {
        gpo_gate_written(f->caller_object[i]);
    }
    return Py_NewRef(f->caller_object[i]);
}

const gpo_placement gpo_place_host = {
    .wrap = gpo_host_wrap,
    .check_out = gpo_host_check_out,
    .convert = gpo_host_convert,
    .place = gpo_host_place,
    .run = run,
    .result = gpo_host_result,
};
