/*
 * transform.h  The Fourier transform of one long block, for CPU rooms that convolve.
 * Order: the plan, its tables, the steps of a transform.
 *
 * A block of 2 N real numbers is taken as the N complex ones x[k] + i x[k + N]; a block of
 * N complex numbers as it is.  Its spectrum are the values of that polynomial where
 * z^N = i, which keeps both halves of a real block apart.  So what is multiplied by a
 * spectrum and transformed back is a convolution whose end wraps around with a factor, -1
 * for real numbers and i for complex ones: for callers that leave the sums alone that wrap.
 *
 * By eight a block becomes the lanes of N / 8 cells (cells.inc), whatever the width of a
 * vector, so its bits are the same on every instruction set.  The steps of a long block
 * have several parts, which threads may share; the bits do not depend on who runs which.
 */
#ifndef GPO_TRANSFORM_H
#define GPO_TRANSFORM_H

#include "gpo.h"

enum {
    GPO_LEAST_POINTS = 64,       /* of a block */
    GPO_TRANSFORM_ALIGNMENT = 64 /* bytes: of tables, of blocks and of spectra */
};

/* ---- the plan ---- */

typedef struct gpo_transform {
    int64_t points; /* N: complex numbers of a block, a power of two */
    bool real;      /* 2 N real numbers, else N complex ones */
    int divisions;  /* by four, until a piece of the cells fits into a cache */
    int isa;        /* gpo_cpu_isa() */
    double *tables;
} gpo_transform;

/* The plan for a block of so many points; its tables are still to be made. */
gpo_transform gpo_transform_plan(int64_t points, bool real, int isa);

/* ---- its tables ---- */

/* Doubles of them; t->tables is to be memory for so many. */
int64_t gpo_transform_doubles(const gpo_transform *t);

/* Fills them: first the roots, then the parts, in any order. */
void gpo_transform_start(const gpo_transform *t);
int64_t gpo_transform_table_parts(const gpo_transform *t);
void gpo_transform_fill(const gpo_transform *t, int64_t part);

/* ---- the steps of a transform ---- */

/* A block has 2 N doubles, real numbers or real and imaginary parts in turn; so have cells. */
typedef struct gpo_transform_work {
    const gpo_transform *plan;
    double *block;
    double *cells;
    const double *filter; /* cells of a spectrum; NULL: `cells` is to become one */
} gpo_transform_work;

/*
 * Steps 0, 1, .. of a transform are run one after the other, the parts of a step in any
 * order; after the last there are 0 parts.  In the end the block is convolved with the
 * filter; if there is none, it is as it was and its spectrum in `cells`.
 */
int64_t gpo_transform_parts(const gpo_transform_work *w, int step);
void gpo_transform_part(const gpo_transform_work *w, int step, int64_t part);

/* All steps on the calling thread. */
void gpo_transform_run(const gpo_transform_work *w);

#endif
