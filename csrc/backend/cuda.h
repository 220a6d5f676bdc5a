/*
 * cuda.h  Declarations shared by the files of the CUDA backend: whether CUDA may be
 * called, error reports, copies of large host arrays.
 */
#ifndef GPO_CUDA_H
#define GPO_CUDA_H

#include "device.h"

#ifdef GPO_WITH_CUDA

#include <cuda_runtime_api.h>

enum { GPO_CUDA_DEVICES = 64 }; /* most devices of one process */

/* The devices of the process; 0 if CUDA cannot be used. */
int gpo_cuda_devices(void);

/* False in a process forked after CUDA had started, which must not call CUDA. */
bool gpo_cuda_usable(void);

/* GPO_OK, or the error of runtime function `api` as a status and a message. */
gpo_status gpo_cuda_check(gpo_call *call, cudaError_t error, const char *api);

/* Waits for the call's stream; on success no earlier kernel is suspect any more. */
gpo_status gpo_cuda_wait(gpo_call *call);

/* Frees the workspace that gpo_tickets keeps for a stream about to be destroyed. */
void gpo_cuda_forget_stream(gpo_call *call, void *stream);

/* ---- words that a kernel writes and the host reads: cuda_answers.c ---- */

gpo_status gpo_cuda_take_slot(gpo_call *call, uint64_t **word);

/* Waits for the call's stream if the word has no answer yet. */
void gpo_cuda_give_slot(gpo_call *call, uint64_t *word);

/* gpo_answer. */
gpo_status gpo_cuda_answer(gpo_call *call, const uint64_t *word, uint64_t *answer);

/* gpo_later_question; gpo_cuda_check_later fails if a kernel has written to its word. */
gpo_status gpo_cuda_later(gpo_call *call, uint64_t **word);
gpo_status gpo_cuda_check_later(gpo_call *call);

/* ---- large host arrays: cuda_staging.c ---- */

enum { GPO_STAGED_BYTES = 2 << 20 }; /* from here on copies use the ring */

/*
 * Copies between pageable host memory and the device, through pinned buffers that
 * several threads fill or empty.  On return `from` (`to`) may be reused.
 */
gpo_status gpo_cuda_staged_upload(gpo_call *call, void *to, const void *from,
                                  size_t bytes);
gpo_status gpo_cuda_staged_download(gpo_call *call, void *to, const void *from,
                                    size_t bytes);

bool gpo_cuda_went_pageable(void); /* and resets it */
gpo_status gpo_cuda_pinned_new(gpo_call *call, size_t bytes, void **out);

#endif
#endif
