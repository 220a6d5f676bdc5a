/*
 * transform.c  Implements transform.h.  Order: the plan, roots, the loops, tables,
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
    double *coarse, *fine; /* see root_of */
    int fine_bits;
} layout;

static layout
layout_of(const gpo_transform *t)
{
    layout l = {.cells = t->points / BRANCHES};
    l.turns = t->tables;
    l.coarse = l.turns + 2 * t->points;
    l.fine_bits = (floor_log2(t->points) + 2) / 2;
    l.fine = l.coarse + 2 * (4 * t->points >> l.fine_bits);
    l.roots = l.fine + (2 << l.fine_bits);
    return l;
}

int64_t
gpo_transform_doubles(const gpo_transform *t)
{
    const int fine_bits = layout_of(t).fine_bits;
    return 2 * t->points + 2 * (4 * t->points >> fine_bits) + (2 << fine_bits) +
           gpo_roots_before(t->points / BRANCHES * 4);
}

/* ---- roots ---- */

/*
 * exp(-2 pi i k / (4 N)), k modulo 4 N: a root of the coarse table times a root near 1
 * of the fine table, stored as its difference from 1, so the product is rounded about
 * once.
 */
static inline void
root_of(const gpo_transform *t, int64_t k, double *re, double *im)
{
    const layout l = layout_of(t);
    const int64_t at = k & (4 * t->points - 1);
    const double *c = l.coarse + 2 * (at >> l.fine_bits);
    const double *f = l.fine + 2 * (at & ((1 << l.fine_bits) - 1));
    *re = c[0] + (c[0] * f[0] - c[1] * f[1]);
    *im = c[1] + (c[0] * f[1] + c[1] * f[0]);
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
    const int64_t turn = 4 * t->points, fine = (int64_t)1 << l.fine_bits;
    const double step = -6.283185307179586 / (double)turn;
    for (int64_t k = 0; k < turn / fine; k++) {
        gpo_exact_root(k, turn / fine, &l.coarse[2 * k], &l.coarse[2 * k + 1]);
    }
    for (int64_t k = 0; k < fine; k++) {
        const double half = sin(step / 2 * (double)k);
        l.fine[2 * k] = -2 * half * half;
        l.fine[2 * k + 1] = sin(step * (double)k);
    }
    double *root = l.roots;
    for (int64_t n = floor_log2(l.cells) % 2 ? 32 : 16; n <= l.cells; n *= 4) {
        for (int64_t k = 0; k < n / 4; k++, root += 6) {
            for (int power = 1; power <= 3; power++) {
                root_of(t, turn / n * k * power, &root[2 * power - 2],
                        &root[2 * power - 1]);
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
