/*
 * cpu.h  Declarations shared by convolve's CPU files: cpu.c adds up products; the files
 * of cpu_fourier.h multiply spectra.  Order: the job, cpu.c, cpu_fourier.c.
 */
#ifndef GPO_CONVOLVE_CPU_H
#define GPO_CONVOLVE_CPU_H

#include "../../core/integers.h"
#include "../../backend/backend.h"
#include "convolve.h"

/* The type that products are computed in; a complex number is two lanes. */
typedef enum lane {
    LANE_BOOL,
    LANE_U16, /* also 8-bit integers: low bits depend only on low bits */
    LANE_U32,
    LANE_U64,
    LANE_FLOAT,
    LANE_DOUBLE,
    NLANES
} lane;

/* Computes sum i from its own terms only and stores it as an element of the result. */
typedef void (*exact_sum)(const convolve_plan *p, const void *a, const void *v,
                          int64_t i, void *to);

/* ---- the job: shared, read-only data of a call ---- */

typedef struct job {
    const convolve_plan *plan;
    const char *a, *v; /* first elements; NULL in choose() */
    char *out;
    gpo_dtype dtype;
    int64_t bytes; /* of an element */
    int lanes;     /* of an element */
    lane lane;
    int64_t lane_bytes;
    const struct loops *loops;
    exact_sum exact;
    bool parallel;
    bool in_place;         /* elements need no conversion to lanes */
    bool few;              /* few sums per row: each is a dot product */
    int64_t chunk;         /* terms added in order before they go into a total */
    int64_t piece, pieces; /* sums per piece, pieces per row */
    int64_t per_task;      /* pieces */
    /* v, converted by read_taps() */
    char *taps; /* NULL if each row has its own filter */
} job;

/* ---- cpu.c ---- */

/* The rows of a and v that a row of the result is computed from. */
void convolve_find_row(const job *j, int64_t row, const char **a, const char **v);

/* Element i of a row of the result. */
char *convolve_result_at(const job *j, int64_t row, int64_t i);

/* Reads elements [start, start + n) of a row of `length` as lanes, zero-padded. */
void convolve_read_window(const job *j, const char *row, int64_t length, int64_t step,
                          int64_t start, int64_t n, char *to);

/* The workspace of one task of convolve_sum_stretch, in bytes. */
size_t convolve_piece_bytes(void);

/* Directly sums elements [i, i + n) of a row of the result in up to `workers` tasks. */
void convolve_sum_stretch(const job *j, void *work, int64_t workers, int64_t row,
                          int64_t i, int64_t n);

/* ---- cpu_fourier.c ---- */

/*
 * Overlap-save: a block of `length` elements of a row gives length - m + 1 sums without
 * wrap-around, or all sums if the row and its sums fit into one block.  `lead` is 0 in
 * that case, else m - 1.
 */
typedef struct fourier_plan {
    int64_t length, lead;
    int64_t per_block, blocks; /* sums per block, blocks per row */
} fourier_plan;

/*
 * Finds the cheapest block length; false if the direct sum is cheaper.  The answer
 * depends on the sizes alone, so neither the number of threads nor the machine changes
 * the bits.
 */
bool convolve_plan_fourier(const job *j, fourier_plan *f);

gpo_status convolve_run_fourier(gpo_call *call, const job *j, const fourier_plan *f);

#endif
