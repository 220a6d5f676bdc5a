/*
 * introspect.c  Functions that describe operators, variants, backends, plans and the
 * build, and that set the number of CPU threads.
 */
#include "backends.h"
#include "call.h"
#include "module.h"
#include "options.h"
#include "parse.h"

#include <string.h>

/* ---- backends ---- */

PyDoc_STRVAR(default_backend_doc,
             "default_backend()\n--\n\n"
             "The backend of calls on host arrays that name none.\n\n"
             "'cuda' if there is a GPU and nobody has chosen: then a call runs on the\n"
             "CPU where it is estimated to be done earlier there, copies included.");

static PyObject *
default_backend(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    const int id = gpo_default_backend();
    return id < 0 ? NULL : PyUnicode_FromString(gpo_backend_names[id]);
}

PyDoc_STRVAR(backends_doc, "backends()\n--\n\n"
                           "A dict from each backend to None, or to the reason why it "
                           "cannot run here.");

static PyObject *
backends(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return Py_BuildValue("{s:z,s:z,s:z}", "cpu", gpo_backend_cpu.unavailable(), "cuda",
                         gpo_backend_cuda.unavailable(), "sim",
                         gpo_backend_get(GPO_SIM)->unavailable());
}

PyDoc_STRVAR(cuda_unavailable_reason_doc,
             "cuda_unavailable_reason()\n--\n\n"
             "None if the GPU can be used, else one sentence that says why not.");

static PyObject *
cuda_unavailable_reason(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return Py_BuildValue("z", gpo_backend_cuda.unavailable());
}

/* ---- operators and variants ---- */

PyDoc_STRVAR(ops_doc, "ops()\n--\n\nThe names of all operators, as a tuple.");

static PyObject *
ops(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *tuple = PyTuple_New(GPO_NOPS);
    for (int i = 0; tuple && i < GPO_NOPS; i++) {
        PyObject *name = PyUnicode_FromString(gpo_bindings[i].op->name);
        if (!name) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SetItem(tuple, i, name);
    }
    return tuple;
}

static PyObject *
choices_tuple(const char *const *choices)
{
    if (!choices) {
        Py_RETURN_NONE;
    }
    int n = 0;
    while (choices[n]) {
        n++;
    }
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *choice = PyUnicode_FromString(choices[i]);
        if (!choice) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SetItem(tuple, i, choice);
    }
    return tuple;
}

/* The signature "(x, ...)" inside a binding's documentation, as a str. */
static PyObject *
signature(const gpo_binding *b)
{
    const char *start = strchr(b->doc, '(');
    const char *end = strstr(b->doc, "\n--\n");
    return PyUnicode_FromStringAndSize(start, end - start);
}

PyDoc_STRVAR(
    describe_doc,
    "describe(op)\n--\n\n"
    "A dict of what an operator takes: name, ladder (operators of one ladder share\n"
    "their variants), room (the folder of its code), signature, nout, by (the input\n"
    "whose dtype a variant must support) and args, each a dict with name, kind,\n"
    "preset (the default as text, None if required), choices and named (by keyword\n"
    "alone).");

static PyObject *
describe(PyObject *module, PyObject *name)
{
    (void)module;
    static const char *const kinds[] = {
        [GPO_KIND_ARRAY] = "array", [GPO_KIND_BOOL] = "bool",
        [GPO_KIND_INT] = "int",     [GPO_KIND_FLOAT] = "float",
        [GPO_KIND_INTS] = "ints",   [GPO_KIND_ENUM] = "enum",
        [GPO_KIND_DTYPE] = "dtype", [GPO_KIND_FLOATS] = "floats",
    };
    const gpo_binding *b = gpo_binding_find(name);
    PyObject *args = b ? PyList_New(0) : NULL;
    for (int i = 0; args && i < b->nargs; i++) {
        const gpo_arg *arg = &b->op->args[i];
        PyObject *row = Py_BuildValue("{s:s,s:s,s:z,s:N,s:N}", "name", arg->name,
                                      "kind", kinds[arg->kind], "preset", arg->preset,
                                      "choices", choices_tuple(arg->choices), "named",
                                      PyBool_FromLong(arg->named));
        if (!row || PyList_Append(args, row) < 0) {
            Py_CLEAR(args);
        }
        Py_XDECREF(row);
    }
    if (!args) {
        return NULL;
    }
    const char *ladder = b->op->ladder ? b->op->ladder : b->op->name;
    return Py_BuildValue("{s:s,s:s,s:s,s:N,s:i,s:i,s:N}", "name", b->op->name, "ladder",
                         ladder, "room", b->op->room ? b->op->room : ladder,
                         "signature", signature(b), "nout", b->op->nout, "by",
                         b->op->by, "args", args);
}

static PyObject *
dtype_names(const gpo_variant *v)
{
    PyObject *list = PyList_New(0);
    for (int d = 0; list && d < GPO_NDTYPES; d++) {
        PyObject *name = v->run[d] ? PyUnicode_FromString(gpo_dtypes[d].name) : NULL;
        if (v->run[d] && (!name || PyList_Append(list, name) < 0)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(name);
    }
    PyObject *tuple = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return tuple;
}

/* Appends a dict per row of `table`; -1 on failure. */
static int
append_rows(PyObject *rows, gpo_backend_id id, const gpo_table *table)
{
    const gpo_backend *backend = gpo_backend_get(id);
    const char *off = backend->unavailable();
    for (const gpo_variant *v = table->variants; v->name; v++) {
        const char *reason = off ? off : gpo_lacks(backend, 0, v->needs);
        PyObject *row = Py_BuildValue(
            "{s:s,s:s,s:s,s:s,s:s,s:z,s:z,s:N,s:O,s:z}", "name", v->name, "backend",
            gpo_backend_names[id], "idea", v->idea, "needs", v->needs, "determinism",
            v->determinism, "causal", v->causal, "shape", v->shape, "dtypes",
            dtype_names(v), "available", reason ? Py_False : Py_True, "reason", reason);
        if (!row || PyList_Append(rows, row) < 0) {
            Py_XDECREF(row);
            return -1;
        }
        Py_DECREF(row);
    }
    return 0;
}

PyDoc_STRVAR(
    variants_doc,
    "variants(op)\n--\n\n"
    "A list with one dict per backend and variant of an operator: name, backend,\n"
    "idea, needs, determinism, causal, shape, dtypes, available, reason.  CUDA rungs\n"
    "are listed whether or not a GPU is there.");

static PyObject *
variants(PyObject *module, PyObject *name)
{
    (void)module;
    const gpo_binding *b = gpo_binding_find(name);
    PyObject *rows = b ? PyList_New(0) : NULL;
    for (int id = 0; rows && id < GPO_NBACKENDS; id++) {
        const gpo_table *table = gpo_backend_table((gpo_backend_id)id, b->op);
        if (!table &&
            id == GPO_CUDA) { /* a build without CUDA: the simulator has the rungs */
            table = gpo_backend_table(GPO_SIM, b->op);
        }
        if (table && append_rows(rows, (gpo_backend_id)id, table) < 0) {
            Py_CLEAR(rows);
        }
    }
    return rows;
}

PyDoc_STRVAR(
    plan_doc,
    "plan(op, /, *args, **kwargs)\n--\n\n"
    "What `op(*args, **kwargs)` would do, without doing it: a dict with backend,\n"
    "variant, why, read_bytes, written_bytes, flops, outputs, a list of (shape, "
    "dtype),\n"
    "and for host arrays on a calibrated machine cpu_ms and gpu_ms, what the call is\n"
    "estimated to take on each, copies included; None elsewhere.");

static PyObject *
plan(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    (void)module;
    if (nargs < 1) {
        PyErr_SetString(PyExc_TypeError,
                        "plan() missing required argument 'op' (pos 1)");
        return NULL;
    }
    gpo_binding *b = gpo_binding_find(args[0]);
    if (b && PyUnicode_CompareWithASCIIString(args[0], b->op->name) != 0) {
        return PyErr_Format(PyExc_ValueError,
                            "%U is a ladder, not an operator; one of its operators is "
                            "'%s'",
                            args[0], b->op->name);
    }
    return b ? gpo_op_plan(b, args + 1, nargs - 1, kwnames) : NULL;
}

/* ---- the CPU ---- */

PyDoc_STRVAR(
    set_num_threads_doc,
    "set_num_threads(n)\n--\n\n"
    "Use n threads in the CPU backend; 0 restores the default (OMP_NUM_THREADS,\n"
    "else the processors this process may run on).");

static PyObject *
set_num_threads(PyObject *module, PyObject *object)
{
    (void)module;
    int64_t n;
    if (!gpo_int_parse(object, "set_num_threads", "n", &n)) {
        return NULL;
    }
    if (n < 0 || n > 4096) {
        return PyErr_Format(PyExc_ValueError,
                            "number of threads must be between 0 and 4096 (got %lld)",
                            (long long)n);
    }
    gpo_cpu_set_threads((int)n);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(get_num_threads_doc,
             "get_num_threads()\n--\n\nThe threads the CPU backend uses.");

static PyObject *
get_num_threads(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyLong_FromLong(gpo_cpu_threads());
}

PyDoc_STRVAR(cpu_isa_doc, "cpu_isa()\n--\n\n"
                          "The instruction set the CPU backend uses; GPUOPT_CPU forces "
                          "one.");

static PyObject *
cpu_isa(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyUnicode_FromString(gpo_isa_names[gpo_cpu_isa()]);
}

PyDoc_STRVAR(cpu_isas_doc,
             "cpu_isas()\n--\n\n"
             "The instruction sets this machine can run, from least to most.");

static PyObject *
cpu_isas(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    const int n = gpo_cpu_best_isa() + 1;
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *name = PyUnicode_FromString(gpo_isa_names[i]);
        if (!name) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SetItem(tuple, i, name);
    }
    return tuple;
}

PyDoc_STRVAR(
    read_bandwidth_doc,
    "read_bandwidth(bytes)\n--\n\n"
    "GB/s of a plain read loop over `bytes` of memory on all threads of the CPU\n"
    "backend: the ceiling of an operator that only reads.  The best of 5 passes.");

static PyObject *
read_bandwidth(PyObject *module, PyObject *object)
{
    (void)module;
    const long long bytes = PyLong_AsLongLong(object);
    if (bytes == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (bytes < 4096) {
        return PyErr_Format(PyExc_ValueError, "bytes must be at least 4096 (got %lld)",
                            bytes);
    }
    double rate;
    PyThreadState *thread = PyEval_SaveThread();
    const bool good = gpo_cpu_read_bandwidth((size_t)bytes, &rate);
    PyEval_RestoreThread(thread);
    return good ? PyFloat_FromDouble(rate) : PyErr_NoMemory();
}

/* ---- the build ---- */

#ifndef GPO_CUDA_ARCHS
#define GPO_CUDA_ARCHS ""
#endif
#ifndef GPO_CUDA_VERSION
#define GPO_CUDA_VERSION NULL
#endif

PyDoc_STRVAR(build_info_doc,
             "build_info()\n--\n\n"
             "A dict of how the module was built: version, compiler, cuda (the nvcc\n"
             "release, None without CUDA) and cuda_archs.");

static PyObject *
build_info(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return Py_BuildValue("{s:s,s:s,s:z,s:s}", "version", GPO_VERSION, "compiler",
                         __VERSION__, "cuda", (const char *)GPO_CUDA_VERSION,
                         "cuda_archs", GPO_CUDA_ARCHS);
}

#define FASTCALL(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL | METH_KEYWORDS

static PyMethodDef methods[] = {
    {"default_backend", default_backend, METH_NOARGS, default_backend_doc},
    {"backends", backends, METH_NOARGS, backends_doc},
    {"cuda_unavailable_reason", cuda_unavailable_reason, METH_NOARGS,
     cuda_unavailable_reason_doc},
    {"ops", ops, METH_NOARGS, ops_doc},
    {"describe", describe, METH_O, describe_doc},
    {"variants", variants, METH_O, variants_doc},
    {"plan", FASTCALL(plan), plan_doc},
    {"set_num_threads", set_num_threads, METH_O, set_num_threads_doc},
    {"get_num_threads", get_num_threads, METH_NOARGS, get_num_threads_doc},
    {"cpu_isa", cpu_isa, METH_NOARGS, cpu_isa_doc},
    {"cpu_isas", cpu_isas, METH_NOARGS, cpu_isas_doc},
    {"read_bandwidth", read_bandwidth, METH_O, read_bandwidth_doc},
    {"build_info", build_info, METH_NOARGS, build_info_doc},
    {NULL, NULL, 0, NULL},
};

int
gpo_introspect_init(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
