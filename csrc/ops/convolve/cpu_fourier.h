/*
 * cpu_fourier.h  What the files of convolve's Fourier transforms share.  Order: the
 * transforms of a call, a block, cpu_fourier.c, cpu_block.c, cpu_wide.c.
 *
 * cpu_fourier.c decides what is transformed and lets the threads do it, cpu_block.c reads,
 * judges and writes a block, cpu_wide.c makes those blocks that one transform cannot.
 */
#ifndef GPO_CONVOLVE_CPU_FOURIER_H
#define GPO_CONVOLVE_CPU_FOURIER_H

#include "../../core/transform.h"
#include "cpu.h"

enum {
    BASE = 64,        /* of a wide block: inputs and sums that meet directly */
    MOST_ODD = 16,    /* inf and nan of a block that are added for themselves */
    SHARED = 1 << 15, /* points from which on threads may share a transform */
};

/* ---- the transforms of a call ---- */

/* The spectrum of a filter times 2^-exponent. */
typedef struct spectrum {
    double *cells;
    int exponent;
} spectrum;

typedef struct fourier {
    gpo_call *call;
    const job *job;
    fourier_plan plan;
    gpo_transform transform;
    double allowed;        /* the square of how far a block's inputs may pass a sum's */
    int64_t chunk, chunks; /* elements of a chunk, whose norm is taken; of a block */
    int64_t workers;       /* tasks that may add up products of one block */
    bool own_filters;      /* a task transforms the filters of its rows */
    int64_t tasks;         /* then */
    spectrum *filters;     /* else of all rows, or one for each of them */
    char *wide;            /* of every block of all rows: it is left to cpu_wide.c */
} fourier;

/* ---- a block ---- */

typedef struct block {
    int64_t row;
    const char *a, *v; /* the row and its filter */
    spectrum filter;
    int64_t start, skip; /* its first input, and how many come before its first sum */
    int64_t first, n;    /* sums of the row that it gives */

    /* what judging it found */
    int exponent;                  /* its inputs were multiplied by 2^-exponent */
    bool wide;                     /* to be made of smaller transforms */
    int64_t odd, odd_at[MOST_ODD]; /* inf and nan of its inputs, and where in the row */

    /* its memory */
    double *x, *cells;
    double *energies; /* of the chunks, and two rows for their sums */
    char *verdicts;   /* of the chunks */
    void *pieces;     /* what products are added up in */
} block;

/* ---- cpu_fourier.c ---- */

/* Products in a ns, and ns for an element of a block, there, multiplied and back. */
double convolve_product_rate(const job *j);
double convolve_transform_cost(const job *j, int64_t length);

/* Complex numbers of a transform of `length` elements. */
static inline int64_t
points_of(const job *j, int64_t length)
{
    return j->lanes == 2 ? length : length / 2;
}

/* All steps, whose parts threads share unless they have tasks of their own. */
void convolve_transform(const job *j, const gpo_transform_work *work);

/* The tables of t, in memory for them. */
void convolve_fill_tables(const job *j, const gpo_transform *t);

/* ---- cpu_block.c ---- */

/* Elements [start, start + n) of a row as doubles; zeros beyond its ends. */
void convolve_read_doubles(const job *j, const char *row, int64_t length, int64_t step,
                           int64_t start, int64_t n, double *to);

/* x[i] *= 2^e, which may be no number by itself. */
void convolve_scale(double *x, int64_t n, int e);

/* The exponent of the largest of n numbers but inf and nan; 0 if all are 0. */
int convolve_exponent_of(const double *x, int64_t n);

/* to[i] += x * y[i] for n numbers */
void convolve_add_products(const job *j, const double *x, const double *restrict y,
                           int64_t n, double *restrict to);

/* Reads the filter into x and brings it to about 1; gives its exponent. */
int convolve_read_filter(const fourier *f, const char *v, double *x);

/* Reads the inputs of a block and decides about its sums. */
void convolve_read_block(const fourier *f, block *b);

/* The sums of a block that begin at x. */
void convolve_write_block(const fourier *f, block *b, double *x);

/* ---- cpu_wide.c ---- */

/* What wide blocks need, made for the first of a call; NULL before. */
typedef struct wide_room wide_room;

/* Makes the sums of a wide block, which has been read, and writes them. */
gpo_status convolve_run_wide(const fourier *f, wide_room **room, block *b);

#endif
