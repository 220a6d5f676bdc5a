/*
 * transform.c  Implements transform.h.  Order: the plan, the loops, tables,
 * steps.
 */
#include "transform.h"

#include "cells.h"
#include "integers.h"

#include <math.h>
#include <string.h>

enum {
    BRANCHES = 8,       /* transforms that the first step makes of a block */
    PIECE_CELLS = 2048, /* most per piece, 256 KiB: it stays in an L2 of 1 MiB */
    PART_CELLS = 1024,  /* per part, in steps that pass over the whole block */
};

/*
 * exp(i pi s / 16).  The values of a polynomial at the roots of z^N = i are the
 * transform of x[k] exp(i pi k / (2 N)); this is the factor of k = s N / 8.
 */
static const double starts[2 * BRANCHES] = {
    1.0,
    0.0,
    0.9807852804032304,
    0.19509032201612828,
    0.9238795325112867,
    0.3826834323650898,
    0.8314696123025452,
    0.5555702330196022,
    0.7071067811865476,
    0.7071067811865476,
    0.5555702330196022,
    0.8314696123025452,
    0.3826834323650898,
    0.9238795325112867,
    0.19509032201612828,
    0.9807852804032304,
};

/* ---- the plan ---- */

gpo_transform
gpo_transform_plan(int64_t points, bool real, int isa)
{
    gpo_transform t = {.points = points, .real = real, .isa = isa};
    while (points / BRANCHES >> 2 * t.divisions > PIECE_CELLS) {
        t.divisions++;
    }
    return t;
}

/* The arrays in t->tables. */
typedef struct layout {
    int64_t cells;         /* per branch */
    double *turns, *roots; /* twiddle factors per cell and lane; of cells.h */
    gpo_root_tables source;
} layout;

static layout
layout_of(const gpo_transform *t)
{
    layout l = {.cells = t->points / BRANCHES};
    l.turns = t->tables;
    l.source = gpo_root_tables_of(4 * t->points, l.turns + 2 * t->points);
    l.roots = l.source.coarse + gpo_root_doubles(4 * t->points);
    return l;
}

int64_t
gpo_transform_doubles(const gpo_transform *t)
{
    return 2 * t->points + gpo_root_doubles(4 * t->points) +
           gpo_roots_before(t->points / BRANCHES * 4);
}

/* ---- the loops ---- */

typedef struct loops {
    void (*fill_turns)(const gpo_transform *t, int64_t begin, int64_t end);
    void (*first)(const gpo_transform *t, const double *block, double *cells,
                  int64_t begin, int64_t end);
    void (*last)(const gpo_transform *t, const double *cells, double *block,
                 int64_t begin, int64_t end);
    void (*divide)(const gpo_transform *t, double *cells, int64_t m, int64_t piece,
                   int64_t begin, int64_t end, bool back);
    void (*convolve)(const gpo_transform *t, double *cells, const double *filter,
                     int64_t m, int64_t piece);
} loops;

#define GPO_LOOPS "transform.inc"
#include "each_isa.h"

static const loops *
loops_of(const gpo_transform *t)
{
    static const loops *const tables[] = GPO_EACH_ISA(&table);
    return tables[t->isa];
}

/* ---- tables ---- */

/* The parts of a step that passes over n cells, and the end of part `part`. */
static int64_t
parts_of(int64_t n)
{
    return ceil_div(n, PART_CELLS);
}

static int64_t
end_of(int64_t part, int64_t n)
{
    return (part + 1) * PART_CELLS < n ? (part + 1) * PART_CELLS : n;
}

void
gpo_transform_start(const gpo_transform *t)
{
    const layout l = layout_of(t);
    gpo_fill_root_tables(&l.source);
    double *root = l.roots;
    for (int64_t n = floor_log2(l.cells) % 2 ? 32 : 16; n <= l.cells; n *= 4) {
        for (int64_t k = 0; k < n / 4; k++, root += 6) {
            for (int power = 1; power <= 3; power++) {
                gpo_root_of(&l.source, l.source.turn / n * k * power,
                            &root[2 * power - 2], &root[2 * power - 1]);
            }
        }
    }
}

int64_t
gpo_transform_table_parts(const gpo_transform *t)
{
    return parts_of(layout_of(t).cells);
}

void
gpo_transform_fill(const gpo_transform *t, int64_t part)
{
    const int64_t cells = layout_of(t).cells;
    loops_of(t)->fill_turns(t, part * PART_CELLS, end_of(part, cells));
}

/* ---- steps ---- */

/*
 * FIRST, DIVIDE .., CONVOLVE, UNITE .., LAST.  At depth d there are 4^d pieces of m
 * cells; a part of a DIVIDE or UNITE is a range of the first quarter of a piece.
 */
typedef enum step_kind { FIRST, DIVIDE, CONVOLVE, UNITE, LAST, DONE } step_kind;

static step_kind
kind_of(const gpo_transform_work *w, int step, int *depth)
{
    const int middle = w->plan->divisions + 1;
    *depth = step <= middle ? step - 1 : 2 * middle - step - 1;
    return step == 0                         ? FIRST
           : step < middle                   ? DIVIDE
           : step == middle                  ? CONVOLVE
           : !w->filter || step > 2 * middle ? DONE
           : step == 2 * middle              ? LAST
                                             : UNITE;
}

int64_t
gpo_transform_parts(const gpo_transform_work *w, int step)
{
    int depth;
    const int64_t cells = layout_of(w->plan).cells;
    switch (kind_of(w, step, &depth)) {
        case FIRST:
        case LAST:
            return parts_of(cells);
        case DIVIDE:
        case UNITE:
            return parts_of(cells >> 2 * depth >> 2) << 2 * depth;
        case CONVOLVE:
            return (int64_t)1 << 2 * depth;
        default:
            return 0;
    }
}

void
gpo_transform_part(const gpo_transform_work *w, int step, int64_t part)
{
    int depth;
    const gpo_transform *t = w->plan;
    const loops *loops = loops_of(t);
    const step_kind kind = kind_of(w, step, &depth);
    const int64_t cells = layout_of(t).cells, begin = part * PART_CELLS;
    if (kind == FIRST) {
        loops->first(t, w->block, w->cells, begin, end_of(part, cells));
    }
    else if (kind == LAST) {
        loops->last(t, w->cells, w->block, begin, end_of(part, cells));
    }
    else if (kind == CONVOLVE) {
        loops->convolve(t, w->cells, w->filter, cells >> 2 * depth, part);
    }
    else {
        const int64_t m = cells >> 2 * depth, each = parts_of(m / 4);
        const int64_t some = part % each;
        loops->divide(t, w->cells, m, part / each, some * PART_CELLS,
                      end_of(some, m / 4), kind == UNITE);
    }
}
