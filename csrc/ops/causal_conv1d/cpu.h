/*
 * cpu.h  What the CPU's two files of causal_conv1d share: cpu.c sums products,
 * cpu_spectra.c multiplies spectra.  Order: the job, cpu.c, cpu_spectra.c.
 */
#ifndef GPO_CAUSAL_CONV1D_CPU_H
#define GPO_CAUSAL_CONV1D_CPU_H

#include "../../core/integers.h"
#include "../../backend/backend.h"
#include "causal_conv1d.h"

enum {
    PAD = 64,        /* zeros around a filter: at least a tile */
    ROWS = 4,        /* rows that share the loads of a filter */
    RANGE = 1024,    /* steps per task */
    SHORT_LAGS = 32, /* up to here one pass along a row takes all lags */
    HEAD = 128, /* results from the first nonzero input on: always summed directly */
};

/* ---- the job: what every part of one call reads ---- */

/* Rows of values, contiguous along T. */
typedef struct value_rows {
    char *data;
    int64_t b, c; /* strides in bytes */
} value_rows;

typedef struct conv_job {
    conv_plan plan;
    conv_arrays arrays;
    const struct loops *loops;
    struct spectra *spectra; /* NULL: direct sums */
    gpo_dtype dtype;
    bool parallel;
    int64_t bytes, value_bytes; /* per element, per value computed with */
    char *filters; /* the value of lag s of channel c is at c * pitch + PAD + s */
    int64_t filter_pitch;
    value_rows x;        /* forward */
    value_rows reversed; /* the gradient, last step first, PAD zeros around a row */
    value_rows x_back;   /* x, last step first; only for short filters */

    /* The convolution being computed: its input, and what is done with its sums. */
    const value_rows *from;
    bool backwards, with_bias, gradient;
    bool silu;
} conv_job;

static inline char *
row_of(const value_rows *rows, int64_t b, int64_t c)
{
    return rows->data + b * rows->b + c * rows->c;
}

/* ---- cpu.c ---- */

/*
 * Stores n elements of row (b, c) from step t on, given the sums of their terms; SiLU
 * overwrites `sum`.
 */
void conv_finish(const conv_job *j, int64_t b, int64_t c, int64_t t, int64_t n,
                 void *sum);

/* to[i + k * stride] = value k of n, as an element. */
void conv_put(const conv_job *j, void *to, int64_t i, int64_t stride, int64_t n,
              const void *values);

/*
 * Computes steps [begin, end), at most RANGE, of `count` rows, at most ROWS, from row b
 * on.  A `first` above 0 says that the inputs before it are 0 and the filter is finite.
 */
void conv_sum_rows(const conv_job *j, int64_t b, int64_t count, int64_t c,
                   int64_t begin, int64_t end, int64_t first);

/* sums[i] += terms of step t + i of row (b, c) with inputs [begin, end), i < n. */
void conv_add_inputs(const conv_job *j, int64_t b, int64_t c, int64_t t, int64_t n,
                     int64_t begin, int64_t end, char *sums);

/* The gradient of the filter of channel c. */
void conv_sum_gradient(conv_job *j, int64_t c);

/* ---- cpu_spectra.c ---- */

/* Whether transforms cost clearly less than direct sums, which are more accurate. */
bool conv_spectra_pay(const conv_plan *p);

/* Sets j->spectra, or leaves it NULL where there is nothing to transform. */
gpo_status conv_spectra_start(gpo_call *call, conv_job *j);

/* All rows of j->from; all gradients of filters. */
void conv_spectra_convolve(conv_job *j);
void conv_spectra_gradient(conv_job *j);

#endif
