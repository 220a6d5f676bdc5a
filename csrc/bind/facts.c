/*
 * facts.c  Properties of a type, cached: the protocols it has, and whether it gives
 * numbers another meaning.  Order: subclasses of ndarray, of torch.Tensor, other types,
 * the cache.  See gate.c for the consequences for an array.
 */
#include "facts.h"

#include "objects.h"

#include <string.h>

/* Whether attribute `name` of `type` differs from that of `base`; -1 on failure. */
static int
differs(PyObject *type, PyObject *base, const char *name)
{
    PyObject *own = gpo_lookup(type, name);
    PyObject *theirs = own ? gpo_lookup(base, name) : NULL;
    const int answer = own != theirs;
    Py_XDECREF(own);
    Py_XDECREF(theirs);
    return PyErr_Occurred() ? -1 : answer;
}

/*
 * An ndarray subclass would lose information if it overrides any of the four methods by
 * which a subclass can carry more than numbers.  numpy.memmap and numpy.recarray
 * override some to keep a file name or to expose fields as attributes, which no kernel
 * needs.
 */
static int
subclass_overrides(PyObject *type)
{
    static const char *const methods[] = {"__array_ufunc__", "__array_function__",
                                          "__array_finalize__", "__array_wrap__"};
    static const char *const harmless[] = {"memmap", "recarray"};
    PyObject *numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy");
    int answer = 0;
    for (size_t k = 0; k < sizeof methods / sizeof *methods && answer == 0; k++) {
        answer = differs(type, (PyObject *)&PyArray_Type, methods[k]);
        for (size_t h = 0; h < 2 && answer == 1 && numpy; h++) {
            PyObject *known = PyObject_GetAttrString(numpy, harmless[h]);
            answer = known ? differs(type, known, methods[k]) : -1;
            Py_XDECREF(known);
        }
    }
    return answer;
}

/* The class called torch.Tensor that `type` is or inherits from: borrowed, or NULL. */
static PyObject *
base_tensor(PyObject *mro)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(mro); i++) {
        PyObject *type = PyTuple_GetItem(mro, i);
        PyObject *module = gpo_lookup(type, "__module__");
        PyObject *name = gpo_lookup(type, "__name__");
        const bool found = module && name && PyUnicode_Check(module) &&
                           PyUnicode_Check(name) &&
                           PyUnicode_CompareWithASCIIString(module, "torch") == 0 &&
                           PyUnicode_CompareWithASCIIString(name, "Tensor") == 0;
        Py_XDECREF(module);
        Py_XDECREF(name);
        if (found) {
            return type;
        }
    }
    return NULL;
}

/* Whether `type` has a protocol function, not its base's nor torch's disabled one. */
static int
replaces(PyObject *type, PyObject *base, const char *name, const char *disabled)
{
    PyObject *own = gpo_lookup(type, name);
    PyObject *theirs = base ? gpo_lookup(base, name) : NULL;
    /* Each access binds a class method anew, so their functions are compared. */
    PyObject *function = own ? gpo_lookup(own, "__func__") : NULL;
    PyObject *original = theirs ? gpo_lookup(theirs, "__func__") : NULL;
    PyObject *called = own ? gpo_lookup(own, "__name__") : NULL;
    int answer = own && own != theirs && !(function && function == original);
    if (answer && called && PyUnicode_Check(called)) {
        answer = PyUnicode_CompareWithASCIIString(called, disabled) != 0;
    }
    Py_XDECREF(own);
    Py_XDECREF(theirs);
    Py_XDECREF(function);
    Py_XDECREF(original);
    Py_XDECREF(called);
    return PyErr_Occurred() ? -1 : answer;
}

/* Whether a tensor's class overrides __torch_function__ or __torch_dispatch__. */
static int
tensor_overrides(PyObject *type, bool *torch)
{
    PyObject *mro = PyObject_GetAttrString(type, "__mro__");
    if (!mro) {
        return -1;
    }
    PyObject *base = base_tensor(mro);
    *torch = base != NULL;
    int answer =
        replaces(type, base, "__torch_function__", "_disabled_torch_function_impl");
    if (answer == 0) {
        answer =
            replaces(type, base, "__torch_dispatch__", "_disabled_torch_dispatch_impl");
    }
    Py_DECREF(mro);
    return answer;
}

/*
 * A type that is no ndarray but overrides NumPy's functions holds more than numbers
 * (pint, sparse), except those of which np.asarray loses nothing.
 */
static int
object_overrides(PyObject *type)
{
    static const char *const plain[] = {"pandas", "xarray", "dask", "polars"};
    PyObject *ufunc = gpo_lookup(type, "__array_ufunc__");
    PyObject *function = ufunc ? NULL : gpo_lookup(type, "__array_function__");
    PyObject *module = gpo_lookup(type, "__module__");
    bool answer = ufunc || function;
    for (size_t k = 0; k < sizeof plain / sizeof *plain && module; k++) {
        answer = answer && !gpo_is_of_package(module, plain[k]);
    }
    Py_XDECREF(ufunc);
    Py_XDECREF(function);
    Py_XDECREF(module);
    return PyErr_Occurred() ? -1 : answer;
}

/* The exchange table of a type, of the major version we know; NULL if it has none. */
static const dl_exchange *
table_of(PyObject *type)
{
    PyObject *capsule = gpo_lookup(type, "__dlpack_c_exchange_api__");
    const dl_exchange *table = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")) {
        table = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
        while (table && table->version.major > DLPACK_MAJOR) {
            table = table->previous;
        }
        if (table && table->version.major != DLPACK_MAJOR) {
            table = NULL;
        }
    }
    Py_XDECREF(capsule);
    return table;
}

/* The C function behind a method without arguments; NULL if it is Python code. */
static PyCFunction
c_method(PyObject *object, const char *name)
{
    PyObject *bound = gpo_lookup(object, name);
    PyCFunction function = NULL;
    if (bound && PyCFunction_Check(bound) &&
        PyCFunction_GetFlags(bound) == METH_NOARGS &&
        PyCFunction_GetSelf(bound) == object) {
        function = PyCFunction_GetFunction(bound);
    }
    Py_XDECREF(bound);
    return function;
}

static void
learn_tensor(PyObject *object, PyObject *type, gpo_facts *f)
{
    PyObject *attribute = gpo_lookup(type, "requires_grad");
    if (attribute && Py_IS_TYPE(attribute, &PyGetSetDescr_Type)) {
        f->get = (descrgetfunc)PyType_GetSlot(&PyGetSetDescr_Type, Py_tp_descr_get);
        f->requires_grad = Py_NewRef(attribute);
    }
    Py_XDECREF(attribute);
    f->is_conj = c_method(object, "is_conj");
    f->is_neg = c_method(object, "is_neg");
}

/* Whether the type has the attribute; also false if an exception is set. */
static bool
has(PyObject *type, const char *name)
{
    PyObject *found = PyErr_Occurred() ? NULL : gpo_lookup(type, name);
    Py_XDECREF(found);
    return found != NULL;
}

/* Whether the type is of JAX. */
static bool
is_jax(PyObject *type)
{
    PyObject *module = PyErr_Occurred() ? NULL : gpo_lookup(type, "__module__");
    const bool answer = module && (gpo_is_of_package(module, "jax") ||
                                   gpo_is_of_package(module, "jaxlib"));
    Py_XDECREF(module);
    return answer;
}

static bool
learn(PyObject *object, gpo_facts *f)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    int overrides = -1;
    memset(f, 0, sizeof *f);
    if (PyArray_Check(object)) {
        overrides = subclass_overrides(type);
    }
    else {
        const bool dlpack = has(type, "__dlpack__");
        f->table = PyErr_Occurred() ? NULL : table_of(type);
        f->tensor = has(type, "__torch_function__");
        f->interface = has(type, "__array_interface__");
        f->answers = !dlpack && has(type, "__array__");
        f->no_array = !dlpack && is_jax(type);
        if (!PyErr_Occurred()) {
            overrides =
                f->tensor ? tensor_overrides(type, &f->torch) : object_overrides(type);
        }
        if (f->tensor && overrides == 0) {
            learn_tensor(object, type, f);
        }
    }
    f->overrides = overrides == 1;
    if (PyErr_Occurred()) {
        Py_CLEAR(f->requires_grad);
        return false;
    }
    f->type = (PyTypeObject *)Py_NewRef(type);
    return true;
}

const gpo_facts *
gpo_facts_of(PyObject *object)
{
    enum { KEPT = 8 };
    static PyTypeObject *types[KEPT];
    static gpo_facts known[KEPT];
    static size_t next;
    for (size_t k = 0; k < KEPT; k++) {
        if (types[k] == Py_TYPE(object)) {
            return &known[k];
        }
    }
    gpo_facts fresh;
    if (!learn(object, &fresh)) {
        return NULL;
    }
    const size_t slot = next++ % KEPT;
    const gpo_facts old = known[slot];
    known[slot] = fresh;
    types[slot] = fresh.type;
    Py_XDECREF(old.requires_grad);
    Py_XDECREF((PyObject *)old.type); /* may run any code, even this function */
    return types[slot] == Py_TYPE(object) ? &known[slot] : gpo_facts_of(object);
}
