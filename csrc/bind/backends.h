/*
 * backends.h  The backends by name, the default backend, and what is available.
 */
#ifndef GPO_BACKENDS_H
#define GPO_BACKENDS_H

#include "bind.h"

/*
 * The default backend of calls on host arrays; -1 with an exception set.  It is the
 * GPU, if there is one, and nobody has chosen, gpo_backend_is_free(): then choose.c
 * weighs each call.
 */
int gpo_default_backend(void);

/* Whether neither use() nor GPUOPT_BACKEND has chosen. */
bool gpo_backend_is_free(void);

/* The backend called `name` (a str); -1 with ValueError or TypeError set. */
int gpo_backend_from_name(PyObject *name);

/*
 * Makes `id` the default; -1 restores GPUOPT_BACKEND, else CUDA if available.  Returns
 * what was set before.
 */
int gpo_backend_use(int id);

extern const char *const gpo_backend_names[GPO_NBACKENDS];

/* The table of a backend with device memory. */
const gpo_device *gpo_device_of(gpo_backend_id id);

/* False with CudaError or SimulatorError set if the backend cannot run here. */
bool gpo_check_available(gpo_backend_id id);

/* The same, and ValueError if the backend has no such device. */
bool gpo_check_device(gpo_backend_id id, int64_t device);

#endif
