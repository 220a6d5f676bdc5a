/*
 * last_call.h  The record of the last call.
 */
#ifndef GPO_LAST_CALL_H
#define GPO_LAST_CALL_H

#include "bind.h"

typedef struct gpo_last {
    const char *op, *backend, *variant;
    bool packed;                              /* an input was copied first */
    bool pageable;                            /* without pinned memory */
    double upload_ms, kernel_ms, download_ms; /* negative: not measured */
} gpo_last;

extern gpo_last gpo_last_call; /* changed with the GIL held */
extern bool gpo_measuring;

#endif
