/*
 * transform.h  The Fourier transform of one long block, for CPU convolutions.
 * Order: the plan, its tables, the steps of a transform.
 *
 * A block of 2 N real numbers is packed into N complex ones, x[k] + i x[k + N]; a block
 * of N complex numbers is used as it is.  The spectrum is the values of the polynomial
 * at the N roots of z^N = i, so the two halves of a real block need no separation step.
 * Multiplying spectra therefore gives a convolution that wraps around with a factor, -1
 * for real numbers and i for complex ones; callers must discard the sums that wrap.
 *
 * A first radix-8 step turns a block into 8 lanes of N / 8 cells (cells.inc) at any
 * vector width, so the bits are the same on every instruction set.  The steps of a long
 * block have several parts, which threads may share; the bits do not depend on the
 * schedule.
 */
#ifndef GPO_TRANSFORM_H
#define GPO_TRANSFORM_H

#include "gpo.h"

enum {
    GPO_LEAST_POINTS = 64,       /* the smallest block */
    GPO_TRANSFORM_ALIGNMENT = 64 /* bytes; of tables, blocks and spectra */
};

/* ---- the plan ---- */

typedef struct gpo_transform {
    int64_t points; /* N: complex numbers per block, a power of two */
    bool real;      /* a block is 2 N real numbers, else N complex ones */
    int divisions;  /* radix-4 steps until a piece fits into a cache */
    int isa;        /* gpo_cpu_isa() */
    double *tables;
} gpo_transform;

/* The plan for blocks of `points`; the caller allocates and fills the tables. */
gpo_transform gpo_transform_plan(int64_t points, bool real, int isa);

/* ---- its tables ---- */

/* The number of doubles to allocate for t->tables. */
int64_t gpo_transform_doubles(const gpo_transform *t);

/* Fills t->tables: call _start first, then _fill for all parts in any order. */
void gpo_transform_start(const gpo_transform *t);
int64_t gpo_transform_table_parts(const gpo_transform *t);
void gpo_transform_fill(const gpo_transform *t, int64_t part);

/* ---- the steps of a transform ---- */

/*
 * A block has 2 N doubles: real numbers, or real and imaginary parts interleaved.  The
 * cells have 2 N doubles, too.
 */
typedef struct gpo_transform_work {
    const gpo_transform *plan;
    double *block;
    double *cells;
    const double *filter; /* a spectrum; NULL to compute one in `cells` */
} gpo_transform_work;

/*
 * Steps 0, 1, .. must run one after the other, the parts of a step in any order; a step
 * with 0 parts means done.  With a filter, the block is then its convolution with the
 * filter; without one, the block is unchanged and its spectrum is in `cells`.
 */
int64_t gpo_transform_parts(const gpo_transform_work *w, int step);
void gpo_transform_part(const gpo_transform_work *w, int step, int64_t part);

#endif
