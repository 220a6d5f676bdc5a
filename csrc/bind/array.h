/*
 * array.h  Host arrays: NumPy's ndarray as a gpo_array and back.
 */
#ifndef GPO_ARRAY_H
#define GPO_ARRAY_H

#include "bind.h"

/*
 * An array argument is read in two steps.  `take` passes the object through the gate
 * and np.asarray, which may run any Python code, even resize() of an array taken
 * before.  `view` reads dtype, shape and address and runs no Python code: a call takes
 * all its arguments, then views them.  An aligned, native ndarray is viewed as it is,
 * others are copied to native layout; `*owner` receives a new reference that keeps the
 * viewed memory alive.  NULL or false with an exception set.
 */
PyArrayObject *gpo_array_take(PyObject *object, const char *argument);
bool gpo_array_view(PyArrayObject *given, const char *argument, gpo_array *array,
                    PyArrayObject **owner);

/* Both steps, for a function with one array. */
bool gpo_array_wrap(PyObject *object, const char *argument, gpo_array *array,
                    PyArrayObject **owner);

/* A new C-contiguous ndarray with the dtype and shape of `array`; NULL on failure. */
PyArrayObject *gpo_array_new(const gpo_array *array);

/* A NumPy scalar with the value at `data`; NULL on failure. */
PyObject *gpo_array_scalar(gpo_dtype dtype, void *data);

/* `owner` converted to `dtype`, a new C-contiguous ndarray; NumPy's casting rules. */
PyArrayObject *gpo_array_converted(PyArrayObject *owner, gpo_dtype dtype);

/* A Python int as a 0-d array of a floating or complex `dtype`: float(number). */
PyArrayObject *gpo_array_of_number(PyObject *number, gpo_dtype dtype);

/* The dtype meant by a dtype-like object; GPO_NONE with TypeError set. */
gpo_dtype gpo_dtype_from_object(PyObject *object, const char *function);

/* The NumPy descriptor of a dtype; NULL with an exception if bf16 has none. */
PyArray_Descr *gpo_dtype_descr(gpo_dtype dtype);

/* The gpuopt dtype of a NumPy descriptor; GPO_NONE, without an exception, if none. */
gpo_dtype gpo_dtype_from_descr(PyArray_Descr *descr);

/* The bytes an array spans: [*low, *high) relative to its first element. */
void gpo_array_extent(const gpo_array *array, int64_t *low, int64_t *high);

/* A shape as a tuple of ints; NULL on failure. */
PyObject *gpo_shape_tuple(int ndim, const int64_t *shape);

bool gpo_same_shape(const gpo_array *a, const gpo_array *b);

#endif
