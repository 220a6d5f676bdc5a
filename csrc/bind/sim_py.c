/*
 * sim_py.c  The simulator's settings, state and report as Python functions:
 * _sim_configure, _sim_report, _sim_reset, _sim_state.  gpuopt/lab/profile.py and the
 * tests use them.
 */
#include "module.h"

#include "../backend/sim.h"

#include <string.h>

/* ---- settings ---- */

static PyObject *
config_dict(void)
{
    gpo_sim_config c;
    gpo_sim_get_config(&c);
    return Py_BuildValue(
        "{s:s,s:k,s:L,s:L,s:L,s:i,s:N,s:N}", "schedule", gpo_sim_schedules[c.schedule],
        "seed", (unsigned long)c.seed, "first_block", (long long)c.first_block,
        "fail_after", (long long)c.fail_after, "max_threads", (long long)c.max_threads,
        "resident", c.resident, "checks", PyBool_FromLong(c.checks), "profile",
        PyBool_FromLong(c.profile));
}

static int
schedule_from_name(const char *name)
{
    for (int i = 0; i < GPO_SIM_NSCHEDULES; i++) {
        if (strcmp(name, gpo_sim_schedules[i]) == 0) {
            return i;
        }
    }
    PyErr_Format(PyExc_ValueError,
                 "schedule must be one of 'ascending', 'descending', 'shuffle', "
                 "'preempt', 'lockstep', not '%s'",
                 name);
    return -1;
}

PyDoc_STRVAR(configure_doc,
             "_sim_configure(*, schedule=None, seed=None, first_block=None, "
             "fail_after=None, max_threads=None, resident=None, checks=None, "
             "profile=None)\n--\n\n"
             "Change the simulator's settings; give those there were before.\n\n"
             "Settings are the process's.  What is None stays; _sim_configure(**old)\n"
             "restores.  See csrc/sim/README.md for their meaning.\n");

static PyObject *
configure(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self;
    static char *names[] = {"schedule",   "seed",        "first_block",
                            "fail_after", "max_threads", "resident",
                            "checks",     "profile",     NULL};
    PyObject *value[8] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOOOOOO:_sim_configure", names,
                                     &value[0], &value[1], &value[2], &value[3],
                                     &value[4], &value[5], &value[6], &value[7])) {
        return NULL;
    }
    gpo_sim_config c;
    gpo_sim_get_config(&c);
    long long number[8] = {0};
    for (int i = 1; i < 8; i++) {
        if (value[i] && value[i] != Py_None) {
            number[i] =
                i >= 6 ? PyObject_IsTrue(value[i]) : PyLong_AsLongLong(value[i]);
            if (number[i] == -1 && PyErr_Occurred()) {
                return NULL;
            }
        }
    }
#define GIVEN(i) (value[i] && value[i] != Py_None)
    if (GIVEN(0)) {
        const char *name = PyUnicode_AsUTF8AndSize(value[0], NULL);
        c.schedule = name ? schedule_from_name(name) : -1;
        if (c.schedule < 0) {
            return NULL;
        }
    }
    if ((GIVEN(1) && (number[1] < 0 || number[1] > UINT32_MAX)) ||
        (GIVEN(2) && number[2] < 0) || (GIVEN(3) && number[3] < -1) ||
        (GIVEN(4) && number[4] < 0) || (GIVEN(5) && (number[5] < 0 || number[5] > 8))) {
        PyErr_SetString(PyExc_ValueError,
                        "seed must be in [0, 2**32), first_block and max_threads not "
                        "negative, fail_after at least -1, resident in [0, 8]");
        return NULL;
    }
    c.seed = GIVEN(1) ? (uint32_t)number[1] : c.seed;
    c.first_block = GIVEN(2) ? number[2] : c.first_block;
    c.fail_after = GIVEN(3) ? number[3] : c.fail_after;
    c.max_threads = GIVEN(4) ? number[4] : c.max_threads;
    c.resident = GIVEN(5) ? (int)number[5] : c.resident;
    c.checks = GIVEN(6) ? number[6] != 0 : c.checks;
    c.profile = GIVEN(7) ? number[7] != 0 : c.profile;
#undef GIVEN
    PyObject *old = config_dict();
    if (old) {
        gpo_sim_set_config(&c);
    }
    return old;
}

/* ---- state and report ---- */

static const gpo_sim_library *
loaded(void)
{
    const char *reason;
    const gpo_sim_library *library = gpo_sim_loaded(&reason);
    if (!library) {
        PyErr_Format(gpo_py.simulator_error, "backend 'sim' is not available: %s",
                     reason);
    }
    return library;
}

PyDoc_STRVAR(state_doc,
             "_sim_state()\n--\n\n"
             "What is left of fail_after, and the device allocations alive.\n");

static PyObject *
state(PyObject *self, PyObject *ignored)
{
    (void)self;
    (void)ignored;
    const gpo_sim_library *library = loaded();
    if (!library) {
        return NULL;
    }
    gpo_sim_state s;
    library->state(&s);
    return Py_BuildValue("{s:L,s:L,s:L,s:L,s:N}", "fail_after", (long long)s.fail_after,
                         "allocations", (long long)s.allocations, "bytes",
                         (long long)s.bytes, "launches", (long long)s.launches,
                         "instrumented", PyBool_FromLong(library->instrumented));
}

PyDoc_STRVAR(reset_doc, "_sim_reset()\n--\n\nForget the report.\n");

static PyObject *
reset(PyObject *self, PyObject *ignored)
{
    (void)self;
    (void)ignored;
    const gpo_sim_library *library = loaded();
    if (!library) {
        return NULL;
    }
    library->reset();
    Py_RETURN_NONE;
}

static PyObject *
record_dict(const gpo_sim_record *r)
{
#define COUNT(name) #name, (unsigned long long)r->name
    return Py_BuildValue(
        "{s:s,s:s,s:i,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,s:K,"
        "s:"
        "K}",
        "kernel", r->kernel, "file", r->file, "line", r->line, COUNT(launches),
        COUNT(blocks), COUNT(threads), COUNT(shared_requests), COUNT(shared_wavefronts),
        COUNT(shared_ideal), COUNT(global_requests), COUNT(global_sectors),
        COUNT(global_ideal), COUNT(atomic_requests), COUNT(atomic_serialised),
        COUNT(code_blocks), COUNT(code_divergent), COUNT(code_lanes),
        COUNT(code_lanes_full), COUNT(barriers), COUNT(races));
#undef COUNT
}

PyDoc_STRVAR(report_doc,
             "_sim_report()\n--\n\n"
             "Counts since _sim_reset(): a dict per kernel and instruction, with the\n"
             "source line it belongs to.\n");

static PyObject *
report(PyObject *self, PyObject *ignored)
{
    (void)self;
    (void)ignored;
    const gpo_sim_library *library = loaded();
    if (!library) {
        return NULL;
    }
    const size_t count = library->report(NULL, 0);
    gpo_sim_record *records = PyMem_Calloc(count ? count : 1, sizeof *records);
    PyObject *list = NULL;
    if (!records) {
        return PyErr_NoMemory();
    }
    const size_t now = library->report(records, count);
    list = PyList_New(0);
    for (size_t i = 0; list && i < count && i < now; i++) {
        PyObject *dict = record_dict(&records[i]);
        if (!dict || PyList_Append(list, dict) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(dict);
    }
    PyMem_Free(records);
    return list;
}

/* ---- the functions ---- */

static PyMethodDef methods[] = {
    {"_sim_configure", (PyCFunction)(void (*)(void))configure,
     METH_VARARGS | METH_KEYWORDS, configure_doc},
    {"_sim_state", state, METH_NOARGS, state_doc},
    {"_sim_reset", reset, METH_NOARGS, reset_doc},
    {"_sim_report", report, METH_NOARGS, report_doc},
    {NULL, NULL, 0, NULL},
};

int
gpo_sim_py_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
