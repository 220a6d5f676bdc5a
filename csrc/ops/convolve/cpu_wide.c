/*
 * cpu_wide.c  Wide blocks of convolve: the magnitudes of their sums differ too much for
 * one transform.  Order: passes, memory, the squares of a pass, corners, a wide block.
 *
 * Here every input of a transform is a term of every sum that the transform computes.
 * Sum n has the inputs n - m + 1 .. n.  The row is divided into windows of BASE 2^k
 * inputs, at most m / 2; the inputs of a window are terms of all sums from the window's
 * end until m after its beginning.  Two triangles remain: sums n with inputs i <= n of
 * the same window, and sums m + n with inputs i > n of the same window as n.  Each is
 * divided into squares of half its size, recursively, down to corners of BASE by BASE,
 * which are summed directly.
 */
#include "../../core/elements.h"
#include "cpu_fourier.h"

#include <string.h>

enum { SIZES = 64 }; /* powers of two */

/* ---- passes ---- */

/*
 * The squares of one size, at lo = 0, period, 2 period, ..: one transform each.  A
 * square has inputs from lo + in and sums from lo + out.
 */
typedef struct pass {
    int64_t size, period; /* size: inputs per square */
    int64_t in, out;
    int64_t count;      /* sums per square */
    int64_t length, at; /* of a transform; the position of its first sum */
    int64_t first_tap, taps;
} pass;

/* ---- memory ---- */

struct wide_room {
    gpo_transform transforms[SIZES]; /* indexed by log2 of the length */
    double *sums;                    /* of a block */
    double *filter;                  /* the spectrum of the pass's taps */
    double *ends;                    /* the first and the last BASE taps */
    double *slots;                   /* a block and cells for each running square */
    int64_t slot_doubles;            /* of all slots */
};

static int
exponent_of_length(int64_t length)
{
    return __builtin_ctzll((unsigned long long)length);
}

/* The least power of two not less than n, at least 2 BASE. */
static int64_t
good_length(int64_t n)
{
    int64_t power = 2 * BASE;
    while (power < n) {
        power *= 2;
    }
    return power;
}

/* Allocates and fills the tables of all lengths from 2 BASE to `longest`. */
static gpo_status
make_transforms(const fourier *f, wide_room *room, int64_t longest)
{
    const job *j = f->job;
    for (int64_t length = 2 * BASE; length <= longest; length *= 2) {
        gpo_transform *t = &room->transforms[exponent_of_length(length)];
        void *tables = NULL;
        *t = gpo_transform_plan(points_of(j, length), j->lanes == 1, gpo_cpu_isa());
        const gpo_status status = gpo_scratch(
            f->call, (size_t)gpo_transform_doubles(t) * sizeof(double), &tables);
        if (status) {
            return status;
        }
        t->tables = tables;
        convolve_fill_tables(j, t);
    }
    return GPO_OK;
}

static gpo_status
make_room(const fourier *f, wide_room **made)
{
    const job *j = f->job;
    const int64_t longest = good_length(j->plan->m), doubles = longest * j->lanes;
    const int64_t each = doubles < 2 * SHARED ? doubles : 2 * SHARED;
    const int64_t most = f->workers * each > doubles ? f->workers * each : doubles;
    void *own = NULL, *memory = NULL;
    gpo_status status = gpo_scratch(f->call, sizeof **made, &own);
    if (status) {
        return status;
    }
    wide_room *room = own;
    room->slot_doubles = 2 * most;
    status = gpo_scratch(f->call,
                         (size_t)(room->slot_doubles + doubles + 2 * BASE * j->lanes +
                                  f->plan.per_block * j->lanes) *
                             sizeof(double),
                         &memory);
    if (status) {
        return status;
    }
    room->slots = memory;
    room->filter = room->slots + room->slot_doubles;
    room->ends = room->filter + doubles;
    room->sums = room->ends + 2 * BASE * j->lanes;
    *made = room;
    return make_transforms(f, room, longest);
}

/* ---- the squares of a pass ---- */

/* Independent squares of one pass that contribute to sums [begin, end) of a block. */
typedef struct squares {
    const fourier *f;
    const block *b;
    const wide_room *room;
    const pass *p;
    const gpo_transform *t;
    int64_t begin, end;
    int64_t lo, step, count; /* first lo, stride, number of squares */
    int64_t tasks;
} squares;

static void
drop_odd(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] - x[i] == 0 ? x[i] : 0;
    }
}

/* Reads the inputs of a square, scaled and zero-padded; returns their exponent. */
static int
read_square(const squares *s, int64_t lo, double *x)
{
    const job *j = s->f->job;
    const int64_t n = s->p->size * j->lanes;
    convolve_read_doubles(j, s->b->a, j->plan->n, j->plan->a_step, lo + s->p->in,
                          s->p->size, x);
    drop_odd(x, n);
    const int exponent = convolve_exponent_of(x, n);
    convolve_scale(x, n, -exponent);
    memset(x + n, 0, (size_t)(s->p->length * j->lanes - n) * sizeof(double));
    return exponent;
}

/* Task `task`: every s->tasks-th square. */
static void
add_squares(void *context, int64_t task)
{
    const squares *s = context;
    const int64_t lanes = s->f->job->lanes, doubles = s->p->length * lanes;
    double *x = s->room->slots + task * 2 * doubles;
    const gpo_transform_work work = {s->t, x, x + doubles, s->room->filter};
    for (int64_t k = task; k < s->count; k += s->tasks) {
        const int64_t lo = s->lo + k * s->step, at = lo + s->p->out;
        const int64_t from = at > s->begin ? at : s->begin;
        const int64_t past = at + s->p->count, to = past < s->end ? past : s->end;
        double *found = x + (s->p->at + from - at) * lanes;
        double *sums = s->room->sums + (from - s->begin) * lanes;
        const int exponent = read_square(s, lo, x);
        convolve_transform(s->f->job, &work);
        convolve_scale(found, (to - from) * lanes, exponent + s->b->filter.exponent);
        for (int64_t i = 0; i < (to - from) * lanes; i++) {
            sums[i] += found[i];
        }
    }
}

static void
transform_taps(const squares *s)
{
    const job *j = s->f->job;
    const int64_t n = s->p->taps * j->lanes, doubles = s->p->length * j->lanes;
    double *x = s->room->slots;
    const gpo_transform_work work = {s->t, x, s->room->filter, NULL};
    convolve_read_doubles(j, s->b->v, j->plan->m, j->plan->v_step, s->p->first_tap,
                          s->p->taps, x);
    convolve_scale(x, n, -s->b->filter.exponent);
    memset(x + n, 0, (size_t)(doubles - n) * sizeof(double));
    convolve_transform(j, &work);
}

/*
 * Adds the squares of a pass.  Squares whose sums overlap go into different turns, so
 * that the terms of a sum are always added in the same order.
 */
static void
run_pass(const fourier *f, const block *b, const wide_room *room, const pass *p)
{
    const int64_t begin = b->first, end = begin + b->n;
    const int64_t turns = ceil_div(p->count, p->period), step = turns * p->period;
    /* the last lo whose square ends before the block */
    const int64_t before = begin - p->out - p->count;
    const int64_t lo = before < 0 ? 0 : (before / p->period + 1) * p->period;
    const int64_t by_sums = end - p->out, by_inputs = f->job->plan->n - p->in;
    const int64_t stop = by_sums < by_inputs ? by_sums : by_inputs;
    squares s = {.f = f, .b = b, .room = room, .p = p, .begin = begin, .end = end};
    s.t = &room->transforms[exponent_of_length(p->length)];
    s.step = step;
    transform_taps(&s);
    for (int64_t turn = 0; turn < turns; turn++) {
        s.lo = lo + turn * p->period;
        s.count = s.lo < stop ? ceil_div(stop - s.lo, step) : 0;
        const int64_t slots = room->slot_doubles / (2 * p->length * f->job->lanes);
        const int64_t most = slots < f->workers ? slots : f->workers;
        const bool enough = s.t->points < SHARED || s.count >= 2 * most;
        s.tasks = !enough ? 1 : s.count < most ? s.count : most;
        gpo_cpu_loop(s.tasks > 1, s.count > 0 ? s.tasks : 0, add_squares, &s);
    }
}

/* ---- corners ---- */

/* Adds x times n taps to sums [first, first + n), clipped to the block. */
static void
add_clipped(const fourier *f, const block *b, const wide_room *room, const double *x,
            const double *taps, int64_t first, int64_t n)
{
    const int64_t from = first > b->first ? first : b->first, end = b->first + b->n;
    const int64_t to = first + n < end ? first + n : end, lanes = f->job->lanes;
    if (from < to) {
        convolve_add_products(f->job, x, taps + (from - first) * lanes, to - from,
                              room->sums + (from - b->first) * lanes);
    }
}

/* Whether any of the sums [first, first + BASE) is in the block. */
static bool
reaches(const block *b, int64_t first)
{
    return first + BASE > b->first && first < b->first + b->n;
}

/* Inputs [lo, lo + BASE) with the sums of the same indices, and those m later. */
static void
add_corners(const fourier *f, const block *b, const wide_room *room, int64_t lo)
{
    const job *j = f->job;
    const int64_t m = j->plan->m, lanes = j->lanes;
    const double *head = room->ends, *tail = head + BASE * lanes;
    double x[2 * BASE] = {0};
    if (!reaches(b, lo) && !reaches(b, m + lo)) {
        return;
    }
    convolve_read_doubles(j, b->a, j->plan->n, j->plan->a_step, lo, BASE, x);
    drop_odd(x, BASE * lanes);
    for (int64_t q = 0; q < BASE; q++) {
        add_clipped(f, b, room, x + q * lanes, head, lo + q, BASE - q);
        add_clipped(f, b, room, x + q * lanes, tail + (BASE - q) * lanes, m + lo, q);
    }
}

/* ---- a wide block ---- */

static void
run_passes(const fourier *f, const block *b, const wide_room *room)
{
    const int64_t m = f->job->plan->m;
    int64_t window = BASE;
    while (4 * window <= m) {
        window *= 2;
    }
    const pass middle = {window,         window, 0, window, m - window,
                         good_length(m), window, 0, m};
    run_pass(f, b, room, &middle);
    for (int64_t size = BASE; size < window; size *= 2) {
        const pass near = {size, 2 * size, 0, size, size, 2 * size, size, 0, 2 * size};
        const pass far = {size,     2 * size, size,         m,       size,
                          2 * size, size,     m - 2 * size, 2 * size};
        run_pass(f, b, room, &near);
        run_pass(f, b, room, &far);
    }
}

gpo_status
convolve_run_wide(const fourier *f, wide_room **made, block *b)
{
    const job *j = f->job;
    const convolve_plan *p = j->plan;
    const gpo_status status = *made ? GPO_OK : make_room(f, made);
    if (status) {
        return status;
    }
    const wide_room *room = *made;
    memset(room->sums, 0, (size_t)(b->n * j->lanes) * sizeof(double));
    run_passes(f, b, room);
    convolve_read_doubles(j, b->v, p->m, p->v_step, 0, BASE, room->ends);
    convolve_read_doubles(j, b->v, p->m, p->v_step, p->m - BASE, BASE,
                          room->ends + BASE * j->lanes);
    const int64_t before = b->first - p->m - BASE, end = b->first + b->n;
    for (int64_t lo = before < 0 ? 0 : before / BASE * BASE; lo < end && lo < p->n;
         lo += BASE) {
        add_corners(f, b, room, lo);
    }
    convolve_write_block(f, b, room->sums);
    return GPO_OK;
}
