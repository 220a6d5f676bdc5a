/*
 * tsan.c  Eight threads call every CPU variant of reduce at the same time, through the C
 * core and without Python; the bits must equal those of a single call.  tests/tsan.sh
 * compiles it with ThreadSanitizer.  Order: one call, the threads, main.
 */
#include "../csrc/backend/backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const gpo_op op_reduce;

enum {
    THREADS = 8,
    ROUNDS = 4,
    ROWS = 513,
    COLS = 1031,
    OP = 2,
    AXIS = 3,
    KEEPDIMS = 4
};

/* In place of backend.c, which would need the other backends. */
gpo_status
gpo_scratch(gpo_call *call, size_t bytes, void **out)
{
    return call->backend->scratch(call, bytes, out);
}

static float *memory; /* ROWS x COLS values, read as any dtype of at most 4 bytes */

/* Sums `memory` along `axis` (-1: everything) into out; false if the call failed. */
static bool
sum(const gpo_variant *variant, gpo_dtype dtype, int axis, void *out)
{
    _Alignas(16) char plan[GPO_PLAN_BYTES];
    gpo_call *call = calloc(1, sizeof *call);
    if (!call) {
        return false;
    }
    call->op = &op_reduce;
    call->backend = &gpo_backend_cpu;
    call->variant = variant;
    for (int i = 0; i < GPO_MAX_IN; i++) {
        call->convert[i] = GPO_NONE;
    }
    for (int i = 0; i < GPO_MAX_OUT; i++) {
        call->out_given[i] = GPO_NONE;
    }
    call->in[0].data = memory;
    call->in[0].dtype = dtype;
    call->in[0].ndim = 2;
    call->in[0].shape[0] = ROWS;
    call->in[0].shape[1] = COLS;
    call->opt[OP].given = true;
    call->opt[AXIS].given = axis >= 0;
    call->opt[AXIS].i = 1;
    call->opt[AXIS].ints[0] = axis;
    call->opt[KEEPDIMS].given = true;
    call->plan = plan;
    gpo_status status = gpo_array_contiguous(&call->error, &call->in[0]);
    status = status ? status : op_reduce.shape(call);
    if (!status) {
        op_reduce.plan(call);
    }
    call->out[0].data = out;
    status = status ? status : call->backend->begin(call);
    if (!status) {
        status = variant->run[dtype](call);
        call->backend->end(call);
    }
    free(call);
    return status == GPO_OK;
}

/* Every variant, dtype and axis, in one order: the results behind one another. */
static bool
all_sums(char *results)
{
    static const gpo_dtype dtypes[] = {GPO_F32, GPO_I32, GPO_I8};
    char *at = results;
    for (const gpo_variant *v = op_reduce.cpu->variants; v->name; v++) {
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            for (int axis = -1; axis < 2; axis++) {
                if (!sum(v, dtypes[d], axis, at)) {
                    return false;
                }
                at += COLS * sizeof(int64_t);
            }
        }
    }
    return true;
}

enum { RESULTS = 3 * 3 * 3 * COLS * (int)sizeof(int64_t) };

static char alone[RESULTS];

static void *
thread(void *unused)
{
    (void)unused;
    char *results = calloc(1, RESULTS);
    void *wrong = NULL;
    for (int round = 0; round < ROUNDS; round++) {
        if (!results || !all_sums(results) || memcmp(results, alone, RESULTS) != 0) {
            wrong = alone;
        }
    }
    free(results);
    return wrong;
}

int
main(void)
{
    pthread_t threads[THREADS];
    int wrong = 0;
    memory = malloc(sizeof(float) * ROWS * COLS);
    for (int i = 0; memory && i < ROWS * COLS; i++) {
        memory[i] = (float)(i % 1009) / 7;
    }
    gpo_cpu_set_threads(3);
    if (!memory || !all_sums(alone)) {
        return 1;
    }
    for (int i = 0; i < THREADS; i++) {
        wrong += pthread_create(&threads[i], NULL, thread, NULL) != 0;
    }
    for (int i = 0; i < THREADS; i++) {
        void *bad = NULL;
        wrong += pthread_join(threads[i], &bad) != 0 || bad;
    }
    free(memory);
    printf("%d threads, %d rounds, %d wrong\n", THREADS, ROUNDS, wrong);
    return wrong != 0;
}
