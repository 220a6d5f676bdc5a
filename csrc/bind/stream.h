/*
 * stream.h  Streams: ours, those of other libraries, a thread's current stream.
 */
#ifndef GPO_STREAM_H
#define GPO_STREAM_H

#include "bind.h"

/*
 * The handle of a stream object: an int, a gpuopt.Stream, an object with
 * __cuda_stream__, a torch or a CuPy stream.  Returns 1, 0 for None, or -1 with an
 * exception set.  gpo_stream_fits: whether a gpuopt.Stream belongs to the device of the
 * arrays.
 */
int gpo_stream_handle(PyObject *object, const char *function, void **stream);
bool gpo_stream_fits(PyObject *object, gpo_backend_id id, int device);

/* The stream that `with stream:` made current in this thread, borrowed, or NULL. */
PyObject *gpo_stream_current(gpo_backend_id id, int device, void **stream);

#endif
