/*
 * retain.h  Memory kept until a queue is done.
 */
#ifndef GPO_RETAIN_H
#define GPO_RETAIN_H

#include "bind.h"

/* Keeps `object` alive until what is queued on the call's stream is done. */
bool gpo_retain(gpo_call *call, PyObject *object);
/* Lets go of what is done. */
void gpo_reap(void);

#endif
