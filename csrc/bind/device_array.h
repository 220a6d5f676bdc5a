/*
 * device_array.h  gpuopt.DeviceArray: its structures and functions, defined in
 * device_memory.c, device_scalar.c, device_array.c and export.c.
 */
#ifndef GPO_DEVICE_ARRAY_H
#define GPO_DEVICE_ARRAY_H

#include "bind.h"

/* A piece of device memory, shared by its views.  Changed with the GIL held. */
typedef struct gpo_memory {
    Py_ssize_t references;
    Py_ssize_t exports; /* references that other libraries hold */
    gpo_backend_id id;
    const gpo_backend *backend; /* that allocated it: the simulator has two */
    int device;
    void *stream;           /* orders its writes and its release */
    PyObject *stream_owner; /* the stream's object, or NULL */
    PyObject *owner;        /* the owner of memory that is not ours, else NULL */
    void *base;             /* NULL once freed */
    size_t bytes;
} gpo_memory;

typedef struct gpo_device_array {
    PyObject_HEAD gpo_memory *memory;
    bool readonly;
    gpo_array array;
} gpo_device_array;

bool gpo_device_array_check(PyObject *object);

/*
 * A DeviceArray of `array`.  It takes over the memory `base`, also when it fails; with
 * `owner` the memory stays the owner's.  id GPO_CPU is host memory of malloc, a result
 * that will be handed to another library.  NULL on failure.
 */
PyObject *gpo_device_array_new(gpo_backend_id id, const gpo_backend *backend,
                               int device, void *stream, PyObject *stream_owner,
                               void *base, PyObject *owner, const gpo_array *array);

/* False with ValueError set if its memory is freed or another simulator library's. */
bool gpo_device_array_usable(gpo_device_array *self, const char *function);

/* A view of `memory`, with a new reference to it. */
gpo_device_array *gpo_device_array_view(gpo_memory *memory, bool readonly,
                                        const gpo_array *array);

/* Drops one reference; the last one frees the memory. */
void gpo_memory_release(gpo_memory *memory);

/* Frees the memory now; its arrays become unusable. */
void gpo_memory_free(gpo_memory *memory);

/* A new C-contiguous array of `shape`'s shape and dtype, uninitialised. */
gpo_device_array *gpo_device_array_empty(const gpo_array *shape, gpo_backend_id id,
                                         int device, void *stream,
                                         PyObject *stream_owner, const char *function);

/* Uploads a C-contiguous ndarray of the right shape and dtype. */
bool gpo_device_array_fill(gpo_device_array *self, PyArrayObject *host,
                           const char *function);

/* Copies `other`, which lies on another device of the same backend; waits for both. */
bool gpo_device_array_fill_across(gpo_device_array *self, const gpo_array *other,
                                  int device, const char *function);

/* Downloads into a C-contiguous ndarray of the right shape and dtype; waits. */
bool gpo_device_array_download(gpo_device_array *self, PyArrayObject *host,
                               const char *function);

/* A copy on the host, a new ndarray; waits for the array. */
PyArrayObject *gpo_device_array_host(gpo_device_array *self, const char *function);

/* `object` as a C-contiguous, native ndarray of a supported dtype. */
PyArrayObject *gpo_host_array(PyObject *object, const char *argument, gpo_array *array);

/* Attributes and methods of the class; the last argument of a getter is unused. */
PyObject *gpo_device_array_shape(gpo_device_array *self, void *unused);
PyObject *gpo_device_array_strides(gpo_device_array *self, void *unused);
PyObject *gpo_device_array_interface(gpo_device_array *self, void *unused);
PyObject *gpo_device_array_numpy(gpo_device_array *self, PyObject *unused);
PyObject *gpo_device_array_item(gpo_device_array *self, PyObject *unused);
PyObject *gpo_device_array_float(gpo_device_array *self);
PyObject *gpo_device_array_int(gpo_device_array *self);
PyObject *gpo_device_array_index(gpo_device_array *self);
PyObject *gpo_device_array_complex(gpo_device_array *self, PyObject *unused);
int gpo_device_array_truth(gpo_device_array *self);
PyObject *gpo_device_array_array(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *gpo_device_array_dlpack_device(gpo_device_array *self, PyObject *unused);
PyObject *gpo_device_array_dlpack(gpo_device_array *self, PyObject *args,
                                  PyObject *kwargs);

#endif
