/*
 * choose.h  The backend and the variant that serve a call.
 */
#ifndef GPO_CHOOSE_H
#define GPO_CHOOSE_H

#include "call.h"

/* Sets backend, id, variant and why of a call with a plan; false with an exception set. */
bool gpo_choose_variant(frame *f);

/* The variant again, after the plan has changed, unless it was asked for by name. */
bool gpo_choose_again(frame *f);

#endif
