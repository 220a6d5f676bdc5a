/*
 * run.h  Functions that all placements share to run a call: the GIL, the record for
 * last_call(), measuring.
 */
#ifndef GPO_RUN_H
#define GPO_RUN_H

#include "call.h"
#include "last_call.h"

/* Pins the host arrays of the call and releases the GIL; false on failure. */
bool gpo_let_go(frame *f);
void gpo_take_back(void);

/* The initial value of `last`. */
extern const gpo_last gpo_unmeasured;

/* With the GIL: raises the exception for `status`, or records what the call did. */
bool gpo_run_end(frame *f, gpo_status status, gpo_last *last);

/* ---- measuring: no effect unless gpo_measuring is set ---- */

double gpo_milliseconds(void); /* of a monotonic clock */

/* Events between the parts of a call on its stream. */
enum { MARK_START, MARK_UPLOADED, MARK_RUN, MARK_DOWNLOADED, NMARKS };

typedef struct gpo_timer {
    const gpo_device *device; /* NULL: not measuring */
    void *event[NMARKS];
} gpo_timer;

gpo_status gpo_timer_start(gpo_timer *t, gpo_call *call, gpo_backend_id id);
gpo_status gpo_timer_mark(const gpo_timer *t, gpo_call *call, int mark);

/* Waits for the last mark and stores the times; always frees the events. */
gpo_status gpo_timer_finish(gpo_timer *t, gpo_call *call, gpo_status status,
                            gpo_last *last);

#endif
