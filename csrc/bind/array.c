/*
 * array.c  Host arrays: NumPy's ndarray as a gpo_array and back.  Order: dtypes, wrap,
 * new arrays and scalars, shape and extent.
 * See exchange.c for arrays of other libraries.
 */
#include "array.h"

#include "gate.h"
#include "objects.h"

#include <string.h>

/* ---- dtypes ---- */

/* NumPy's number for each dtype; bfloat16 has one only once ml_dtypes is loaded. */
static const int typenums[GPO_NDTYPES] = {
    [GPO_BOOL] = NPY_BOOL,  [GPO_I8] = NPY_INT8,    [GPO_U8] = NPY_UINT8,
    [GPO_I16] = NPY_INT16,  [GPO_U16] = NPY_UINT16, [GPO_I32] = NPY_INT32,
    [GPO_U32] = NPY_UINT32, [GPO_I64] = NPY_INT64,  [GPO_U64] = NPY_UINT64,
    [GPO_F16] = NPY_HALF,   [GPO_BF16] = -1,        [GPO_F32] = NPY_FLOAT,
    [GPO_F64] = NPY_DOUBLE, [GPO_C64] = NPY_CFLOAT, [GPO_C128] = NPY_CDOUBLE,
};

/* Whether `descr` is ml_dtypes.bfloat16; its type number is assigned at import. */
static bool
is_bf16(PyArray_Descr *descr)
{
    if (descr->type_num < NPY_USERDEF) {
        return false;
    }
    if (gpo_py.bf16_typenum < 0) {
        PyObject *modules = PyImport_GetModuleDict(); /* borrowed */
        PyObject *ml_dtypes = PyDict_GetItemString(modules, "ml_dtypes");
        if (!ml_dtypes) {
            return false;
        }
        PyObject *type = PyObject_GetAttrString(ml_dtypes, "bfloat16");
        if (!type) {
            PyErr_Clear();
            return false;
        }
        PyArray_Descr *found = NULL;
        if (PyArray_DescrConverter(type, &found) && found->type_num >= NPY_USERDEF) {
            gpo_py.bf16 = Py_NewRef(type);
            gpo_py.bf16_typenum = found->type_num;
        }
        PyErr_Clear();
        Py_XDECREF((PyObject *)found);
        Py_DECREF(type);
    }
    return descr->type_num == gpo_py.bf16_typenum;
}

gpo_dtype
gpo_dtype_from_descr(PyArray_Descr *descr)
{
    switch (descr->type_num) {
        case NPY_BOOL:
            return GPO_BOOL;
        case NPY_HALF:
            return GPO_F16;
        case NPY_FLOAT:
            return GPO_F32;
        case NPY_DOUBLE:
            return GPO_F64;
        case NPY_CFLOAT:
            return GPO_C64;
        case NPY_CDOUBLE:
            return GPO_C128;
        case NPY_BYTE:
        case NPY_SHORT:
        case NPY_INT:
        case NPY_LONG:
        case NPY_LONGLONG:
            switch (PyDataType_ELSIZE(descr)) { /* the width of C's long varies */
                case 1:
                    return GPO_I8;
                case 2:
                    return GPO_I16;
                case 4:
                    return GPO_I32;
                default:
                    return GPO_I64;
            }
        case NPY_UBYTE:
        case NPY_USHORT:
        case NPY_UINT:
        case NPY_ULONG:
        case NPY_ULONGLONG:
            switch (PyDataType_ELSIZE(descr)) {
                case 1:
                    return GPO_U8;
                case 2:
                    return GPO_U16;
                case 4:
                    return GPO_U32;
                default:
                    return GPO_U64;
            }
        default:
            return is_bf16(descr) ? GPO_BF16 : GPO_NONE;
    }
}

PyArray_Descr *
gpo_dtype_descr(gpo_dtype dtype)
{
    if (dtype == GPO_BF16) {
        if (gpo_py.bf16_typenum < 0) {
            PyObject *module = PyImport_ImportModule("ml_dtypes");
            if (!module) {
                return NULL;
            }
            PyObject *type = PyObject_GetAttrString(module, "bfloat16");
            PyArray_Descr *descr = NULL;
            if (type && PyArray_DescrConverter(type, &descr)) {
                (void)is_bf16(descr);
            }
            Py_XDECREF(type);
            Py_DECREF(module);
            return descr;
        }
        return PyArray_DescrFromType(gpo_py.bf16_typenum);
    }
    return PyArray_DescrFromType(typenums[dtype]);
}

gpo_dtype
gpo_dtype_from_object(PyObject *object, const char *function)
{
    PyArray_Descr *descr = NULL;
    if (!PyArray_DescrConverter(object, &descr)) {
        return GPO_NONE;
    }
    gpo_dtype dtype = gpo_dtype_from_descr(descr);
    if (dtype != GPO_NONE && !PyArray_ISNBO(descr->byteorder)) {
        dtype = GPO_NONE; /* results and memory of a GPU are in native byte order */
    }
    if (dtype == GPO_NONE) {
        PyErr_Format(PyExc_TypeError, "%s() does not support dtype '%S'", function,
                     descr);
    }
    Py_DECREF((PyObject *)descr);
    return dtype;
}

/* ---- wrap ---- */

/* Kernels load whole elements; NumPy aligns complex numbers to half their size only. */
static bool
on_boundary(PyArrayObject *source, gpo_dtype dtype)
{
    return (uintptr_t)PyArray_DATA(source) % (uintptr_t)gpo_dtypes[dtype].bytes == 0;
}

/* Strides in elements; false if one is not a whole number of elements. */
static bool
fill_view(PyArrayObject *source, gpo_dtype dtype, gpo_array *array)
{
    const npy_intp bytes = gpo_dtypes[dtype].bytes;
    const npy_intp *shape = PyArray_DIMS(source);
    const npy_intp *strides = PyArray_STRIDES(source);
    array->data = PyArray_DATA(source);
    array->dtype = dtype;
    array->ndim = PyArray_NDIM(source);
    array->present = true;
    array->size = 1;
    for (int d = 0; d < array->ndim; d++) {
        if (shape[d] > 1 && strides[d] % bytes != 0) {
            return false;
        }
        array->shape[d] = shape[d];
        array->strides[d] = strides[d] / bytes;
        array->size *= shape[d];
    }
    return true;
}

/* np.asarray(object); of an object that knows DLPack alone, np.from_dlpack(object). */
static PyObject *
as_ndarray(PyObject *object)
{
    static const char *const from_dlpack[] = {"from_dlpack", NULL};
    PyObject *taken = PyArray_FromAny(object, NULL, 0, 0, 0, NULL);
    if (!taken || PyArray_DESCR((PyArrayObject *)taken)->type_num != NPY_OBJECT ||
        PyArray_NDIM((PyArrayObject *)taken) > 0) {
        return taken;
    }
    PyObject *method = gpo_lookup((PyObject *)Py_TYPE(object), "__dlpack__");
    if (method) {
        Py_DECREF(taken);
        taken = gpo_module_call("numpy", from_dlpack, object);
    }
    else if (PyErr_Occurred()) {
        Py_CLEAR(taken);
    }
    Py_XDECREF(method);
    return taken;
}

PyArrayObject *
gpo_array_take(PyObject *object, const char *argument)
{
    if (PyArray_CheckExact(object)) {
        return (PyArrayObject *)Py_NewRef(object);
    }
    if (!gpo_gate_host(object, argument)) {
        return NULL;
    }
    PyObject *taken = as_ndarray(object);
    if (taken && !gpo_gate_host(taken, argument)) { /* what __array__ returned */
        Py_CLEAR(taken);
    }
    return (PyArrayObject *)taken;
}

bool
gpo_array_view(PyArrayObject *given, const char *argument, gpo_array *array,
               PyArrayObject **owner)
{
    PyArray_Descr *descr = PyArray_DESCR(given); /* borrowed */
    gpo_dtype dtype = gpo_dtype_from_descr(descr);
    if (dtype == GPO_NONE) {
        const bool objects = descr->type_num == NPY_OBJECT; /* as with pandas.NA */
        PyErr_Format(PyExc_TypeError,
                     "%s has dtype '%S', which gpuopt does not support%s", argument,
                     descr,
                     objects ? "; make it numbers first, of a pandas object by "
                               ".to_numpy(dtype, na_value=...)"
                             : "");
        return false;
    }
    /* A view or a copy of a subclass would call its __array_finalize__. */
    PyArrayObject *source =
        PyArray_CheckExact((PyObject *)given)
            ? (PyArrayObject *)Py_NewRef((PyObject *)given)
            : (PyArrayObject *)PyArray_View(given, NULL, &PyArray_Type);
    if (!source) {
        return false;
    }
    if (!PyArray_ISALIGNED(source) || !PyArray_ISNOTSWAPPED(source) ||
        !on_boundary(source, dtype) || !fill_view(source, dtype, array)) {
        PyArray_Descr *native = PyArray_DescrNewByteorder(descr, NPY_NATIVE);
        PyArrayObject *copy = NULL;
        if (native) {
            copy = (PyArrayObject *)PyArray_FromArray(
                source, native, NPY_ARRAY_CARRAY | NPY_ARRAY_ENSURECOPY); /* steals */
        }
        Py_DECREF((PyObject *)source);
        if (!copy) {
            return false;
        }
        source = copy;
        fill_view(source, dtype, array);
    }
    *owner = source;
    return true;
}

bool
gpo_array_wrap(PyObject *object, const char *argument, gpo_array *array,
               PyArrayObject **owner)
{
    PyArrayObject *given = gpo_array_take(object, argument);
    const bool good = given && gpo_array_view(given, argument, array, owner);
    Py_XDECREF((PyObject *)given);
    return good;
}

PyArrayObject *
gpo_array_converted(PyArrayObject *owner, gpo_dtype dtype)
{
    PyArray_Descr *descr = gpo_dtype_descr(dtype);
    if (!descr) {
        return NULL;
    }
    return (PyArrayObject *)PyArray_FromArray(
        owner, descr, NPY_ARRAY_CARRAY | NPY_ARRAY_FORCECAST); /* steals descr */
}

PyArrayObject *
gpo_array_of_number(PyObject *number, gpo_dtype dtype)
{
    PyArray_Descr *descr = gpo_dtype_descr(dtype);
    if (!descr) {
        return NULL;
    }
    return (PyArrayObject *)PyArray_FromAny(number, descr, 0, 0, NPY_ARRAY_CARRAY,
                                            NULL); /* steals descr */
}

/* ---- new arrays and scalars ---- */

PyArrayObject *
gpo_array_new(const gpo_array *array)
{
    npy_intp shape[GPO_MAX_DIMS];
    for (int d = 0; d < array->ndim; d++) {
        shape[d] = array->shape[d];
    }
    PyArray_Descr *descr = gpo_dtype_descr(array->dtype);
    if (!descr) {
        return NULL;
    }
    return (PyArrayObject *)PyArray_NewFromDescr(&PyArray_Type, descr, array->ndim,
                                                 shape, NULL, NULL, 0,
                                                 NULL); /* steals descr */
}

PyObject *
gpo_array_scalar(gpo_dtype dtype, void *data)
{
    PyArray_Descr *descr = gpo_dtype_descr(dtype);
    if (!descr) {
        return NULL;
    }
    PyObject *scalar = PyArray_Scalar(data, descr, NULL);
    Py_DECREF((PyObject *)descr);
    return scalar;
}

/* ---- shape and extent ---- */

PyObject *
gpo_shape_tuple(int ndim, const int64_t *shape)
{
    PyObject *tuple = PyTuple_New(ndim);
    for (int d = 0; tuple && d < ndim; d++) {
        PyObject *length = PyLong_FromLongLong(shape[d]);
        if (!length) {
            Py_CLEAR(tuple);
            break;
        }
        PyTuple_SetItem(tuple, d, length);
    }
    return tuple;
}

bool
gpo_same_shape(const gpo_array *a, const gpo_array *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]) == 0;
}

void
gpo_array_extent(const gpo_array *array, int64_t *low, int64_t *high)
{
    const int64_t bytes = gpo_dtypes[array->dtype].bytes;
    *low = 0;
    *high = array->size > 0 ? bytes : 0;
    for (int d = 0; array->size > 0 && d < array->ndim; d++) {
        const int64_t reach = (array->shape[d] - 1) * array->strides[d] * bytes;
        *(reach < 0 ? low : high) += reach;
    }
}
