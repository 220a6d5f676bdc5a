/*
 * cpu.h  What the CPU's files of causal_conv1d share: cpu.c sums products, cpu_short.c
 * those of short filters, cpu_spectra.c multiplies spectra.  Order: the inner loops, the
 * job, cpu.c, cpu_short.c, cpu_segments.c, cpu_spectra.c.
 */
#ifndef GPO_CAUSAL_CONV1D_CPU_H
#define GPO_CAUSAL_CONV1D_CPU_H

#include "../../core/integers.h"
#include "../../backend/backend.h"
#include "causal_conv1d.h"

enum {
    PAD = 64,            /* zeros around a filter: at least a tile */
    ROWS = 4,            /* rows that share the loads of a filter */
    RANGE = 1024,        /* steps per task */
    SHORT_LAGS = 32,     /* up to here cpu_short.c computes */
    LEAST_CHANNELS = 16, /* of a vector of channels on any instruction set */
    HEAD = 128, /* results from the first nonzero input on: always summed directly */
};

#define ADD_NOTHING (-0.0) /* changes no number, including either 0 */

/* ---- the inner loops: see loops.inc and the files that it includes ---- */

/* See tile.inc. */
typedef void (*tile_loop)(const void *const *rows, const void *filter, int64_t t0,
                          int64_t begin, int64_t end, int64_t lags, void *total);

/* Sums of channels that are neighbours: see short.inc.  Pitches are in values. */
typedef struct channel_sums {
    const void *x, *w, *more;
    void *to;
    int64_t x_pitch, w_pitch, to_pitch; /* between steps of x, lags of w, steps */
    int64_t channels;
} channel_sums;

typedef struct loops {
    int64_t tile; /* elements per row of a tile */
    tile_loop tile1, tile2, tile4;
    void (*row)(const void *x, const void *filter, int64_t n, int64_t lags, int side,
                double more, void *to);
    void (*row_end)(const void *x, const void *filter, int64_t n, int64_t first,
                    int side, double more, void *to);
    void (*row_lags)(const void *x, const void *g, int64_t from, int64_t to,
                     int64_t begin, int64_t lags, void *totals);
    void (*channels)(const channel_sums *of, int64_t n, int64_t lags, int side);
    void (*channel_lags)(const channel_sums *of, int64_t from, int64_t to,
                         int64_t begin, int64_t lags);
    void (*silu)(void *values, double more, int64_t n);
    void (*silu_slope)(void *values, double more, int64_t n);
    void (*read)(const void *elements, int64_t stride, int64_t n, void *values);
    void (*write)(const void *values, double more, int64_t stride, int64_t n,
                  void *elements);
    void (*turn)(const void *slopes, const void *elements, int64_t stride, int64_t n,
                 void *values);
    void (*turn_back)(const void *slopes, const void *elements, int64_t stride,
                      int64_t n, void *values);
} loops;

/* ---- the job: what every part of one call reads ---- */

/* Rows of values, contiguous along T. */
typedef struct value_rows {
    char *data;
    int64_t b, c; /* strides in bytes */
} value_rows;

typedef struct conv_job {
    conv_plan plan;
    conv_arrays arrays;
    const loops *loops;
    struct spectra *spectra; /* NULL: direct sums */
    gpo_dtype dtype;
    bool parallel;
    int64_t bytes, value_bytes; /* per element, per value computed with */
    char *filters; /* the value of lag s of channel c is at c * pitch + PAD + s */
    int64_t filter_pitch;
    value_rows x;        /* forward */
    value_rows reversed; /* the gradient, last step first, PAD zeros around a row */

    /* The convolution being computed: its input, and what is done with its sums. */
    const value_rows *from;
    bool backwards, with_bias, gradient;
    bool silu;
    int64_t skipped; /* steps of a state at the start of the rows of x: no results */

    /* Segment i begins at segment_begin[i]; those of batch b from first_segment[b] on. */
    const int64_t *segment_begin;
    int64_t *first_segment;
} conv_job;

/* Steps [from, to) of a row of steps [begin, end). */
typedef struct conv_span {
    int64_t begin, end, from, to;
} conv_span;

/* Element (b, c, t) of an array of the call. */
static inline char *
conv_element(const conv_job *j, const void *array, const conv_strides *strides,
             int64_t b, int64_t c, int64_t t)
{
    return (char *)array +
           (b * strides->b + c * strides->c + t * strides->t) * j->bytes;
}

static inline char *
row_of(const value_rows *rows, int64_t b, int64_t c)
{
    return rows->data + b * rows->b + c * rows->c;
}

/* ---- cpu.c ---- */

/* Sets dtype, loops and sizes of a job. */
void conv_set_dtype(conv_job *j, gpo_dtype dtype);

/* What is added to the sums of channel c: eps and its bias. */
double conv_more(const conv_job *j, int64_t c);

/* The same of all channels, as values. */
void conv_fill_more(const conv_job *j, int64_t channels, void *to);

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

/* ---- cpu_short.c ---- */

/*
 * The whole call, made for filters of at most SHORT_LAGS lags, right for any; reads no
 * rows of the job.
 */
gpo_status conv_short(gpo_call *call, const conv_job *j);

/* ---- cpu_segments.c ---- */

/* Checks the call's segments and sets j->segment_begin; without any, nothing. */
gpo_status conv_find_segments(gpo_call *call, conv_job *j);

/* The steps from `from` on, up to `to`, that are in one segment, and that segment. */
conv_span conv_span_at(const conv_job *j, int64_t b, int64_t from, int64_t to);

/* Writes the state after the last step, if the call returns it. */
void conv_return_state(const conv_job *j);

/* ---- cpu_spectra.c ---- */

/* Whether transforms cost clearly less than direct sums, which are more accurate. */
bool conv_spectra_pay(const conv_plan *p);

/* Sets j->spectra, or leaves it NULL where there is nothing to transform. */
gpo_status conv_spectra_start(gpo_call *call, conv_job *j);

/* All rows of j->from; all gradients of filters. */
void conv_spectra_convolve(conv_job *j);
void conv_spectra_gradient(conv_job *j);

/* Copies one element of 2, 4 or 8 bytes. */
static inline void
conv_copy_element(char *to, const char *from, int64_t bytes)
{
    if (bytes == 2) {
        memcpy(to, from, 2);
    }
    else if (bytes == 4) {
        memcpy(to, from, 4);
    }
    else {
        memcpy(to, from, 8);
    }
}

#endif
