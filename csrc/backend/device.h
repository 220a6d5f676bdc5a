/*
 * device.h  What arrays that stay on a device need beyond a call: streams, events,
 * ordering, copies on the device, pinned host memory, memory figures.  One table for
 * CUDA (cuda_device.c) and one for the simulator (sim_device.c).
 * Not here: what every call needs (backend.h).
 */
#ifndef GPO_DEVICE_H
#define GPO_DEVICE_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every function may be called without the GIL and works on call->device, between the
 * backend's begin and end; a failure leaves its sentence in the call.
 */
typedef struct gpo_device {
    int (*count)(void); /* devices there are; 0 if the backend cannot run */

    /* Elements of `from` into `to`, of the same shape: any strides, any two dtypes. */
    gpo_status (*copy)(gpo_call *call, const gpo_array *from, const gpo_array *to);

    /* One value of at most 16 bytes from host memory, which may go at once. */
    gpo_status (*store)(gpo_call *call, void *to, const void *from, size_t bytes);

    /* What is queued on `then` from now on runs after what is on `first` now. */
    gpo_status (*order)(gpo_call *call, void *first, void *then);

    gpo_status (*stream_new)(gpo_call *call, int priority, void **stream);
    void (*stream_free)(gpo_call *call, void *stream);
    gpo_status (*stream_device)(gpo_call *call, void *stream, int *device);

    gpo_status (*event_new)(gpo_call *call, void **event);
    void (*event_free)(gpo_call *call, void *event);
    gpo_status (*event_record)(gpo_call *call, void *event); /* on call->stream */
    gpo_status (*event_wait)(gpo_call *call, void *event);   /* the host waits */
    gpo_status (*event_follow)(gpo_call *call, void *event); /* call->stream waits */
    gpo_status (*event_done)(gpo_call *call, void *event, bool *done);
    gpo_status (*event_elapsed)(gpo_call *call, void *first, void *last, double *ms);

    gpo_status (*synchronize)(gpo_call *call); /* all work of the device */
    gpo_status (*memory)(
        gpo_call *call, size_t *free_bytes, size_t *total_bytes,
        size_t *pool_bytes);            /* what the pool holds back is pool_bytes */
    gpo_status (*trim)(gpo_call *call); /* the pool gives back what is unused */

    gpo_status (*pinned_new)(gpo_call *call, size_t bytes, void **out);
    void (*pinned_free)(void *memory);

    /* The device that `memory` is on; ETYPE if it is on none. */
    gpo_status (*device_of)(gpo_call *call, const void *memory, int *device);

    /* Whether the last upload of this thread had to do without pinned memory. */
    bool (*went_pageable)(void);
} gpo_device;

extern const gpo_device gpo_device_cuda; /* also in a build without CUDA: count is 0 */
extern const gpo_device gpo_device_sim;

#ifdef __cplusplus
}
#endif
#endif
