/*
 * cpu.h  What the CPU's files of convolve share: cpu.c adds up products,
 * cpu_fourier.c and what it calls (cpu_fourier.h) multiply spectra.  Order: the job, cpu.c, cpu_fourier.c.
 */
#ifndef GPO_CONVOLVE_CPU_H
#define GPO_CONVOLVE_CPU_H

#include "../../core/integers.h"
#include "../../backend/backend.h"
#include "convolve.h"

/* The type that products are computed in; a complex number is two lanes. */
typedef enum lane {
    LANE_BOOL,
    LANE_U16, /* 8-bit integers, too: low bits depend only on low bits */
    LANE_U32,
    LANE_U64,
    LANE_FLOAT,
    LANE_DOUBLE,
    NLANES
} lane;

/* Stores one sum, computed from its own terms only, as an element of the result. */
typedef void (*exact_sum)(const convolve_plan *p, const void *a, const void *v,
                          int64_t i, void *to);

/* ---- the job: what every part of one call reads ---- */

typedef struct job {
    const convolve_plan *plan;
    const char *a, *v; /* first elements of the arrays; NULL in choose() */
    char *out;
    gpo_dtype dtype;
    int64_t bytes; /* of an element */
    int lanes;     /* of an element */
    lane lane;
    int64_t lane_bytes;
    const struct loops *loops;
    exact_sum exact;
    bool parallel;
    bool in_place;         /* elements are lanes already */
    bool few;              /* few sums in a row: each is a dot product */
    int64_t chunk;         /* terms added in order before they go into a total */
    int64_t piece, pieces; /* sums per piece, pieces per row */
    int64_t per_task;      /* pieces */
    /* v as read_taps() leaves it */
    char *taps; /* NULL if each row has its own */
} job;

/* ---- cpu.c ---- */

/* The rows of a and v that a row of the result is computed from. */
void convolve_find_row(const job *j, int64_t row, const char **a, const char **v);

/* Element i of a row of the result. */
char *convolve_result_at(const job *j, int64_t row, int64_t i);

/* Elements [start, start + n) of a row of `length`, as lanes; zeros beyond its ends. */
void convolve_read_window(const job *j, const char *row, int64_t length, int64_t step,
                          int64_t start, int64_t n, char *to);

/* What a task of convolve_sum_stretch computes in. */
size_t convolve_piece_bytes(void);

/* Elements [i, i + n) of a row of the result, product by product, in `workers` tasks. */
void convolve_sum_stretch(const job *j, void *work, int64_t workers, int64_t row,
                          int64_t i, int64_t n);

/* ---- cpu_fourier.c ---- */

/*
 * Overlap-save: a block of `length` elements of a row, transformed, multiplied and
 * transformed back, holds length - m + 1 sums without wrap-around; where the row and
 * its sums fit into one block, all sums (`lead` is 0 then, else m - 1).
 */
typedef struct fourier_plan {
    int64_t length, lead;
    int64_t per_block, blocks; /* sums per block, blocks per row */
} fourier_plan;

/*
 * Finds the cheapest blocks; false if the direct sum is cheaper.  The answer
 * depends on the sizes alone: neither the number of threads nor the machine changes the
 * bits of a result.
 */
bool convolve_plan_fourier(const job *j, fourier_plan *f);

gpo_status convolve_run_fourier(gpo_call *call, const job *j, const fourier_plan *f);

#endif
