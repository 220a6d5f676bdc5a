/*
 * run.h  What all placements share when they run a call: the GIL, measuring, what is
 * noted.
 */
#ifndef GPO_RUN_H
#define GPO_RUN_H

#include "call.h"
#include "last_call.h"

/* Pins the host arrays of the call and lets other threads run; false on failure. */
bool gpo_let_go(frame *f);
void gpo_take_back(void);

/* What `last` is before the call runs. */
extern const gpo_last gpo_unmeasured;

/* With the GIL: raises what `status` says, or notes what the call did. */
bool gpo_run_end(frame *f, gpo_status status, gpo_last *last);

/* ---- measuring: nothing is done unless gpo_measuring is set ---- */

double gpo_milliseconds(void); /* of a clock that never jumps */

/* Events between the parts of a call on its stream. */
enum { MARK_START, MARK_UPLOADED, MARK_RUN, MARK_DOWNLOADED, NMARKS };

typedef struct gpo_timer {
    const gpo_device *device; /* NULL: not measuring */
    void *event[NMARKS];
} gpo_timer;

gpo_status gpo_timer_start(gpo_timer *t, gpo_call *call, gpo_backend_id id);
gpo_status gpo_timer_mark(const gpo_timer *t, gpo_call *call, int mark);

/* Waits for the last mark and notes the times; frees the events in any case. */
gpo_status gpo_timer_finish(gpo_timer *t, gpo_call *call, gpo_status status,
                            gpo_last *last);

#endif
