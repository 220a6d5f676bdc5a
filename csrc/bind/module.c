/*
 * module.c  The extension module gpuopt._core: one Python function per line of ops.def,
 * and initialisation at import, which makes no CUDA call.
 */
#define GPO_IMPORT_NUMPY
#include "call.h"
#include "docs.h" /* made from the rooms' doc.txt by _build/documentation.py */
#include "errors.h"
#include "module.h"
#include "objects.h"
#include "parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one function per operator ---- */

#define OP(name, ladder)                                                        \
    static PyObject *py_##name(PyObject *module, PyObject *const *args,         \
                               Py_ssize_t nargs, PyObject *kwnames)             \
    {                                                                           \
        (void)module;                                                           \
        return gpo_op_call(&gpo_bindings[GPO_OP_##name], args, nargs, kwnames); \
    }
#include "../ops/ops.def"
#undef OP

static PyMethodDef methods[GPO_NOPS + 1] = {
#define OP(name, ladder)                                                           \
    {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL | METH_KEYWORDS, \
     NULL},
#include "../ops/ops.def"
#undef OP
};

/* ---- documentation ---- */

_Static_assert(GPO_DOCS == GPO_NOPS, "csrc/ops/<room>/ documents every operator");

/* Appends "name=default, " for the arguments by place, or for those by keyword alone. */
static size_t
list_arguments(const gpo_op *op, bool named, char *doc, size_t at, size_t room)
{
    for (const gpo_arg *arg = op->args; arg->name; arg++) {
        if (arg->named == named) {
            const char *preset = arg->preset ? arg->preset : "";
            at += (size_t)snprintf(doc + at, room - at, "%s%s%s, ", arg->name,
                                   arg->preset ? "=" : "", preset);
        }
    }
    return at;
}

/* "name(x, op='sum', ..., out=None, *, variant='auto', ...)\n--\n\n" and the text. */
static char *
make_doc(const gpo_op *op, const char *text)
{
    size_t room = strlen(op->name) + strlen(text) + 128;
    for (const gpo_arg *arg = op->args; arg->name; arg++) {
        room += strlen(arg->name) + (arg->preset ? strlen(arg->preset) : 0) + 8;
    }
    char *doc = malloc(room);
    if (!doc) {
        return NULL;
    }
    size_t at = (size_t)snprintf(doc, room, "%s(", op->name);
    at = list_arguments(op, false, doc, at, room);
    at += (size_t)snprintf(doc + at, room - at, "out=None, *, ");
    at = list_arguments(op, true, doc, at, room);
    snprintf(doc + at, room - at,
             "variant='auto', backend=None, stream=None)\n--\n\n%s", text);
    return doc;
}

/* ---- the module ---- */

static int
execute(PyObject *module)
{
    if (gpo_py.axis_error) {
        PyErr_SetString(PyExc_ImportError,
                        "gpuopt can be loaded once per process only");
        return -1;
    }
    if (PyArray_ImportNumPyAPI() < 0) {
        return -1;
    }
    for (int i = 0; i < GPO_NOPS; i++) {
        gpo_binding *b = &gpo_bindings[i];
        if (gpo_binding_fill(b) < 0) {
            return -1;
        }
        b->doc = make_doc(b->op, docs[i]);
        if (!b->doc) {
            PyErr_NoMemory();
            return -1;
        }
        methods[i].ml_doc = b->doc;
    }
    gpo_py.shares_memory = gpo_import_attribute("numpy", "shares_memory");
    gpo_py.close_matches = gpo_import_attribute("difflib", "get_close_matches");
    if (!gpo_py.shares_memory || !gpo_py.close_matches || gpo_errors_init(module) < 0 ||
        PyModule_AddFunctions(module, methods) < 0 || gpo_introspect_init(module) < 0 ||
        gpo_sim_py_init(module) < 0 || gpo_device_array_init(module) < 0 ||
        gpo_asdevice_init(module) < 0 || gpo_stream_init(module) < 0 ||
        gpo_last_call_init(module) < 0 || gpo_use_init(module) < 0 ||
        gpo_rates_init(module) < 0 || gpo_known_init(module) < 0) {
        return -1;
    }
    gpo_py.axis_error = gpo_import_attribute("numpy.exceptions", "AxisError");
    return gpo_py.axis_error ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)execute},
    {0, NULL},
};

PyDoc_STRVAR(module_doc, "The compiled part of gpuopt; use the package gpuopt itself.");

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "gpuopt._core", .m_doc = module_doc,
    .m_size = 0,           .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
