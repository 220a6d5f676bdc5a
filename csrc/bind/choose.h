/*
 * choose.h  Chooses the backend and the variant of a call.
 */
#ifndef GPO_CHOOSE_H
#define GPO_CHOOSE_H

#include "call.h"

/*
 * Before the first view, because it may run Python code: makes the costs of this machine
 * known if the call is one to weigh.  False on failure.
 */
bool gpo_choose_prepare(const frame *f);

/* Sets backend, id, variant and why of a call that has a plan; false on failure. */
bool gpo_choose_variant(frame *f);

/* Chooses the variant again after the plan has changed, unless the caller named it. */
bool gpo_choose_again(frame *f);

#endif
