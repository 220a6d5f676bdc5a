/*
 * fft.c  core/fft.h by numpy.fft: the calling thread takes the GIL back for the time of
 * a transform.  Nothing is kept between calls, so a fork or another interpreter finds
 * nothing of this one.
 */
#include "bind.h"

#include "../core/fft.h"

/* `rows` rows of `n` numbers at `data`, which the array does not own. */
static PyObject *
view(void *data, int64_t rows, int64_t n, bool is_complex, bool writeable)
{
    npy_intp shape[] = {(npy_intp)rows, (npy_intp)n};
    return PyArray_New(&PyArray_Type, 2, shape, is_complex ? NPY_CDOUBLE : NPY_DOUBLE,
                       NULL, data, 0,
                       writeable ? NPY_ARRAY_CARRAY : NPY_ARRAY_CARRAY_RO, NULL);
}

/* numpy.fft.<name>(from, n, -1, None, to); false with an exception set. */
static bool
transform(const char *name, PyObject *from, int64_t n, PyObject *to)
{
    PyObject *module = PyImport_ImportModule("numpy.fft");
    PyObject *function = module ? PyObject_GetAttrString(module, name) : NULL;
    PyObject *answer = NULL;
    if (function) {
        answer = PyObject_CallFunction(function, "OLiOO", from, (long long)n, -1,
                                       Py_None, to);
    }
    const bool good = answer != NULL;
    Py_XDECREF(answer);
    Py_XDECREF(function);
    Py_XDECREF(module);
    return good && PyErr_CheckSignals() == 0;
}

static bool
with_gil(gpo_fft_kind kind, int64_t rows, int64_t n, const double *from, double *to)
{
    static const struct {
        const char *name;
        bool from_complex, to_complex;
    } kinds[] = {
        [GPO_FFT_FORWARD] = {"fft", true, true},
        [GPO_FFT_INVERSE] = {"ifft", true, true},
        [GPO_RFFT_FORWARD] = {"rfft", false, true},
        [GPO_RFFT_INVERSE] = {"irfft", true, false},
    };
    const bool inverse = kind == GPO_RFFT_INVERSE, real = kind == GPO_RFFT_FORWARD;
    PyObject *in = view((void *)(uintptr_t)from, rows, inverse ? n / 2 + 1 : n,
                        kinds[kind].from_complex, false);
    PyObject *out = view(to, rows, real ? n / 2 + 1 : n, kinds[kind].to_complex, true);
    const bool good = in && out && transform(kinds[kind].name, in, n, out);
    Py_XDECREF(in);
    Py_XDECREF(out);
    return good;
}

gpo_status
gpo_fft(gpo_call *call, gpo_fft_kind kind, int64_t rows, int64_t n, const double *from,
        double *to)
{
    (void)call;
    /* What runs meanwhile, a signal's handler, say, may make calls of its own. */
    PyThreadState *released = gpo_released;
    if (released) {
        gpo_released = NULL;
        PyEval_RestoreThread(released);
    }
    const bool good = with_gil(kind, rows, n, from, to);
    if (released) {
        gpo_released = PyEval_SaveThread();
    }
    return good ? GPO_OK : GPO_EPYTHON;
}
