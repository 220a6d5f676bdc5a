/*
 * retain.h  Keeps memory alive until a stream has finished with it.
 */
#ifndef GPO_RETAIN_H
#define GPO_RETAIN_H

#include "bind.h"

/* Keeps `object` alive until the work now on the call's stream is done. */
bool gpo_retain(gpo_call *call, PyObject *object);
/* Releases the objects whose work is done. */
void gpo_reap(void);

#endif
