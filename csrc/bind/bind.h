/*
 * bind.h  What the files of bind/ share: the Python and NumPy headers, the objects
 * made once at import, and the steps of a call.
 * Ownership: a function that returns PyObject * gives a new reference; arguments are
 * borrowed.
 */
#ifndef GPO_BIND_H
#define GPO_BIND_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define PY_ARRAY_UNIQUE_SYMBOL gpo_numpy_api
#ifndef GPO_IMPORT_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include "../backend/backend.h"

/* ---- objects made once at import: module.c ---- */

/* Arguments every operator takes after its own; `out` may also come by position. */
enum { COMMON_OUT, COMMON_VARIANT, COMMON_BACKEND, COMMON_STREAM, NCOMMON };

/* What the binding adds to a descriptor: names to compare, defaults, documentation. */
typedef struct gpo_binding {
    const gpo_op *op;
    int nargs, narrays;
    PyObject *name[GPO_MAX_ARGS + NCOMMON]; /* interned; the common ones last */
    gpo_option preset[GPO_MAX_ARGS];
    char *doc; /* "name(signature)\n--\n\n" and the descriptor's doc */
} gpo_binding;

typedef struct gpo_python {
    PyObject *cuda_error, *context_dead_error, *out_of_memory_error;
    PyObject *variant_error, *simulator_error;
    PyObject *axis_error;     /* numpy.exceptions.AxisError */
    PyObject *shares_memory;  /* numpy.shares_memory */
    PyObject *close_matches;  /* difflib.get_close_matches */
    PyObject *bf16;           /* ml_dtypes.bfloat16 once seen, else NULL */
    int bf16_typenum;         /* its NumPy type number, else -1 */
} gpo_python;

extern gpo_python gpo_py;
extern gpo_binding gpo_bindings[];
extern const int gpo_nbindings;

/* The binding called `name`; NULL with ValueError set if there is none. */
gpo_binding *gpo_binding_find(PyObject *name);

/* ---- the default backend: introspect.c ---- */

/* The backend of calls on host arrays that name none; -1 with an exception set. */
int gpo_default_backend(void);

/* The backend called `name` (a str); -1 with ValueError or TypeError set. */
int gpo_backend_from_name(PyObject *name);

extern const char *const gpo_backend_names[GPO_NBACKENDS];

int gpo_introspect_init(PyObject *module); /* adds its functions; -1 on failure */

/* Adds the simulator's settings and reports: sim_py.c; -1 on failure. */
int gpo_sim_py_init(PyObject *module);

/* ---- errors: errors.c ---- */

/* Sets the exception for `status` from the call's sentence; always returns NULL. */
PyObject *gpo_raise(const gpo_call *call, gpo_status status);

/* VariantError: no variant `name`; lists those of `op` and suggests one. */
PyObject *gpo_raise_variant(const gpo_op *op, const char *name, const char *hint);

/* "f16, f32, ..." of the dtypes for which run[] is set. */
PyObject *gpo_supported_dtypes(const gpo_variant *variant);

/* ---- host arrays: array.c ---- */

/*
 * Views `object` as a host array: an exact, aligned, native ndarray is used as it is,
 * anything else goes through np.asarray or is copied into native layout.  `*owner`
 * receives a new reference that keeps the memory alive.  False with an exception set.
 */
bool gpo_array_wrap(PyObject *object, const char *argument, gpo_array *array,
                    PyArrayObject **owner);

/* A new C-contiguous ndarray with the dtype and shape of `array`; NULL on failure. */
PyArrayObject *gpo_array_new(const gpo_array *array);

/* The NumPy scalar held at `data`; NULL on failure. */
PyObject *gpo_array_scalar(gpo_dtype dtype, void *data);

/* `owner` converted to `dtype` as a new C-contiguous ndarray, in NumPy's casting. */
PyArrayObject *gpo_array_converted(PyArrayObject *owner, gpo_dtype dtype);

/* The dtype meant by a dtype-like object; GPO_NONE with TypeError set. */
gpo_dtype gpo_dtype_from_object(PyObject *object, const char *function);

/* The NumPy descriptor of a dtype; NULL with an exception if bf16 has none. */
PyArray_Descr *gpo_dtype_descr(gpo_dtype dtype);

/* The gpuopt dtype of a NumPy descriptor, GPO_NONE if gpuopt has none (no error). */
gpo_dtype gpo_dtype_from_descr(PyArray_Descr *descr);

/* The bytes an array spans: [*low, *high) relative to its first element. */
void gpo_array_extent(const gpo_array *array, int64_t *low, int64_t *high);

/* ---- calls: call.c ---- */

PyObject *gpo_op_call(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

/* plan(op, *args, **kwargs): the same steps without computing; a dict. */
PyObject *gpo_op_plan(gpo_binding *binding, PyObject *const *args, Py_ssize_t nargs,
                      PyObject *kwnames);

#endif
