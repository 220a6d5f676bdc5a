/*
 * module.c  The extension module gpuopt._core: one Python function per line of ops.def,
 * the exception classes, and what is made once at import.  No CUDA call happens here.
 */
#define GPO_IMPORT_NUMPY
#include "bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gpo_python gpo_py = {.bf16_typenum = -1};

/* ---- one binding and one function per operator ---- */

#define OP(name, ladder) extern const gpo_op op_##name;
#include "../ops/ops.def"
#undef OP

enum {
#define OP(name, ladder) INDEX_##name,
#include "../ops/ops.def"
#undef OP
    NOPS
};

const int gpo_nbindings = NOPS;

gpo_binding gpo_bindings[NOPS] = {
#define OP(name, ladder) {.op = &op_##name},
#include "../ops/ops.def"
#undef OP
};

#define OP(name, ladder)                                                       \
    static PyObject *py_##name(PyObject *module, PyObject *const *args,        \
                               Py_ssize_t nargs, PyObject *kwnames)            \
    {                                                                          \
        (void)module;                                                          \
        return gpo_op_call(&gpo_bindings[INDEX_##name], args, nargs, kwnames); \
    }
#include "../ops/ops.def"
#undef OP

static PyMethodDef methods[NOPS + 1] = {
#define OP(name, ladder)                                                           \
    {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL | METH_KEYWORDS, \
     NULL},
#include "../ops/ops.def"
#undef OP
};

gpo_binding *
gpo_binding_find(PyObject *name)
{
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "operator must be str, not %R",
                     (PyObject *)Py_TYPE(name));
        return NULL;
    }
    for (int i = 0; i < NOPS; i++) {
        if (PyUnicode_CompareWithASCIIString(name, gpo_bindings[i].op->name) == 0) {
            return &gpo_bindings[i];
        }
    }
    for (int i = 0; i < NOPS; i++) {
        const char *ladder = gpo_bindings[i].op->ladder;
        if (ladder && PyUnicode_CompareWithASCIIString(name, ladder) == 0) {
            return &gpo_bindings[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "there is no operator %R; see gpuopt.ops()", name);
    return NULL;
}

/* ---- filling a binding ---- */

static const char *const common_names[NCOMMON] = {
    [COMMON_OUT] = "out",
    [COMMON_VARIANT] = "variant",
    [COMMON_BACKEND] = "backend",
    [COMMON_STREAM] = "stream",
};

/* The value a default's Python text stands for: None, True, False, 'word' or a number. */
static void
read_preset(const gpo_arg *arg, gpo_option *out)
{
    memset(out, 0, sizeof *out);
    if (!arg->preset || strcmp(arg->preset, "None") == 0) {
        return;
    }
    out->given = true;
    switch (arg->kind) {
        case GPO_KIND_BOOL:
            out->i = strcmp(arg->preset, "True") == 0;
            break;
        case GPO_KIND_ENUM:
            while (arg->choices[out->i] &&
                   (strncmp(arg->preset + 1, arg->choices[out->i],
                            strlen(arg->choices[out->i])) != 0 ||
                    arg->preset[1 + strlen(arg->choices[out->i])] != '\'')) {
                out->i++;
            }
            break;
        case GPO_KIND_INTS:
            out->i = 1;
            out->ints[0] = strtoll(arg->preset, NULL, 10);
            break;
        case GPO_KIND_FLOATS:
            out->i = 1;
            out->floats[0] = strtod(arg->preset, NULL);
            break;
        default:
            out->i = strtoll(arg->preset, NULL, 10);
            out->f = strtod(arg->preset, NULL);
            out->is_int = !strpbrk(arg->preset, ".einf");
            break;
    }
}

/* "name(x, op='sum', ..., out=None, *, variant='auto', ...)\n--\n\n" and the doc. */
static char *
make_doc(const gpo_op *op)
{
    size_t room = strlen(op->name) + strlen(op->doc) + 128;
    for (const gpo_arg *arg = op->args; arg->name; arg++) {
        room += strlen(arg->name) + (arg->preset ? strlen(arg->preset) : 0) + 8;
    }
    char *doc = malloc(room);
    if (!doc) {
        return NULL;
    }
    size_t at = (size_t)snprintf(doc, room, "%s(", op->name);
    for (const gpo_arg *arg = op->args; arg->name; arg++) {
        at += (size_t)snprintf(doc + at, room - at, "%s%s%s, ", arg->name,
                               arg->preset ? "=" : "", arg->preset ? arg->preset : "");
    }
    snprintf(doc + at, room - at,
             "out=None, *, variant='auto', backend=None, stream=None)\n--\n\n%s",
             op->doc);
    return doc;
}

static int
fill_binding(gpo_binding *b, PyMethodDef *method)
{
    int n = 0;
    while (b->op->args[n].name) {
        b->name[n] = PyUnicode_InternFromString(b->op->args[n].name);
        if (!b->name[n]) {
            return -1;
        }
        b->narrays += b->op->args[n].kind == GPO_KIND_ARRAY;
        read_preset(&b->op->args[n], &b->preset[n]);
        n++;
    }
    b->nargs = n;
    for (int k = 0; k < NCOMMON; k++) {
        b->name[n + k] = PyUnicode_InternFromString(common_names[k]);
        if (!b->name[n + k]) {
            return -1;
        }
    }
    b->doc = make_doc(b->op);
    if (!b->doc) {
        PyErr_NoMemory();
        return -1;
    }
    method->ml_doc = b->doc;
    return 0;
}

/* ---- exceptions ---- */

/* Makes class gpuopt.<name>, keeps it in *slot and adds it to the module. */
static int
add_exception(PyObject *module, PyObject **slot, const char *name, const char *doc,
              PyObject *base)
{
    char qualified[64];
    snprintf(qualified, sizeof qualified, "gpuopt.%s", name);
    *slot = PyErr_NewExceptionWithDoc(qualified, doc, base, NULL);
    return *slot ? PyModule_AddObjectRef(module, name, *slot) : -1;
}

static int
add_exceptions(PyObject *module)
{
    if (add_exception(
            module, &gpo_py.cuda_error, "CudaError",
            "A CUDA call failed, or the GPU cannot be used.  Attributes of a\n"
            "failed call: code, name, api, kernel, variant.",
            PyExc_RuntimeError) < 0 ||
        add_exception(
            module, &gpo_py.context_dead_error, "ContextDeadError",
            "A kernel broke the CUDA context; only a new process can use the\n"
            "GPU again.",
            gpo_py.cuda_error) < 0 ||
        add_exception(
            module, &gpo_py.out_of_memory_error, "OutOfMemoryError",
            "The GPU has not enough memory.  Attributes: requested, free and\n"
            "total, in bytes.",
            PyExc_MemoryError) < 0 ||
        add_exception(module, &gpo_py.variant_error, "VariantError",
                      "There is no variant of that name for this call.",
                      PyExc_ValueError) < 0) {
        return -1;
    }
    if (add_exception(module, &gpo_py.performance_warning, "PerformanceWarning",
                      "A call took a slow way where a fast one was expected.",
                      PyExc_RuntimeWarning) < 0) {
        return -1;
    }
    return add_exception(module, &gpo_py.simulator_error, "SimulatorError",
                         "The simulator found a fault in a kernel, or cannot run it.",
                         PyExc_RuntimeError);
}

/* ---- the module ---- */

/* The attribute `name` of module `module`; NULL on failure. */
static PyObject *
import_attribute(const char *module, const char *name)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *attribute = imported ? PyObject_GetAttrString(imported, name) : NULL;
    Py_XDECREF(imported);
    return attribute;
}

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
    for (int i = 0; i < NOPS; i++) {
        if (fill_binding(&gpo_bindings[i], &methods[i]) < 0) {
            return -1;
        }
    }
    gpo_py.shares_memory = import_attribute("numpy", "shares_memory");
    gpo_py.close_matches = import_attribute("difflib", "get_close_matches");
    if (!gpo_py.shares_memory || !gpo_py.close_matches || add_exceptions(module) < 0 ||
        PyModule_AddFunctions(module, methods) < 0 || gpo_introspect_init(module) < 0 ||
        gpo_sim_py_init(module) < 0 || gpo_device_array_init(module) < 0 ||
        gpo_asdevice_init(module) < 0 || gpo_stream_init(module) < 0 ||
        gpo_last_call_init(module) < 0) {
        return -1;
    }
    gpo_py.axis_error = import_attribute("numpy.exceptions", "AxisError");
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
