/*
 * elements.h  mean_matvec on the CPU: conversions between elements of the four dtypes
 * and values of the type that is computed in; compensated sums.  See loops.inc for the
 * loops, cpu.c for the walk over the arrays.
 */
#ifndef GPO_MEAN_MATVEC_ELEMENTS_H
#define GPO_MEAN_MATVEC_ELEMENTS_H

#include "../../core/elements.h"
#include "mean_matvec.h"

/* ---- elements ---- */

#define load_F16(x) float_of_f16(x)
#define load_BF16(x) float_of_bf16(x)
#define store_F16(x) f16_of_float(x)
#define store_BF16(x) bf16_of_float(x)

static inline float
load_F32(float x)
{
    return x;
}

static inline double
load_F64(double x)
{
    return x;
}

static inline float
store_F32(float x)
{
    return x;
}

static inline double
store_F64(double x)
{
    return x;
}

/* n elements as values: in place, or converted into `buffer`. */
static inline const float *
values_F16(const gpo_f16 *x, int n, float *buffer)
{
    for (int c = 0; c < n; c++) {
        buffer[c] = float_of_f16(x[c]);
    }
    return buffer;
}

static inline const float *
values_BF16(const gpo_bf16 *x, int n, float *buffer)
{
    for (int c = 0; c < n; c++) {
        buffer[c] = float_of_bf16(x[c]);
    }
    return buffer;
}

static inline const float *
values_F32(const float *x, int n, float *buffer)
{
    return (void)n, (void)buffer, x;
}

static inline const double *
values_F64(const double *x, int n, double *buffer)
{
    return (void)n, (void)buffer, x;
}

/* ---- a long sum ---- */

/* A sum of doubles with the rounding error of each addition (Knuth's TwoSum). */
typedef struct long_sum {
    double total, lost;
} long_sum;

static inline void
long_sum_add(long_sum *s, double p)
{
    const double sum = s->total + p;
    const double back = sum - s->total;
    s->lost += (s->total - (sum - back)) + (p - back);
    s->total = sum;
}

static inline double
long_sum_value(const long_sum *s)
{
    /* after inf, `lost` is nan */
    return s->lost - s->lost == 0 ? s->total + s->lost : s->total;
}

#endif
