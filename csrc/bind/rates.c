/*
 * rates.c  The measured costs of this machine.  gpuopt/_calibration.py measures them,
 * once per machine, and keeps them in a file.  Order: the state, reading a dict,
 * estimates, introspection.
 */
#include "rates.h"

#include "backends.h"
#include "last_call.h"
#include "module.h"
#include "objects.h"
#include "parse.h"

#include <math.h>
#include <string.h>

/* ---- the state: changed with the GIL held ---- */

typedef struct rates {
    int device; /* -1: none */
    gpo_costs costs;
    double cpu_factor[GPO_NOPS], device_factor[GPO_NOPS];
} rates;

static enum { UNKNOWN, LOADING, KNOWN, OFF } state;
static rates known = {.device = -1};
static PyObject *as_given; /* the dict that `known` was read from; NULL: none */

bool
gpo_rates_wanted(void)
{
    return state == UNKNOWN;
}

bool
gpo_rates_load(void)
{
    const gpo_last before = gpo_last_call; /* calls that measure leave no trace */
    state = LOADING;
    PyObject *load = gpo_import_attribute("gpuopt._calibration", "load");
    PyObject *done = load ? PyObject_CallFunctionObjArgs(load, NULL) : NULL;
    gpo_last_call = before;
    if (state == LOADING) { /* it failed: the next call tries again */
        state = UNKNOWN;
    }
    Py_XDECREF(load);
    Py_XDECREF(done);
    return done != NULL;
}

int
gpo_rates_device(void)
{
    return known.device;
}

/* ---- reading a dict ---- */

/* A positive finite number; false with an exception set. */
static bool
read_positive(PyObject *dict, const char *key, double *out)
{
    PyObject *value = PyDict_GetItemString(dict, key); /* borrowed */
    if (!value) {
        PyErr_Format(PyExc_ValueError, "rates lack '%s'", key);
        return false;
    }
    *out = PyFloat_AsDouble(value);
    if (PyErr_Occurred()) {
        return false;
    }
    if (!(*out > 0 && isfinite(*out))) {
        PyErr_Format(PyExc_ValueError, "rates['%s'] must be positive (got %R)", key,
                     value);
        return false;
    }
    return true;
}

/* A rate in 1e9 units per second as seconds per unit. */
static bool
read_rate(PyObject *dict, const char *key, double *out)
{
    double rate = 1;
    const bool good = read_positive(dict, key, &rate);
    *out = 1e-9 / rate;
    return good;
}

/* Factors by the name of an operator; 1 for those that are left out. */
static bool
read_factors(PyObject *dict, const char *key, double factors[GPO_NOPS])
{
    PyObject *named = PyDict_GetItemString(dict, key); /* borrowed */
    if (!named || !PyDict_Check(named)) {
        PyErr_Format(PyExc_ValueError, "rates['%s'] must be a dict", key);
        return false;
    }
    for (int i = 0; i < GPO_NOPS; i++) {
        const char *name = gpo_bindings[i].op->name;
        factors[i] = 1;
        if (PyDict_GetItemString(named, name) &&
            !read_positive(named, name, &factors[i])) {
            return false;
        }
    }
    return true;
}

static bool
read_rates(PyObject *dict, rates *out)
{
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "rates must be a dict, None or 'off'");
        return false;
    }
    PyObject *backend = PyDict_GetItemString(dict, "backend"); /* borrowed */
    out->device = backend ? gpo_backend_from_name(backend) : GPO_CPU;
    if (out->device == GPO_CPU) {
        PyErr_SetString(PyExc_ValueError, "rates['backend'] must be 'cuda' or 'sim'");
    }
    gpo_costs *c = &out->costs;
    return out->device > GPO_CPU && read_positive(dict, "cpu_call_s", &c->cpu_call) &&
           read_rate(dict, "cpu_gb_per_s", &c->cpu_byte) &&
           read_rate(dict, "cpu_gflop_per_s", &c->cpu_flop) &&
           read_positive(dict, "device_call_s", &c->device_call) &&
           read_rate(dict, "device_gb_per_s", &c->device_byte) &&
           read_rate(dict, "device_gflop_per_s", &c->device_flop) &&
           read_rate(dict, "up_gb_per_s", &c->up_byte) &&
           read_rate(dict, "down_gb_per_s", &c->down_byte) &&
           read_factors(dict, "cpu_factors", out->cpu_factor) &&
           read_factors(dict, "device_factors", out->device_factor);
}

/* ---- estimates ---- */

static double
bytes_of(const gpo_array *array)
{
    return (double)array->size * gpo_dtypes[array->dtype].bytes;
}

gpo_estimate
gpo_rates_estimate(const gpo_call *call, int op)
{
    gpo_cost cost = {0, 0, 0};
    call->op->cost(call, &cost);
    gpo_load load = {
        .bytes = cost.read_bytes + cost.written_bytes,
        .flops = cost.flops,
        .cpu_factor = known.cpu_factor[op],
        .device_factor = known.device_factor[op],
    };
    for (int i = 0; i < GPO_MAX_IN; i++) {
        load.up_bytes += call->in[i].present ? bytes_of(&call->in[i]) : 0;
    }
    for (int i = 0; i < call->nout; i++) {
        load.down_bytes += bytes_of(&call->out[i]);
    }
    return gpo_weigh(&known.costs, &load);
}

/* ---- introspection ---- */

PyDoc_STRVAR(set_rates_doc, "_set_rates(rates, /)\n--\n\n"
                            "Place calls on host arrays by these costs: a dict as of "
                            "_calibration.measure().\n\n"
                            "None: unknown, the next call that needs them reads or "
                            "measures them; 'off': there\n"
                            "are none, and such calls run on the GPU if there is one.");

static PyObject *
set_rates(PyObject *module, PyObject *object)
{
    (void)module;
    rates fresh = {.device = -1};
    const bool off =
        PyUnicode_Check(object) && PyUnicode_CompareWithASCIIString(object, "off") == 0;
    const bool given = object != Py_None && !off;
    if (given && !read_rates(object, &fresh)) {
        return NULL;
    }
    PyObject *copy = given ? PyDict_Copy(object) : NULL;
    if (given && !copy) {
        return NULL;
    }
    known = fresh;
    state = given ? KNOWN : off ? OFF : UNKNOWN;
    Py_XDECREF(as_given);
    as_given = copy;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(rates_doc,
             "_rates()\n--\n\n"
             "The costs in use, a dict; 'off'; None while they are unknown.");

static PyObject *
get_rates(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (as_given) {
        return PyDict_Copy(as_given);
    }
    return state == OFF ? PyUnicode_FromString("off") : Py_NewRef(Py_None);
}

PyDoc_STRVAR(load_rates_doc,
             "_load_rates()\n--\n\n"
             "Make the costs known, as the first call that needs them does.");

static PyObject *
load_rates(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return gpo_rates_load() ? Py_NewRef(Py_None) : NULL;
}

PyDoc_STRVAR(weigh_doc,
             "_weigh(rates, op, up_bytes, down_bytes, moved_bytes, flops, /)\n--\n\n"
             "Milliseconds of a call on the CPU and on the device, by these costs.");

static PyObject *
weigh(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *dict, *name;
    gpo_load load;
    rates r;
    if (!PyArg_ParseTuple(args, "OOdddd:_weigh", &dict, &name, &load.up_bytes,
                          &load.down_bytes, &load.bytes, &load.flops)) {
        return NULL;
    }
    const gpo_binding *b = gpo_binding_find(name);
    if (!b || !read_rates(dict, &r)) {
        return NULL;
    }
    load.cpu_factor = r.cpu_factor[b - gpo_bindings];
    load.device_factor = r.device_factor[b - gpo_bindings];
    const gpo_estimate e = gpo_weigh(&r.costs, &load);
    return Py_BuildValue("(dd)", 1e3 * e.cpu, 1e3 * e.device);
}

PyDoc_STRVAR(device_name_doc,
             "_device_name(backend, /)\n--\n\n"
             "The name of the backend's first device, such as 'NVIDIA H200'.");

static PyObject *
device_name(PyObject *module, PyObject *object)
{
    (void)module;
    const int id = gpo_backend_from_name(object);
    if (id < 0 || !gpo_check_device((gpo_backend_id)id, 0)) {
        return NULL;
    }
    char name[GPO_DEVICE_NAME];
    gpo_device_of((gpo_backend_id)id)->name(0, name);
    return PyUnicode_DecodeUTF8(name, (Py_ssize_t)strlen(name), "replace");
}

static PyMethodDef methods[] = {
    {"_set_rates", set_rates, METH_O, set_rates_doc},
    {"_rates", get_rates, METH_NOARGS, rates_doc},
    {"_load_rates", load_rates, METH_NOARGS, load_rates_doc},
    {"_weigh", weigh, METH_VARARGS, weigh_doc},
    {"_device_name", device_name, METH_O, device_name_doc},
    {NULL, NULL, 0, NULL},
};

int
gpo_rates_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
