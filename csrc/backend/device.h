/*
 * device.h  Functions for arrays that stay on a device: streams, events, ordering,
 * copies on the device, pinned host memory, memory statistics.  One table for CUDA
 * (cuda_device.c) and one for the simulator (sim_device.c).
 * See backend.h for the functions that every call needs.
 */
#ifndef GPO_DEVICE_H
#define GPO_DEVICE_H

#include "backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every function may be called without the GIL and works on call->device, between the
 * backend's begin and end; a failure leaves its message in the call.
 */
enum { GPO_DEVICE_NAME = 256 };

typedef struct gpo_device {
    int (*count)(void); /* the number of devices; 0 if the backend cannot run */
    void (*name)(int device, char name[GPO_DEVICE_NAME]); /* "" if unknown */

    /* Copies `from` to `to`, of the same shape, with any strides and dtypes. */
    gpo_status (*copy)(gpo_call *call, const gpo_array *from, const gpo_array *to);

    /* Copies `bytes` of another device; NULL: the backend has one device. */
    gpo_status (*copy_across)(gpo_call *call, void *to, const void *from,
                              int from_device, size_t bytes);

    /* Stores one value of at most 16 bytes; `from` may be freed on return. */
    gpo_status (*store)(gpo_call *call, void *to, const void *from, size_t bytes);

    /* Later work on stream `then` waits for the work now on stream `first`. */
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
    gpo_status (*memory)(gpo_call *call, size_t *free_bytes, size_t *total_bytes,
                         size_t *pool_bytes); /* unused memory that the pool holds */
    gpo_status (*trim)(gpo_call *call);       /* the pool releases unused memory */

    gpo_status (*pinned_new)(gpo_call *call, size_t bytes, void **out);
    void (*pinned_free)(void *memory);

    /* The device of `memory`; ETYPE if it is on none. */
    gpo_status (*device_of)(gpo_call *call, const void *memory, int *device);

    /* Whether the last upload of this thread found no pinned memory. */
    bool (*went_pageable)(void);
} gpo_device;

extern const gpo_device gpo_device_cuda; /* also in a build without CUDA: count is 0 */
extern const gpo_device gpo_device_sim;

#ifdef __cplusplus
}
#endif
#endif
