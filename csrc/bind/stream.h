/*
 * stream.h  Streams: ours, those of other libraries, the current one of a thread.
 */
#ifndef GPO_STREAM_H
#define GPO_STREAM_H

#include "bind.h"

/*
 * The handle of a stream object: an int, a gpuopt.Stream, what has __cuda_stream__, a
 * torch or a CuPy stream.  -1 with an exception set, 0 for None, 1 for a handle.
 * id and device are those of the arrays: a gpuopt.Stream must agree.
 */
int gpo_stream_handle(PyObject *object, const char *function, void **stream);
bool gpo_stream_fits(PyObject *object, gpo_backend_id id, int device);

/* The stream that `with stream:` made current in this thread, borrowed, or NULL. */
PyObject *gpo_stream_current(gpo_backend_id id, int device, void **stream);

#endif
