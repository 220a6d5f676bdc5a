/*
 * elements.h  mean_matvec on the CPU: the four element types, how they become the type
 * that is computed in and back, and sums that keep what they round away.
 * Not here: loops (cpu.inc), the walk over the arrays (cpu.c).
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

/* F(dtype, the type it is computed in) */
#define ELEMENTS(F) \
    F(F16, float)   \
    F(BF16, float)  \
    F(F32, float)   \
    F(F64, double)

/* n elements as values: where they are, or converted into `buffer`. */
#define DEFINE_VALUES(dtype, T)                                                 \
    static inline const float *values_##dtype(const T *x, int n, float *buffer) \
    {                                                                           \
        for (int c = 0; c < n; c++) {                                           \
            buffer[c] = load_##dtype(x[c]);                                     \
        }                                                                       \
        return buffer;                                                          \
    }
DEFINE_VALUES(F16, gpo_f16)
DEFINE_VALUES(BF16, gpo_bf16)

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

/* A sum of doubles that also keeps what each addition rounds away (Knuth's TwoSum). */
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
    /* after inf, `lost` is a nan */
    return s->lost - s->lost == 0 ? s->total + s->lost : s->total;
}

#endif
