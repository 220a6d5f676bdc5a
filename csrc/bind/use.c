/*
 * use.c  gpuopt.use(): sets the default backend, for good or for one `with` block.
 * See backends.c for the default itself.
 */
#include "backends.h"
#include "module.h"

/* What use() gives: the end of a `with` block restores what was set before the call. */
typedef struct used_backend {
    PyObject_HEAD int id; /* as gpo_backend_use takes it */
    int before;
    bool entered;
} used_backend;

static void
used_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static PyObject *
used_repr(used_backend *self)
{
    return self->id < 0
               ? PyUnicode_FromString("gpuopt.use(None)")
               : PyUnicode_FromFormat("gpuopt.use('%s')", gpo_backend_names[self->id]);
}

static PyObject *
used_enter(used_backend *self, PyObject *unused)
{
    (void)unused;
    if (self->entered) {
        PyErr_SetString(PyExc_RuntimeError,
                        "a `with` block has used this already; call use() again");
        return NULL;
    }
    self->entered = true;
    return Py_NewRef((PyObject *)self);
}

static PyObject *
used_exit(used_backend *self, PyObject *unused)
{
    (void)unused;
    gpo_backend_use(self->before);
    Py_RETURN_NONE;
}

static PyMethodDef used_methods[] = {
    {"__enter__", (PyCFunction)used_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)used_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot used_slots[] = {
    {Py_tp_doc, (void *)"What use() returns, for `with`."},
    {Py_tp_dealloc, (void *)used_dealloc},
    {Py_tp_repr, (void *)used_repr},
    {Py_tp_methods, used_methods},
    {0, NULL},
};

static PyType_Spec used_spec = {
    .name = "gpuopt.UsedBackend",
    .basicsize = sizeof(used_backend),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = used_slots,
};

PyDoc_STRVAR(
    use_doc,
    "use(backend)\n--\n\n"
    "Choose the backend of calls on host arrays: 'cpu', 'cuda', 'sim', or None.\n"
    "\n"
    "None restores the default: the environment variable GPUOPT_BACKEND, else, for\n"
    "each call, the GPU if there is one and it is estimated to be done earlier there,\n"
    "copies included; else the CPU.  The choice holds for the whole process, for\n"
    "all its threads, until the next use(); `with gpuopt.use('cpu'):` restores at the\n"
    "end of the block, also after an exception, what was set before it.  Raises\n"
    "CudaError or SimulatorError if the backend cannot run here.");

static PyObject *
use(PyObject *module, PyObject *name)
{
    (void)module;
    int id = -1;
    if (name != Py_None) {
        id = gpo_backend_from_name(name);
        if (id < 0 || !gpo_check_available((gpo_backend_id)id)) {
            return NULL;
        }
    }
    used_backend *used = PyObject_New(used_backend, gpo_py.used_backend);
    if (used) {
        used->id = id;
        used->before = gpo_backend_use(id);
        used->entered = false;
    }
    return (PyObject *)used;
}

static PyMethodDef methods[] = {
    {"use", use, METH_O, use_doc},
    {NULL, NULL, 0, NULL},
};

int
gpo_use_init(PyObject *module)
{
    gpo_py.used_backend =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &used_spec, NULL);
    if (!gpo_py.used_backend || PyModule_AddType(module, gpo_py.used_backend) < 0) {
        return -1;
    }
    return PyModule_AddFunctions(module, methods);
}
