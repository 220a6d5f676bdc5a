/*
 * gate.c  Refuses arrays that are more than their memory: a conjugate bit, a gradient,
 * a mask, a unit.  Every array, input or out=, is checked before its memory is used;
 * the error names the call that gives plain memory.
 * Order: torch's table and class, error messages, torch's bits, tensors without memory,
 * objects for np.asarray, memory that was written.
 * See facts.c for the properties of types.
 */
#include "gate.h"

#include "facts.h"
#include "objects.h"

#include <string.h>

const dl_exchange *
gpo_gate_table(PyObject *object)
{
    const gpo_facts *f = gpo_facts_of(object);
    return f ? f->table : NULL;
}

bool
gpo_gate_is_torch(PyObject *object)
{
    const gpo_facts *f = gpo_facts_of(object);
    return f && f->torch;
}

/* ---- error messages ---- */

/* TypeError "argument is of type T, whose ... would be lost; use ...". */
static bool
refuse_type(PyObject *object, const char *argument, const char *why, const char *way)
{
    PyObject *name = gpo_type_name(object);
    if (name) {
        PyErr_Format(PyExc_TypeError, "%s is of type %U, %s; use %s", argument, name,
                     why, way);
        Py_DECREF(name);
    }
    return false;
}

static bool
refuse(const char *argument, const char *why, const char *way)
{
    PyErr_Format(PyExc_TypeError, "%s %s; use %s", argument, why, way);
    return false;
}

/* ---- torch's bits ---- */

/* Whether `value`, which it steals, is True; -1 if it is NULL. */
static int
is_true(PyObject *value)
{
    const int answer = value ? value == Py_True : -1;
    Py_XDECREF(value);
    return answer;
}

static int
ask(PyObject *object, PyCFunction function, const char *name)
{
    return is_true(function ? function(object, NULL)
                            : PyObject_CallMethod(object, name, NULL));
}

/* A function of torch, cached if it is a C function. */
typedef struct torch_function {
    const char *path[4];
    PyObject *object;
    PyCFunction function;
} torch_function;

/* Calls it, with one argument or none; a C function is looked up only once. */
static PyObject *
call_torch(torch_function *f, PyObject *argument)
{
    if (!f->function) {
        PyObject *object = gpo_module_attribute("torch", f->path);
        if (!object) {
            return NULL;
        }
        if (!PyCFunction_Check(object) ||
            PyCFunction_GetFlags(object) != (argument ? METH_O : METH_NOARGS)) {
            PyObject *answer =
                argument ? PyObject_CallFunctionObjArgs(object, argument, NULL)
                         : PyObject_CallFunctionObjArgs(object, NULL);
            Py_DECREF(object);
            return answer;
        }
        f->object = object;
        f->function = PyCFunction_GetFunction(object);
    }
    return f->function(PyCFunction_GetSelf(f->object), argument);
}

/* Whether torch records operations on tensors that require grad. */
static bool
records_gradients(void)
{
    static torch_function is_grad_enabled = {.path = {"is_grad_enabled"}};
    const int enabled = is_true(call_torch(&is_grad_enabled, NULL));
    PyErr_Clear(); /* a library that imitates torch: assume that it records */
    return enabled != 0;
}

/* Whether the tensor carries a forward-mode tangent; -1 on failure. */
static int
has_tangent(PyObject *object)
{
    static PyObject *space, *level_name; /* of torch.autograd.forward_ad, cached */
    if (!space) {
        PyObject *module =
            PyDict_GetItemString(PyImport_GetModuleDict(), "torch.autograd.forward_ad");
        PyObject *names =
            module && PyModule_Check(module) ? PyModule_GetDict(module) : NULL;
        level_name = names ? PyUnicode_InternFromString("_current_level") : NULL;
        if (!level_name) {
            return PyErr_Occurred() ? -1 : 0;
        }
        space = Py_NewRef(names);
    }
    PyObject *level = PyDict_GetItemWithError(space, level_name);
    if (!level || !PyLong_Check(level) || PyLong_AsLong(level) < 0) {
        return PyErr_Occurred() ? -1 : 0;
    }
    PyObject *unpack = PyDict_GetItemString(space, "unpack_dual");
    PyObject *pair = unpack ? PyObject_CallFunctionObjArgs(unpack, object, NULL) : NULL;
    PyObject *tangent = pair ? gpo_lookup(pair, "tangent") : NULL;
    const int answer = tangent && tangent != Py_None;
    Py_XDECREF(pair);
    Py_XDECREF(tangent);
    return PyErr_Occurred() ? -1 : answer;
}

/* Whether torch.func or torch.vmap wraps the tensor. */
static bool
is_transformed(PyObject *object)
{
    static const char *const path[] = {"_C", "_functorch",
                                       "is_functorch_wrapped_tensor", NULL};
    const bool answer = is_true(gpo_module_call("torch", path, object)) == 1;
    PyErr_Clear();
    return answer;
}

static bool
refuse_transformed(const char *argument)
{
    return refuse(argument,
                  "is inside of a torch.func transform (vmap, grad, ...), which gpuopt "
                  "cannot follow",
                  "gpuopt outside of it");
}

/* Refuses a tensor for the first bit that is set; if none is, it requires grad. */
static bool
refuse_bits(PyObject *object, const char *argument, bool conj, bool neg, bool tangent)
{
    if (is_transformed(object)) {
        return refuse_transformed(argument);
    }
    if (conj) {
        return refuse(argument,
                      "has the conjugate bit set: its memory holds the conjugates of "
                      "its elements",
                      ".resolve_conj()");
    }
    if (neg) {
        return refuse(argument,
                      "has the negative bit set: its memory holds the negatives of its "
                      "elements",
                      ".resolve_neg()");
    }
    if (tangent) {
        return refuse(argument,
                      "carries a forward-mode tangent, which gpuopt cannot follow",
                      ".detach()");
    }
    return refuse(argument, "requires grad, which gpuopt cannot follow",
                  ".detach(), or call under torch.no_grad()");
}

bool
gpo_gate_class(PyObject *object, const char *argument)
{
    const gpo_facts *f = gpo_facts_of(object);
    return f && (!(f->tensor && f->overrides) || gpo_gate_explain(object, argument));
}

bool
gpo_gate_tensor(PyObject *object, const char *argument, bool is_complex, bool *detach)
{
    const gpo_facts *known = gpo_facts_of(object);
    *detach = false;
    if (!known || !known->tensor) {
        return known != NULL;
    }
    const gpo_facts f = *known;
    const int grad =
        is_true(f.requires_grad ? f.get(f.requires_grad, object, (PyObject *)f.type)
                                : PyObject_GetAttrString(object, "requires_grad"));
    const int conj = grad < 0      ? -1
                     : !is_complex ? 0
                                   : ask(object, f.is_conj, "is_conj");
    const int neg = conj < 0 ? -1 : ask(object, f.is_neg, "is_neg");
    const int tangent = neg < 0 ? -1 : has_tangent(object);
    if (tangent < 0) {
        return false;
    }
    if (!conj && !neg && !tangent && (!grad || !records_gradients())) {
        *detach = grad;
        return true;
    }
    return refuse_bits(object, argument, conj, neg, tangent);
}

/* ---- tensors without memory ---- */

/* Whether object.name or object.name() is True; false on an error. */
static bool
says(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (value && PyCallable_Check(value)) {
        PyObject *called = PyObject_CallFunctionObjArgs(value, NULL);
        Py_DECREF(value);
        value = called;
    }
    const bool answer = is_true(value) == 1;
    PyErr_Clear();
    return answer;
}

/* Whether the tensor's layout is not strided; `text` then says which it is. */
static bool
has_layout(PyObject *object, char *text, size_t size)
{
    PyObject *layout = PyObject_GetAttrString(object, "layout");
    PyObject *name = layout ? PyObject_Str(layout) : NULL;
    const char *word = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    const bool answer = word && strcmp(word, "torch.strided") != 0;
    if (answer) {
        PyOS_snprintf(text, size,
                      "has layout %.60s, whose memory holds more than its "
                      "elements or fewer",
                      word);
    }
    Py_XDECREF(layout);
    Py_XDECREF(name);
    PyErr_Clear();
    return answer;
}

/* Tensors recognised by an attribute, and the call that gives plain memory. */
static const struct {
    const char *attribute, *why, *way;
} tensor_kinds[] = {
    {"is_nested", "is a nested tensor: its rows lie one after the other",
     ".to_padded_tensor(0), or each of .unbind()"},
    {"is_quantized", "is quantised: its memory holds codes", ".dequantize()"},
    {"is_meta", "is on the meta device: it has a shape and no elements",
     "torch.empty_like(..., device=\"cpu\") or \"cuda\""},
    {"_is_zerotensor", "is torch's zero tensor, which has no memory", ".clone()"},
};

/* Classes of tensors recognised by an attribute of their instances. */
static const struct {
    const char *attribute, *why, *way;
} tensor_classes[] = {
    {"fake_mode", "which has a shape and no elements",
     "gpuopt outside of FakeTensorMode and torch.export"},
    {"to_local", "which is spread over devices", ".to_local() or .full_tensor()"},
    {"get_mask", "whose mask would be lost", ".to_tensor(value)"},
    {"materialize", "which has no elements yet", ".materialize(shape) first"},
    {NULL, "whose own __torch_function__ or __torch_dispatch__ would be lost",
     "the plain tensor in it, or .as_subclass(torch.Tensor)"},
};

static bool
refuse_class(PyObject *object, const char *argument)
{
    size_t k = 0;
    for (; tensor_classes[k].attribute; k++) {
        PyObject *found = PyObject_GetAttrString(object, tensor_classes[k].attribute);
        PyErr_Clear();
        if (found) {
            Py_DECREF(found);
            break;
        }
    }
    return refuse_type(object, argument, tensor_classes[k].why, tensor_classes[k].way);
}

/* Sets TypeError if the tensor is of a known kind, or overrides; else returns false. */
static bool
tell(PyObject *object, const char *argument, bool overrides)
{
    char layout[128];
    if (is_transformed(object)) {
        refuse_transformed(argument);
        return true;
    }
    for (size_t k = 0; k < sizeof tensor_kinds / sizeof *tensor_kinds; k++) {
        if (says(object, tensor_kinds[k].attribute)) {
            refuse(argument, tensor_kinds[k].why, tensor_kinds[k].way);
            return true;
        }
    }
    if (has_layout(object, layout, sizeof layout)) {
        refuse(argument, layout, ".to_dense()");
        return true;
    }
    if (overrides) {
        refuse_class(object, argument);
    }
    return overrides;
}

/* Sets TypeError with the first line of the library's message. */
static void
tell_line(const char *argument, PyObject *said)
{
    PyObject *text = said ? PyObject_Str(said) : NULL;
    PyObject *lines = text ? PyUnicode_Splitlines(text, 0) : NULL;
    PyObject *line = lines && PyList_Size(lines) > 0 ? PyList_GetItem(lines, 0) : NULL;
    if (line) {
        PyErr_Format(PyExc_TypeError, "%s has no memory that gpuopt can use: %U",
                     argument, line);
    }
    else {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s has no memory that gpuopt can use", argument);
    }
    Py_XDECREF(text);
    Py_XDECREF(lines);
}

/* Sets the cause of the current exception; steals it, NULL is none. */
static void
set_cause(PyObject *cause)
{
    PyObject *type, *value, *traceback;
    if (cause) {
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        PyException_SetCause(value, cause); /* steals */
        PyErr_Restore(type, value, traceback);
    }
}

bool
gpo_gate_explain(PyObject *object, const char *argument)
{
    PyObject *type = NULL, *cause = NULL, *traceback = NULL;
    if (PyErr_Occurred() && (!PyErr_ExceptionMatches(PyExc_Exception) ||
                             PyErr_ExceptionMatches(PyExc_MemoryError))) {
        return false;
    }
    PyErr_Fetch(&type, &cause, &traceback);
    PyErr_NormalizeException(&type, &cause, &traceback);
    const gpo_facts *known = gpo_facts_of(object);
    const bool tensor = known && known->tensor, overrides = known && known->overrides;
    PyErr_Clear();
    if (says(object, "is_deleted")) { /* of JAX, deleted or donated to jit */
        refuse(argument, "has been deleted or donated: its memory is gone", "a copy");
    }
    else if (cause && !tensor) { /* not torch: the library's own error stands */
        PyErr_Restore(type, cause, traceback);
        return false;
    }
    else if (!tensor || !tell(object, argument, overrides)) {
        tell_line(argument, cause);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    set_cause(cause);
    return false;
}

bool
gpo_gate_no_result(void)
{
    static const char *const path[] = {"_C", "_functorch", "maybe_current_level", NULL};
    PyObject *type, *cause, *traceback;
    PyErr_Fetch(&type, &cause, &traceback);
    PyErr_NormalizeException(&type, &cause, &traceback);
    PyObject *level = gpo_module_call("torch", path, NULL);
    PyErr_Clear();
    if (cause && (!level || level == Py_None)) {
        PyErr_Restore(type, cause, traceback);
    }
    else {
        PyErr_SetString(
            PyExc_TypeError,
            "the library of the arrays gave a result without memory, as "
            "torch does inside of torch.func transforms and FakeTensorMode; "
            "use gpuopt outside of them");
        Py_XDECREF(type);
        Py_XDECREF(traceback);
        set_cause(cause);
    }
    Py_XDECREF(level);
    return false;
}

bool
gpo_gate_memory(PyObject *object, const char *argument, const gpo_array *array)
{
    /* Nothing is mapped there: such an address is NULL plus a tensor's offset. */
    enum { FIRST_PAGE = 4096 };
    return array->size <= 0 || (uintptr_t)array->data >= FIRST_PAGE ||
           gpo_gate_explain(object, argument);
}

/* ---- objects for np.asarray ---- */

/* Kinds of host objects recognised by an attribute of the type. */
static const struct {
    const char *attribute, *why, *way;
} host_kinds[] = {
    {"filled", "whose mask would be lost",
     ".filled(value), or .data to ignore the mask"},
    {"magnitude", "whose unit would be lost", ".magnitude"},
    {"to_value", "whose unit would be lost", ".value"},
    {"todense", "which is not stored densely", ".todense()"},
    {NULL, "which gives NumPy's functions a meaning of its own that would be lost",
     "np.asarray() of it if only its numbers are meant"},
};

static bool
refuse_host(PyObject *object, const char *argument)
{
    size_t k = 0;
    for (; host_kinds[k].attribute; k++) {
        PyObject *type = (PyObject *)Py_TYPE(object);
        PyObject *found = PyObject_GetAttrString(type, host_kinds[k].attribute);
        PyErr_Clear();
        if (found) {
            Py_DECREF(found);
            break;
        }
    }
    return refuse_type(object, argument, host_kinds[k].why, host_kinds[k].way);
}

/* NumPy ignores the mask of its array interface. */
static bool
check_interface(PyObject *object, const char *argument)
{
    PyObject *dict = gpo_lookup(object, "__array_interface__");
    PyObject *mask =
        dict && PyDict_Check(dict) ? PyDict_GetItemString(dict, "mask") : NULL;
    if (mask && mask != Py_None) {
        PyErr_Format(PyExc_TypeError, "%s has a mask, which gpuopt does not support",
                     argument);
    }
    Py_XDECREF(dict);
    return !PyErr_Occurred();
}

/* A tensor for np.asarray, which trusts torch even if the tensor has no memory. */
static bool
check_view(PyObject *object, const char *argument, const dl_exchange *table)
{
    dl_tensor tensor;
    gpo_array array = {.size = 1};
    if (!table || !table->view_object) {
        return true;
    }
    if (table->view_object(object, &tensor) != 0) {
        return gpo_gate_explain(object, argument);
    }
    for (int d = 0; d < tensor.ndim; d++) {
        array.size *= tensor.shape[d];
    }
    array.data = tensor.data ? (char *)tensor.data + tensor.byte_offset : NULL;
    return gpo_gate_memory(object, argument, &array);
}

/* An object that is not a list or tuple. */
static bool
check_object(PyObject *object, const char *argument)
{
    const gpo_facts *f = gpo_facts_of(object);
    bool detach;
    if (!f) {
        return false;
    }
    if (f->tensor) {
        const dl_exchange *table = f->table;
        return gpo_gate_class(object, argument) &&
               gpo_gate_tensor(object, argument, true, &detach) &&
               check_view(object, argument, table);
    }
    if (f->overrides) {
        return refuse_host(object, argument);
    }
    if (f->no_array) {
        return refuse_type(object, argument, "which is no jax.Array",
                           "x[...] of a reference, jax.random.key_data() of a key");
    }
    return !f->interface || check_interface(object, argument);
}

/* Checks what np.asarray returns for an item, which may be a masked array. */
static bool
check_answer(PyObject *object, const char *item)
{
    const gpo_facts *f = gpo_facts_of(object);
    if (!f || !f->answers) {
        return f != NULL;
    }
    PyObject *array = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
    const bool good = array && check_object(array, item);
    Py_XDECREF(array);
    return good;
}

/* The items of a list, and of lists in it: np.asarray would ignore their masks. */
static bool
check_items(PyObject *list, const char *item, int depth)
{
    const bool is_list = PyList_Check(list);
    if (depth > NPY_MAXDIMS) { /* for example, a list that contains itself */
        PyErr_Format(PyExc_ValueError,
                     "setting an array element with a sequence: the array would "
                     "exceed the maximum number of dimension of %d",
                     NPY_MAXDIMS);
        return false;
    }
    for (Py_ssize_t i = 0;; i++) {
        if (i >= (is_list ? PyList_Size(list) : PyTuple_Size(list))) {
            return true;
        }
        PyObject *object = is_list ? PyList_GetItem(list, i) : PyTuple_GetItem(list, i);
        if (PyFloat_CheckExact(object) || PyLong_CheckExact(object) ||
            PyArray_CheckExact(object) || PyArray_IsScalar(object, Generic)) {
            continue;
        }
        Py_INCREF(object); /* a check may run code that changes the list */
        const bool good =
            PyList_Check(object) || PyTuple_Check(object)
                ? check_items(object, item, depth + 1)
                : check_object(object, item) && check_answer(object, item);
        Py_DECREF(object);
        if (!good) {
            return false;
        }
    }
}

bool
gpo_gate_host(PyObject *object, const char *argument)
{
    if (PyArray_CheckExact(object) || PyFloat_CheckExact(object) ||
        PyLong_CheckExact(object) || PyArray_IsScalar(object, Generic)) {
        return true;
    }
    if (PyList_Check(object) || PyTuple_Check(object)) {
        char item[64];
        PyOS_snprintf(item, sizeof item, "an item of %.40s", argument);
        return check_items(object, item, 1);
    }
    return check_object(object, argument);
}

/* ---- memory that was written ---- */

void
gpo_gate_written(PyObject *object)
{
    static torch_function increment_version = {.path = {"_C", "_increment_version"}};
    const gpo_facts *f = gpo_facts_of(object);
    if (f && f->tensor) {
        PyObject *one = PyTuple_Pack(1, object);
        PyObject *done = one ? call_torch(&increment_version, one) : NULL;
        Py_XDECREF(one);
        Py_XDECREF(done);
    }
    PyErr_Clear(); /* another torch may have no such function */
}
