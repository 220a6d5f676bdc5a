/*
 * cpu_update.c  causal_conv1d_update on the CPU: a few steps of many rows, each behind
 * its state.  Order: the job, the steps of a row, the steps of channels, the rows of
 * the state, the variants.
 *
 * The loops are those of causal_conv1d for filters of few lags, so that steps one by
 * one give the bits of the whole sequence.
 */
#include "cpu.h"

#include <string.h>

enum {
    BLOCK_CHANNELS = 256, /* of a task */
    FEW_STEPS = 16,       /* more take narrower blocks */
};

typedef struct update_job {
    conv_job j; /* its plan has w and the bias alone */
    update_plan plan;
    const char *x, *index;
    char *y;
    const char *state;
    char *next;
    bool in_place, by_channels;
    int64_t block, blocks; /* channels of a task */
    char *taps, *more;     /* by lag and channel, or by channel and lag */
} update_job;

/* ---- rows of the state ---- */

static int64_t
row_at(const update_job *u, int64_t b)
{
    const update_plan *p = &u->plan;
    if (!p->has_index) {
        return b;
    }
    const int64_t i = b * p->index_b;
    return p->index_wide ? ((const int64_t *)(const void *)u->index)[i]
                         : ((const int32_t *)(const void *)u->index)[i];
}

/* Every row exists and is named once. */
static gpo_status
check_index(gpo_call *call, const update_job *u)
{
    const update_plan *p = &u->plan;
    void *memory = NULL;
    if (!p->has_index) {
        return GPO_OK;
    }
    for (int64_t b = 0; b < p->batches; b++) {
        const int64_t row = row_at(u, b);
        if (row < 0 || row >= p->rows) {
            return gpo_fail(&call->error, GPO_EINDEX,
                            "index %lld is out of bounds for axis 0 with size %lld",
                            (long long)row, (long long)p->rows);
        }
    }
    const size_t bytes = (size_t)p->rows + 1;
    const gpo_status status = gpo_scratch(call, bytes, &memory);
    if (status) {
        return status;
    }
    char *seen = memset(memory, 0, bytes);
    for (int64_t b = 0; b < p->batches; b++) {
        const int64_t row = row_at(u, b);
        if (seen[row]++) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "state_index must name each row once, but has %lld twice",
                            (long long)row);
        }
    }
    return GPO_OK;
}

/* Task r: row r of the state as it was. */
static void
keep_row(void *context, int64_t r)
{
    const update_job *u = context;
    const update_plan *p = &u->plan;
    for (int64_t c = 0; c < p->channels; c++) {
        for (int64_t k = 0; k < p->kept; k++) {
            conv_copy_element(conv_element(&u->j, u->next, &p->next, r, c, k),
                              conv_element(&u->j, u->state, &p->state, r, c, k),
                              u->j.bytes);
        }
    }
}

/* The new state of row r for some channels: the last steps of the old one and of x. */
static void
move_on(const update_job *u, int64_t b, int64_t r, int64_t c0, int64_t channels)
{
    const update_plan *p = &u->plan;
    for (int64_t c = c0; c < c0 + channels; c++) {
        for (int64_t k = 0; k < p->kept; k++) { /* ascending: it may be in place */
            const int64_t t = k + p->steps - p->kept; /* of x */
            const char *from =
                t < 0 ? conv_element(&u->j, u->state, &p->state, r, c, p->kept + t)
                      : conv_element(&u->j, u->x, &p->x, b, c, t);
            conv_copy_element(conv_element(&u->j, u->next, &p->next, r, c, k), from,
                              u->j.bytes);
        }
    }
}

/* ---- the steps of rows and of channels ---- */

/* Channel c of batch b, whose state is row r: vectors along time. */
static void
update_row(const update_job *u, int64_t b, int64_t r, int64_t c, char *memory)
{
    const conv_job *j = &u->j;
    const update_plan *p = &u->plan;
    const int64_t before = p->taps - 1;
    char *x = memory, *sum = memory + (before + p->steps) * j->value_bytes;
    j->loops->read(conv_element(j, u->state, &p->state, r, c, p->kept - before),
                   p->state.t, before, x);
    x += before * j->value_bytes;
    j->loops->read(conv_element(j, u->x, &p->x, b, c, 0), p->x.t, p->steps, x);
    j->loops->row(x, u->taps + c * p->taps * j->value_bytes, p->steps, p->taps, -1,
                  conv_more(j, c), sum);
    if (p->silu) {
        j->loops->silu(sum, ADD_NOTHING, p->steps);
    }
    j->loops->write(sum, ADD_NOTHING, p->y.t, p->steps,
                    conv_element(j, u->y, &p->y, b, c, 0));
}

/* Channels from c on: vectors of channels. */
static void
update_channels(const update_job *u, int64_t b, int64_t r, int64_t c, int64_t channels,
                char *memory)
{
    const conv_job *j = &u->j;
    const update_plan *p = &u->plan;
    const int64_t before = p->taps - 1, row = channels * j->value_bytes;
    char *x = memory, *sums = memory + (before + p->steps) * row;
    for (int64_t k = 0; k < before; k++) {
        j->loops->read(conv_element(j, u->state, &p->state, r, c, p->kept - before + k),
                       p->state.c, channels, x + k * row);
    }
    x += before * row;
    for (int64_t t = 0; t < p->steps; t++) {
        j->loops->read(conv_element(j, u->x, &p->x, b, c, t), p->x.c, channels,
                       x + t * row);
    }
    const channel_sums of = {.x = x,
                             .w = u->taps + c * j->value_bytes,
                             .more = u->more + c * j->value_bytes,
                             .to = sums,
                             .x_pitch = channels,
                             .w_pitch = p->channels,
                             .to_pitch = channels,
                             .channels = channels};
    j->loops->channels(&of, p->steps, p->taps, -1);
    if (p->silu) {
        j->loops->silu(sums, ADD_NOTHING, p->steps * channels);
    }
    for (int64_t t = 0; t < p->steps; t++) {
        j->loops->write(sums + t * row, ADD_NOTHING, p->y.c, channels,
                        conv_element(j, u->y, &p->y, b, c, t));
    }
}

/* Task i: a block of channels of a batch; no other task touches its part of the state. */
static void
update_block(void *context, int64_t i, void *memory)
{
    const update_job *u = context;
    const update_plan *p = &u->plan;
    const int64_t b = i / u->blocks, r = row_at(u, b), c0 = i % u->blocks * u->block;
    const int64_t channels =
        i % u->blocks == u->blocks - 1 ? p->channels - c0 : u->block;
    if (u->by_channels) {
        update_channels(u, b, r, c0, channels, memory);
    }
    else {
        for (int64_t c = c0; c < c0 + channels; c++) {
            update_row(u, b, r, c, memory);
        }
    }
    move_on(u, b, r, c0, channels);
}

/* ---- the variants ---- */

/* The taps as values, by lag where a task takes vectors of channels. */
static gpo_status
pack_taps(gpo_call *call, update_job *u)
{
    const update_plan *p = &u->plan;
    const conv_job *j = &u->j;
    const int64_t row = p->channels * j->value_bytes;
    void *memory = NULL;
    const gpo_status status = gpo_scratch(call, (size_t)((p->taps + 1) * row), &memory);
    if (status) {
        return status;
    }
    u->taps = memory;
    u->more = u->taps + p->taps * row;
    const char *last = (const char *)j->arrays.w + (p->taps - 1) * p->w_k * j->bytes;
    for (int64_t s = 0; s < p->taps && u->by_channels; s++) {
        j->loops->read(last - s * p->w_k * j->bytes, p->w_c, p->channels,
                       u->taps + s * row);
    }
    conv_fill_more(j, p->channels, u->more);
    for (int64_t c = 0; c < p->channels && !u->by_channels; c++) {
        j->loops->read(last + c * p->w_c * j->bytes, -p->w_k, p->taps,
                       u->taps + c * p->taps * j->value_bytes);
    }
    return GPO_OK;
}

static void
start(gpo_call *call, update_job *u, bool scalar, bool parallel)
{
    const update_plan *p = update_plan_of(call);
    const conv_plan plan = {
        .has_bias = p->has_bias, .bias_c = p->bias_c, .eps = p->eps};
    *u = (update_job){.plan = *p,
                      .x = call->in[UPDATE_X].data,
                      .index = call->in[UPDATE_INDEX].data,
                      .y = call->out[0].data,
                      .state = call->in[UPDATE_STATE].data,
                      .next = call->out[1].data};
    u->j.plan = plan;
    u->j.arrays.w = call->in[UPDATE_W].data;
    u->j.arrays.bias = call->in[UPDATE_BIAS].data;
    u->j.parallel = parallel;
    conv_set_dtype(&u->j, call->in[UPDATE_X].dtype);
    u->in_place = u->next == u->state;
    u->by_channels = !scalar && p->channels >= LEAST_CHANNELS && p->taps <= SHORT_LAGS;
    u->block = p->steps > FEW_STEPS ? LEAST_CHANNELS : BLOCK_CHANNELS;
    u->blocks = p->channels / u->block > 1 ? p->channels / u->block : 1;
}

static gpo_status
run(gpo_call *call, bool scalar, bool parallel)
{
    update_job u;
    start(call, &u, scalar, parallel);
    const update_plan *p = &u.plan;
    gpo_status status = check_index(call, &u);
    if (!status) {
        status = pack_taps(call, &u);
    }
    if (status) {
        return status;
    }
    if (!u.in_place) {
        gpo_cpu_loop(parallel, p->rows, keep_row, &u);
    }
    const int64_t widest = !u.by_channels              ? 1
                           : p->channels < 2 * u.block ? p->channels
                                                       : 2 * u.block;
    const int64_t values = (p->taps - 1 + 2 * p->steps) * widest;
    return gpo_cpu_work(call, parallel, p->channels > 0 ? p->batches * u.blocks : 0,
                        (size_t)(values * u.j.value_bytes), update_block, &u);
}

static gpo_status
run_scalar(gpo_call *call)
{
    return run(call, true, false);
}

static gpo_status
run_simd(gpo_call *call)
{
    return run(call, false, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run(call, false, true);
}

#define FLOATS(run) [GPO_F16] = run, [GPO_BF16] = run, [GPO_F32] = run, [GPO_F64] = run

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one channel of a batch after the other",
                        "",
                        "run-to-run",
                        {FLOATS(run_scalar)},
                        "exact"},
    [GPO_CPU_SIMD] =
        {"simd", "vectors of channels", "", "run-to-run", {FLOATS(run_simd)}, "exact"},
    [GPO_CPU_THREADS] = {"threads",
                         "simd on blocks of channels of each batch",
                         "",
                         "run-to-run",
                         {FLOATS(run_threads)},
                         "exact"},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    enum { PAYS = 1 << 17 };
    const update_plan *p = update_plan_of(call);
    const int64_t steps = p->taps + p->steps;
    return gpo_cpu_choose(
        variants, p->batches * p->channels * steps >= PAYS,
        "under 2^17 steps of states and x, starting threads costs more than it saves",
        "the work is enough for several threads", why);
}

const gpo_table causal_conv1d_update_cpu = {variants, choose};
