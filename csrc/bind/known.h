/*
 * known.h  Tensors of indices that an earlier call found right.
 */
#ifndef GPO_KNOWN_H
#define GPO_KNOWN_H

#include "call.h"

/*
 * Notes which tensor the call takes as its indices, and torch's count of its changes.
 * Reads attributes, before the first view (see call.c); never fails.
 */
void gpo_known_see(frame *f, PyObject *object);

/* Before the choice: sets call.known if the tensor is as an earlier call found it. */
void gpo_known_ask(frame *f);

/* After it: forgets that where no GPU runs the call, nor the simulator. */
void gpo_known_settle(frame *f);

/* After the kernels: remembers call.found; never fails. */
void gpo_known_keep(frame *f);

#endif
