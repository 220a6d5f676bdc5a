/*
 * terms.h  partition_reduce on the CPU: the names of the terms, which are what elements
 * contribute to a sum, and squares.  See terms.inc for the terms themselves.
 */
#ifndef GPO_PARTITION_REDUCE_TERMS_H
#define GPO_PARTITION_REDUCE_TERMS_H

#include "../../core/elements.h"
#include "partition_reduce.h"

enum {
    TERM_I32,
    TERM_I64,
    TERM_F16,
    TERM_BF16,
    TERM_F32,
    TERM_F64,
    TERM_I32_SQ, /* _SQ: with square=True */
    TERM_I64_SQ,
    TERM_F16_SQ,
    TERM_BF16_SQ,
    TERM_F32_SQ,
    TERM_F64_SQ,
    TERM_C64_SQ,
    TERM_C128_SQ,
    NTERMS
};

static inline float
square_f32(float x)
{
    return x * x;
}

static inline double
square_f64(double x)
{
    return x * x;
}

static inline uint64_t
square_u64(uint64_t x)
{
    return x * x;
}

#endif
