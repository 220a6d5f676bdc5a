/*
 * cpu_short.c  causal_conv1d and its backward on the CPU for filters of few lags, where
 * the time goes into memory.  Order: the job, rows, channels, the sums of the tasks,
 * start.  See short.inc for the loops.
 *
 * Each array is read and written once, in pieces that stay in the L1 cache: a task
 * takes a range of steps of a row (vectors along time) or, where channels are
 * neighbours in memory, of many channels (vectors of channels).  16-bit elements and
 * those of other strides are converted in the cache.  The gradient of a filter is
 * summed by range and the ranges in order, so the number of threads changes no bit.
 */
#include "cpu.h"

#include <string.h>

enum {
    ROW_RANGE = 1024,    /* steps of a unit of work along a row */
    CHANNEL_RANGE = 256, /* steps of one across channels */
    TILE = 16,           /* steps across channels that are in the cache at once */
    TASK_STEPS = 4096,   /* shorter rows share a task */
    TOGETHER = 16,       /* channels whose sums are added at once */
};

/* ---- the job ---- */

typedef struct short_job {
    const conv_job *j;
    bool by_channels;
    int64_t range, ranges;   /* steps of a unit, units along a row */
    int64_t block, blocks;   /* channels of a unit, units across the channels */
    int64_t units, per_task; /* of work */
    int64_t buffer;          /* bytes of one of a task's BUFFERS */
    char *taps;              /* rows: by channel, then lag; channels: by lag */
    char *more, *nothing;    /* by channels: eps + bias, ADD_NOTHING */
    char *sums;              /* backward: lags + 1 sums of each channel and range */
} short_job;

enum { BUFFERS = 3 };

static inline int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t
most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- rows ---- */

/* n steps of a row as values: in place if they are, else in `memory`. */
static const char *
row_values(const conv_job *j, const char *first, int64_t stride, int64_t n,
           char *memory)
{
    if (stride == 1 && j->bytes == j->value_bytes) {
        return first;
    }
    j->loops->read(first, stride, n, memory);
    return memory;
}

/* Steps [first, to) of row (b, c) of x, those before 0 from the state. */
static const char *
x_values(const conv_job *j, int64_t b, int64_t c, int64_t first, int64_t to,
         char *memory)
{
    const conv_plan *p = &j->plan;
    if (first >= 0) {
        return row_values(j, conv_element(j, j->arrays.x, &p->x, b, c, first), p->x.t,
                          to - first, memory);
    }
    j->loops->read(
        conv_element(j, j->arrays.state, &p->state, b, c, p->taps - 1 + first),
        p->state.t, -first, memory);
    j->loops->read(conv_element(j, j->arrays.x, &p->x, b, c, 0), p->x.t, to,
                   memory - first * j->value_bytes);
    return memory;
}

/* Sums over the steps before each of [from, to), given the values from `from` on. */
static void
sum_before(const conv_job *j, const char *x, const char *filter, const conv_span *p,
           double more, char *to)
{
    const int64_t lags = j->plan.lags, n = p->to - p->from;
    const int64_t early = least(most(p->begin + lags - 1 - p->from, 0), n);
    const int64_t skip = early * j->value_bytes;
    j->loops->row_end(x, filter, early, p->from - p->begin, -1, more, to);
    j->loops->row(x + skip, filter, n - early, lags, -1, more, to + skip);
}

/* The same over the steps after each. */
static void
sum_after(const conv_job *j, const char *g, const char *filter, const conv_span *p,
          char *to)
{
    const int64_t lags = j->plan.lags, n = p->to - p->from;
    const int64_t late = least(most(p->to - (p->end - lags + 1), 0), n);
    const int64_t skip = (n - late) * j->value_bytes;
    j->loops->row(g, filter, n - late, lags, 1, ADD_NOTHING, to);
    j->loops->row_end(g + skip, filter, late, p->end - 1 - (p->to - late), 1,
                      ADD_NOTHING, to + skip);
}

/* Where the results of a row are computed: their place, or `memory`. */
static char *
row_target(const conv_job *j, char *out, char *memory)
{
    return j->plan.out.t == 1 && j->bytes == j->value_bytes ? out : memory;
}

static void
store_row(const conv_job *j, const char *values, char *out, int64_t n)
{
    if (values != out) {
        j->loops->write(values, ADD_NOTHING, j->plan.out.t, n, out);
    }
}

static void
forward_row(const short_job *s, int64_t b, int64_t c, const conv_span *p, char *memory)
{
    const conv_job *j = s->j;
    const conv_plan *plan = &j->plan;
    const char *filter = s->taps + c * plan->lags * j->value_bytes;
    const int64_t first = most(p->begin, p->from - plan->lags + 1), n = p->to - p->from;
    const char *x = x_values(j, b, c, first, p->to, memory);
    char *out = conv_element(j, j->arrays.out, &plan->out, b, c, p->from);
    char *to = row_target(j, out, memory + s->buffer);
    sum_before(j, x + (p->from - first) * j->value_bytes, filter, p, conv_more(j, c),
               to);
    if (plan->silu) {
        j->loops->silu(to, ADD_NOTHING, n);
    }
    store_row(j, to, out, n);
}

static void
backward_row(const short_job *s, int64_t b, int64_t c, const conv_span *p, char *memory,
             char *sums)
{
    const conv_job *j = s->j;
    const conv_plan *plan = &j->plan;
    const char *filter = s->taps + c * plan->lags * j->value_bytes;
    const int64_t first = most(p->begin, p->from - plan->lags + 1);
    const int64_t last = least(p->end, p->to + plan->lags - 1);
    const char *x = x_values(j, b, c, first, last, memory);
    const char *dy = conv_element(j, j->arrays.dy, &plan->dy, b, c, p->from);
    x += (p->from - first) * j->value_bytes;
    char *slopes = memory + s->buffer;
    const char *g = slopes;
    if (plan->silu) {
        const conv_span all = {p->begin, p->end, p->from, last};
        sum_before(j, x, filter, &all, conv_more(j, c), slopes);
        j->loops->silu_slope(slopes, ADD_NOTHING, last - p->from);
        j->loops->turn(slopes, dy, plan->dy.t, last - p->from, slopes);
    }
    else {
        g = row_values(j, dy, plan->dy.t, last - p->from, slopes);
    }
    char *out = conv_element(j, j->arrays.out, &plan->out, b, c, p->from);
    char *to = row_target(j, out, memory + 2 * s->buffer);
    sum_after(j, g, filter, p, to);
    store_row(j, to, out, p->to - p->from);
    j->loops->row_lags(x, g, p->from, p->to, p->begin, plan->lags, sums);
}

/* ---- channels ---- */

/* Steps of some channels as values; those that are not are kept in `memory`. */
typedef struct window {
    const conv_job *j;
    const char *array, *state; /* steps 0 and -(K - 1) of the first channel */
    int64_t step, stride, channels;
    char *memory;
    int64_t first, last; /* the steps in `memory` */
} window;

static window
window_of(const conv_job *j, const void *array, const conv_strides *strides, int64_t b,
          int64_t c, int64_t channels, char *memory)
{
    return (window){.j = j,
                    .array = conv_element(j, array, strides, b, c, 0),
                    .step = strides->t,
                    .stride = strides->c,
                    .channels = channels,
                    .memory = memory};
}

/* Makes room for steps [from, to) in the memory of a window, keeping those it has. */
static void
advance(window *w, int64_t from)
{
    const int64_t bytes = w->channels * w->j->value_bytes;
    if (from > w->first && from < w->last) {
        memmove(w->memory, w->memory + (from - w->first) * bytes,
                (size_t)((w->last - from) * bytes));
    }
    w->last = most(w->last, from);
    w->first = from;
}

/* Step t of a window as values. */
static void
read_step(const window *w, int64_t t, char *to)
{
    const conv_job *j = w->j;
    const conv_plan *p = &j->plan;
    if (t < 0) {
        j->loops->read(w->state + (p->taps - 1 + t) * p->state.t * j->bytes, p->state.c,
                       w->channels, to);
    }
    else {
        j->loops->read(w->array + t * w->step * j->bytes, w->stride, w->channels, to);
    }
}

/* The values of step `from`; up to `to` they are `*pitch` values apart. */
static const char *
steps_of(window *w, int64_t from, int64_t to, int64_t *pitch)
{
    const conv_job *j = w->j;
    if (w->stride == 1 && j->bytes == j->value_bytes && from >= 0) {
        *pitch = w->step;
        return w->array + from * w->step * j->bytes;
    }
    advance(w, from);
    for (; w->last < to; w->last++) {
        read_step(w, w->last,
                  w->memory + (w->last - from) * w->channels * j->value_bytes);
    }
    *pitch = w->channels;
    return w->memory;
}

/*
 * Sums over the steps before (side -1) or after (1) each of `n` steps from `from` on,
 * of a row of steps [begin, end); of->x points to step `from`.
 */
static void
sum_channels(const conv_job *j, channel_sums of, const conv_span *p, int side)
{
    const int64_t lags = j->plan.lags;
    for (int64_t t = p->from; t < p->to;) {
        const int64_t terms = side < 0 ? t - p->begin + 1 : p->end - t;
        const int64_t whole = side < 0 ? p->to - t : p->end - lags + 1 - t;
        const int64_t n = terms < lags ? 1 : least(whole, p->to - t);
        j->loops->channels(&of, n, least(terms, lags), side);
        of.x = (const char *)of.x + n * of.x_pitch * j->value_bytes;
        of.to = (char *)of.to + n * of.to_pitch * j->value_bytes;
        t += n;
    }
}

/* Where the results of some channels are computed: their place, or `memory`. */
static char *
channels_target(const conv_job *j, char *out, int64_t channels, char *memory,
                int64_t *pitch)
{
    const bool there = j->plan.out.c == 1 && j->bytes == j->value_bytes;
    *pitch = there ? j->plan.out.t : channels;
    return there ? out : memory;
}

static void
store_channels(const conv_job *j, const channel_sums *of, char *out, int64_t n)
{
    const conv_strides *strides = &j->plan.out;
    for (int64_t t = 0; t < n && of->to != out; t++) {
        j->loops->write((char *)of->to + t * of->to_pitch * j->value_bytes, ADD_NOTHING,
                        strides->c, of->channels, out + t * strides->t * j->bytes);
    }
}

static channel_sums
sums_of(const short_job *s, int64_t c, int64_t channels, const char *more)
{
    return (channel_sums){.w = s->taps + c * s->j->value_bytes,
                          .w_pitch = s->j->plan.channels,
                          .more = more,
                          .channels = channels};
}

static void
forward_channels(const short_job *s, int64_t b, int64_t c, int64_t channels,
                 const conv_span *p, char *memory)
{
    const conv_job *j = s->j;
    const conv_plan *plan = &j->plan;
    window x = window_of(j, j->arrays.x, &plan->x, b, c, channels, memory);
    if (plan->has_state) {
        x.state = conv_element(j, j->arrays.state, &plan->state, b, c, 0);
        x.first = x.last = 1 - plan->taps;
    }
    for (int64_t t = p->from; t < p->to; t += TILE) {
        const conv_span tile = {p->begin, p->end, t, least(t + TILE, p->to)};
        const int64_t first = most(p->begin, t - plan->lags + 1), n = tile.to - t;
        channel_sums of = sums_of(s, c, channels, s->more + c * j->value_bytes);
        of.x = steps_of(&x, first, tile.to, &of.x_pitch);
        of.x = (const char *)of.x + (t - first) * of.x_pitch * j->value_bytes;
        char *out = conv_element(j, j->arrays.out, &plan->out, b, c, t);
        of.to = channels_target(j, out, channels, memory + s->buffer, &of.to_pitch);
        sum_channels(j, of, &tile, -1);
        for (int64_t i = 0; i < n && plan->silu; i++) {
            j->loops->silu((char *)of.to + i * of.to_pitch * j->value_bytes,
                           ADD_NOTHING, channels);
        }
        store_channels(j, &of, out, n);
    }
}

/*
 * The gradient before SiLU from step `from` on, as steps_of gives it; x points to step
 * x_first.  Those of steps that `slopes` has already are kept.
 */
static const char *
gradient_of(const short_job *s, window *slopes, const window *dy, channel_sums of,
            int64_t x_first, const conv_span *p)
{
    const conv_job *j = s->j;
    const int64_t bytes = slopes->channels * j->value_bytes;
    advance(slopes, p->from);
    const conv_span fresh = {p->begin, p->end, slopes->last, p->to};
    if (fresh.from < fresh.to) {
        char *to = slopes->memory + (fresh.from - p->from) * bytes;
        const int64_t n = fresh.to - fresh.from;
        of.x =
            (const char *)of.x + (fresh.from - x_first) * of.x_pitch * j->value_bytes;
        of.to = to;
        of.to_pitch = slopes->channels;
        sum_channels(j, of, &fresh, -1);
        j->loops->silu_slope(to, ADD_NOTHING, n * slopes->channels);
        for (int64_t i = 0; i < n; i++) {
            j->loops->turn(to + i * bytes,
                           dy->array + (fresh.from + i) * dy->step * j->bytes,
                           dy->stride, slopes->channels, to + i * bytes);
        }
        slopes->last = fresh.to;
    }
    return slopes->memory;
}

static void
backward_channels(const short_job *s, int64_t b, int64_t c, int64_t channels,
                  const conv_span *p, char *memory, char *sums)
{
    const conv_job *j = s->j;
    const conv_plan *plan = &j->plan;
    const int64_t lags = plan->lags;
    window x = window_of(j, j->arrays.x, &plan->x, b, c, channels, memory);
    window dy =
        window_of(j, j->arrays.dy, &plan->dy, b, c, channels, memory + s->buffer);
    window slopes = dy;
    for (int64_t t = p->from; t < p->to; t += TILE) {
        const conv_span tile = {p->begin, p->end, t, least(t + TILE, p->to)};
        const conv_span ahead = {p->begin, p->end, t,
                                 least(p->end, tile.to + lags - 1)};
        const int64_t first = most(p->begin, t - lags + 1);
        channel_sums before = sums_of(s, c, channels, s->more + c * j->value_bytes);
        channel_sums after = sums_of(s, c, channels, s->nothing);
        before.x =
            steps_of(&x, first, plan->silu ? ahead.to : tile.to, &before.x_pitch);
        if (plan->silu) {
            after.x_pitch = channels;
            after.x = gradient_of(s, &slopes, &dy, before, first, &ahead);
        }
        else {
            after.x = steps_of(&dy, t, ahead.to, &after.x_pitch);
        }
        char *out = conv_element(j, j->arrays.out, &plan->out, b, c, t);
        after.to =
            channels_target(j, out, channels, memory + 2 * s->buffer, &after.to_pitch);
        sum_channels(j, after, &tile, 1);
        store_channels(j, &after, out, tile.to - t);
        const channel_sums lag_sums = {
            .x = (const char *)before.x + (t - first) * before.x_pitch * j->value_bytes,
            .x_pitch = before.x_pitch,
            .w = after.x,
            .w_pitch = after.x_pitch,
            .to = sums,
            .to_pitch = plan->channels,
            .channels = channels};
        j->loops->channel_lags(&lag_sums, t, tile.to, p->begin, lags);
    }
}

/* ---- tasks ---- */

/* Unit i: a range of steps of a row. */
static void
row_unit(const short_job *s, int64_t i, char *memory)
{
    const conv_plan *p = &s->j->plan;
    const int64_t r = i % s->ranges, c = i / s->ranges % p->channels;
    const int64_t b = i / s->ranges / p->channels, from = r * s->range;
    const int64_t to = least(from + s->range, p->steps);
    const int64_t bytes = p->backward ? (p->lags + 1) * s->j->value_bytes : 0;
    char *sums = s->sums + ((c * p->batches + b) * s->ranges + r) * bytes;
    if (p->backward) {
        memset(sums, 0, (size_t)bytes);
    }
    for (int64_t t = from; t < to;) {
        const conv_span span = conv_span_at(s->j, b, t, to);
        if (p->backward) {
            backward_row(s, b, c, &span, memory, sums);
        }
        else {
            forward_row(s, b, c, &span, memory);
        }
        t = span.to;
    }
}

/* Unit i: a range of steps of some channels. */
static void
channel_unit(const short_job *s, int64_t i, char *memory)
{
    const conv_plan *p = &s->j->plan;
    const int64_t c = i % s->blocks * s->block, r = i / s->blocks % s->ranges;
    const int64_t b = i / s->blocks / s->ranges, from = r * s->range;
    const int64_t to = least(from + s->range, p->steps);
    /* the last block is at least half as wide as the others */
    const int64_t channels =
        i % s->blocks == s->blocks - 1 ? p->channels - c : s->block;
    const int64_t row = p->backward ? p->channels * s->j->value_bytes : 0;
    char *sums = s->sums + (b * s->ranges + r) * (p->lags + 1) * row;
    if (p->backward) {
        sums += c * s->j->value_bytes;
        for (int64_t k = 0; k <= p->lags; k++) {
            memset(sums + k * row, 0, (size_t)(channels * s->j->value_bytes));
        }
    }
    for (int64_t t = from; t < to;) {
        const conv_span span = conv_span_at(s->j, b, t, to);
        if (p->backward) {
            backward_channels(s, b, c, channels, &span, memory, sums);
        }
        else {
            forward_channels(s, b, c, channels, &span, memory);
        }
        t = span.to;
    }
}

static void
run_task(void *context, int64_t task, void *memory)
{
    const short_job *s = context;
    const int64_t first = task * s->per_task;
    for (int64_t i = first; i < least(first + s->per_task, s->units); i++) {
        if (s->by_channels) {
            channel_unit(s, i, memory);
        }
        else {
            row_unit(s, i, memory);
        }
    }
}

/* ---- the sums of the tasks ---- */

static double
value_at(const conv_job *j, const char *values, int64_t i)
{
    return j->dtype == GPO_F64 ? ((const double *)values)[i]
                               : (double)((const float *)values)[i];
}

static void
put_value(const conv_job *j, void *to, int64_t i, double value)
{
    const float narrow = (float)value;
    conv_put(j, to, i, 1, 1, j->dtype == GPO_F64 ? (const void *)&value : &narrow);
}

/* Task i: dw and dbias of some channels. */
static void
add_sums(void *context, int64_t i)
{
    const short_job *s = context;
    const conv_job *j = s->j;
    const conv_plan *p = &j->plan;
    const int64_t pieces = p->batches * s->ranges, lags = p->lags;
    const int64_t by_lag = s->by_channels ? p->channels : 1;
    const int64_t by_piece = s->by_channels ? (lags + 1) * p->channels : lags + 1;
    const int64_t by_channel = s->by_channels ? 1 : pieces * (lags + 1);
    const int64_t c0 = i * TOGETHER, n = least(TOGETHER, p->channels - c0);
    memset((char *)j->arrays.dw + c0 * p->taps * j->bytes, 0,
           (size_t)(n * p->taps * j->bytes));
    for (int64_t k = 0; k <= lags; k++) {
        double total[TOGETHER] = {0};
        for (int64_t piece = 0; piece < pieces; piece++) {
            for (int64_t c = 0; c < n; c++) {
                total[c] += value_at(
                    j, s->sums, (c0 + c) * by_channel + piece * by_piece + k * by_lag);
            }
        }
        for (int64_t c = 0; c < n; c++) {
            if (k < lags) {
                put_value(j, j->arrays.dw, (c0 + c + 1) * p->taps - 1 - k, total[c]);
            }
            else if (p->has_bias) {
                put_value(j, j->arrays.dbias, c0 + c, total[c]);
            }
        }
    }
}

/* ---- start ---- */

/* Task i: the taps of channel i, or of lag i. */
static void
pack_taps(void *context, int64_t i)
{
    const short_job *s = context;
    const conv_job *j = s->j;
    const conv_plan *p = &j->plan;
    const char *last = (const char *)j->arrays.w + (p->taps - 1) * p->w_k * j->bytes;
    if (s->by_channels) {
        j->loops->read(last - i * p->w_k * j->bytes, p->w_c, p->channels,
                       s->taps + i * p->channels * j->value_bytes);
    }
    else {
        j->loops->read(last + i * p->w_c * j->bytes, -p->w_k, p->lags,
                       s->taps + i * p->lags * j->value_bytes);
    }
}

/* Memory for the taps and, by channels, for what is added; fills it. */
static gpo_status
prepare(gpo_call *call, short_job *s)
{
    const conv_job *j = s->j;
    const conv_plan *p = &j->plan;
    const int64_t row = p->channels * j->value_bytes;
    void *memory = NULL;
    const gpo_status status = gpo_scratch(call, (size_t)((p->lags + 2) * row), &memory);
    if (status) {
        return status;
    }
    s->taps = memory;
    s->more = s->taps + p->lags * row;
    s->nothing = s->more + row;
    if (s->by_channels) {
        conv_fill_more(j, p->channels, s->more);
    }
    for (int64_t c = 0; c < p->channels && s->by_channels; c++) {
        if (j->dtype == GPO_F64) {
            ((double *)s->nothing)[c] = ADD_NOTHING;
        }
        else {
            ((float *)s->nothing)[c] = (float)ADD_NOTHING;
        }
    }
    gpo_cpu_loop(j->parallel, s->by_channels ? p->lags : p->channels, pack_taps, s);
    return GPO_OK;
}

/* How the work is divided: a unit is a range of steps of a row or of a block. */
static void
divide(short_job *s)
{
    const conv_job *j = s->j;
    const conv_plan *p = &j->plan;
    s->by_channels =
        p->channels >= LEAST_CHANNELS && p->x.c == 1 && (p->x.t != 1 || p->steps == 1);
    s->range = s->by_channels ? CHANNEL_RANGE : ROW_RANGE;
    s->ranges = ceil_div(p->steps, s->range);
    s->block = j->bytes == j->value_bytes ? 2048 / j->value_bytes : 256;
    s->blocks =
        s->by_channels ? most((p->channels + s->block / 2) / s->block, 1) : p->channels;
    s->units = p->batches * s->ranges * s->blocks;
    s->per_task = s->by_channels ? 1 : most(TASK_STEPS / p->steps, 1);
    const int64_t widest = least(s->block + s->block / 2, p->channels);
    s->buffer =
        (s->by_channels ? (TILE + 2 * p->lags) * widest : s->range + 2 * p->lags) *
        j->value_bytes;
}

gpo_status
conv_short(gpo_call *call, const conv_job *j)
{
    const conv_plan *p = &j->plan;
    short_job s = {.j = j};
    divide(&s);
    gpo_status status = prepare(call, &s);
    if (!status && p->backward) {
        void *memory = NULL;
        status = gpo_scratch(call,
                             (size_t)(p->batches * s.ranges * p->channels *
                                      (p->lags + 1) * j->value_bytes),
                             &memory);
        s.sums = memory;
    }
    if (!status) {
        status = gpo_cpu_work(call, j->parallel, ceil_div(s.units, s.per_task),
                              (size_t)(BUFFERS * s.buffer), run_task, &s);
    }
    if (!status && p->backward) {
        gpo_cpu_loop(j->parallel, ceil_div(p->channels, TOGETHER), add_sums, &s);
    }
    return status;
}
