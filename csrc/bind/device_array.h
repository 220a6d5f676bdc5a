/*
 * device_array.h  What the files about gpuopt.DeviceArray share: device_array.c,
 * export.c, asdevice.c.
 */
#ifndef GPO_DEVICE_ARRAY_H
#define GPO_DEVICE_ARRAY_H

#include "bind.h"

/* A new C-contiguous array of `shape`'s shape and dtype, uninitialised. */
gpo_device_array *gpo_device_array_empty(const gpo_array *shape, gpo_backend_id id,
                                         int device, void *stream, PyObject *keeper,
                                         const char *function);

/* Uploads a C-contiguous ndarray of the right shape and dtype. */
bool gpo_device_array_fill(gpo_device_array *self, PyArrayObject *host,
                           const char *function);

/* `object` as a C-contiguous, native ndarray of a supported dtype. */
PyArrayObject *gpo_host_array(PyObject *object, const char *argument, gpo_array *array);

/* Attributes and methods of the class; the last argument of a getter is unused. */
PyObject *gpo_device_array_shape(gpo_device_array *self, void *unused);
PyObject *gpo_device_array_strides(gpo_device_array *self, void *unused);
PyObject *gpo_device_array_interface(gpo_device_array *self, void *unused);
PyObject *gpo_device_array_numpy(gpo_device_array *self, PyObject *unused);
PyObject *gpo_device_array_array(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *gpo_device_array_dlpack_device(gpo_device_array *self, PyObject *unused);
PyObject *gpo_device_array_dlpack(gpo_device_array *self, PyObject *args,
                                  PyObject *kwargs);

#endif
