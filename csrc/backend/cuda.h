/*
 * cuda.h  What the files of the CUDA backend share: whether CUDA may be called, how a
 * failure is said, copies of large host arrays.
 */
#ifndef GPO_CUDA_H
#define GPO_CUDA_H

#include "device.h"

#ifdef GPO_WITH_CUDA

#include <cuda_runtime_api.h>

enum { GPO_CUDA_DEVICES = 64 }; /* most devices of one process */

/* The devices of the process; 0 if CUDA cannot be used. */
int gpo_cuda_devices(void);

/* False in a process that was forked after CUDA had started: nothing may be called. */
bool gpo_cuda_usable(void);

/* GPO_OK, or the failure of runtime function `api` as a status and a sentence. */
gpo_status gpo_cuda_check(gpo_call *call, cudaError_t error, const char *api);

/* Waits for the call's stream; then no kernel queued so far can be to blame. */
gpo_status gpo_cuda_wait(gpo_call *call);

/* Frees the block that gpo_tickets keeps for a stream that is about to go. */
void gpo_cuda_forget_stream(gpo_call *call, void *stream);

/* ---- large host arrays: cuda_staging.c ---- */

enum { GPO_STAGED_BYTES = 4 << 20 }; /* from here on a copy goes through the ring */

/*
 * Copies between pageable host memory and the device, through pinned buffers that
 * several threads fill or empty.  `from` (`to`) is free for use again on return.
 */
gpo_status gpo_cuda_staged_upload(gpo_call *call, void *to, const void *from,
                                  size_t bytes);
gpo_status gpo_cuda_staged_download(gpo_call *call, void *to, const void *from,
                                    size_t bytes);

bool gpo_cuda_went_pageable(void); /* and forgets it */
gpo_status gpo_cuda_pinned_new(gpo_call *call, size_t bytes, void **out);

#endif
#endif
