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

/* numpy.<name>, a new reference; NULL with an exception set. */
static PyObject *
numpy_attribute(const char *module, const char *name)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *attribute = imported ? PyObject_GetAttrString(imported, name) : NULL;
    Py_XDECREF(imported);
    return attribute;
}

/* numpy.errstate(all="ignore"), entered: inf in a transform is the room's business. */
static PyObject *
enter_silence(void)
{
    PyObject *class = numpy_attribute("numpy", "errstate");
    PyObject *none = PyTuple_New(0);
    PyObject *all = Py_BuildValue("{s:s}", "all", "ignore");
    PyObject *silence = class && none && all ? PyObject_Call(class, none, all) : NULL;
    PyObject *entered =
        silence ? PyObject_CallMethod(silence, "__enter__", NULL) : NULL;
    if (!entered) {
        Py_CLEAR(silence);
    }
    Py_XDECREF(entered);
    Py_XDECREF(all);
    Py_XDECREF(none);
    Py_XDECREF(class);
    return silence;
}

/* Keeps the exception that is set, if one is. */
static bool
leave_silence(PyObject *silence)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *left =
        PyObject_CallMethod(silence, "__exit__", "OOO", Py_None, Py_None, Py_None);
    const bool good = left != NULL;
    Py_XDECREF(left);
    Py_DECREF(silence);
    if (type) {
        PyErr_Restore(type, value, traceback);
    }
    return good;
}

/*
 * A transform that finds no memory returns NULL without an exception or a result with
 * one, of which Python makes a SystemError (NumPy 2.4); right arguments cause no other.
 */
static void
undo_system_error(const char *name)
{
    PyObject *type, *value, *traceback;
    if (!PyErr_ExceptionMatches(PyExc_SystemError)) {
        return;
    }
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_Format(PyExc_MemoryError, "numpy.fft.%s: %S", name, value ? value : type);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
}

/* numpy.fft.<name>(from, n, -1, None, to); false with an exception set. */
static bool
transform(const char *name, PyObject *from, int64_t n, PyObject *to)
{
    PyObject *function = numpy_attribute("numpy.fft", name);
    PyObject *silence = function ? enter_silence() : NULL;
    PyObject *answer = NULL;
    bool good = silence != NULL;
    if (good) {
        answer = PyObject_CallFunction(function, "OLiOO", from, (long long)n, -1,
                                       Py_None, to);
        if (!answer) {
            undo_system_error(name);
        }
        good = leave_silence(silence) && answer;
    }
    Py_XDECREF(answer);
    Py_XDECREF(function);
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
