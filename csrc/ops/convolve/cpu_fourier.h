/*
 * cpu_fourier.h  Declarations shared by convolve's Fourier files.  Order: the
 * transforms of a call, a block, cpu_fourier.c, cpu_block.c, cpu_wide.c.
 *
 * cpu_fourier.c plans the transforms and distributes them over threads, cpu_block.c
 * reads, checks and writes a block, cpu_wide.c computes wide blocks: those whose error
 * bound one transform cannot meet.
 */
#ifndef GPO_CONVOLVE_CPU_FOURIER_H
#define GPO_CONVOLVE_CPU_FOURIER_H

#include "../../core/transform.h"
#include "cpu.h"

enum {
    BASE = 64,        /* tile of a wide block that is summed directly */
    MOST_ODD = 16,    /* inf and nan per block that are added separately */
    SHARED = 1 << 15, /* points from which threads may share a transform */
};

/* ---- the transforms of a call ---- */

/* The spectrum of a filter, scaled by 2^-exponent. */
typedef struct spectrum {
    double *cells;
    int exponent;
} spectrum;

typedef struct fourier {
    gpo_call *call;
    const job *job;
    fourier_plan plan;
    gpo_transform transform;
    double allowed;        /* most energy of a block relative to a sum's inputs */
    int64_t chunk, chunks; /* elements per chunk, chunks per block */
    int64_t workers;       /* tasks that may sum one block directly */
    bool own_filters;      /* a task transforms the filters of its rows */
    int64_t tasks;         /* if own_filters */
    spectrum *filters;     /* if not: one for all rows, or one per row */
    char *wide;            /* per block of all rows: whether it is left to cpu_wide.c */
} fourier;

/* ---- a block ---- */

typedef struct block {
    int64_t row;
    const char *a, *v; /* the row and its filter */
    spectrum filter;
    int64_t start, skip; /* its first input; inputs before its first sum */
    int64_t first, n;    /* the sums of the row that it computes */

    /* set by convolve_read_block */
    int exponent;                  /* its inputs were multiplied by 2^-exponent */
    bool wide;                     /* needs smaller transforms */
    int64_t odd, odd_at[MOST_ODD]; /* inf and nan of its inputs, and where in the row */

    /* workspace */
    double *x, *cells;
    double *energies; /* of the chunks, then two rows for their sums */
    char *verdicts;   /* of the chunks */
    void *pieces;     /* of convolve_sum_stretch */
} block;

/* ---- cpu_fourier.c ---- */

/* Direct products per ns, and ns per element to convolve a block by transforms. */
double convolve_product_rate(const job *j);
double convolve_transform_cost(const job *j, int64_t length);

/* Complex points of a transform of `length` elements. */
static inline int64_t
points_of(const job *j, int64_t length)
{
    return j->lanes == 2 ? length : length / 2;
}

/* Runs all steps; threads share their parts, except inside a parallel task. */
void convolve_transform(const job *j, const gpo_transform_work *work);

/* Fills t->tables, which the caller has allocated. */
void convolve_fill_tables(const job *j, const gpo_transform *t);

/* ---- cpu_block.c ---- */

/* Reads elements [start, start + n) of a row as doubles, zero-padded. */
void convolve_read_doubles(const job *j, const char *row, int64_t length, int64_t step,
                           int64_t start, int64_t n, double *to);

/* x[i] *= 2^e, where 2^e itself may be out of range. */
void convolve_scale(double *x, int64_t n, int e);

/* The exponent of the largest finite magnitude of n numbers; 0 if all are 0. */
int convolve_exponent_of(const double *x, int64_t n);

/* to[i] += x * y[i] for n numbers */
void convolve_add_products(const job *j, const double *x, const double *restrict y,
                           int64_t n, double *restrict to);

/* Reads the filter into x, scaled to about 1 if needed; returns the exponent. */
int convolve_read_filter(const fourier *f, const char *v, double *x);

/* Reads the inputs of a block and decides how its sums are computed. */
void convolve_read_block(const fourier *f, block *b);

/* Writes the sums of a block, which begin at x. */
void convolve_write_block(const fourier *f, block *b, double *x);

/* ---- cpu_wide.c ---- */

/* The workspace of wide blocks, allocated on the first of a call; NULL before. */
typedef struct wide_room wide_room;

/* Computes and writes the sums of a wide block, after convolve_read_block. */
gpo_status convolve_run_wide(const fourier *f, wide_room **room, block *b);

#endif
