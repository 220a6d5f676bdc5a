/*
 * elements.h  Element types of upsample_nearest on the CPU.  Order: dtypes that have
 * loops, sums.
 * See move.inc and sum.inc for the loops over elements, cpu.c for those over rows.
 */
#ifndef GPO_UPSAMPLE_NEAREST_ELEMENTS_H
#define GPO_UPSAMPLE_NEAREST_ELEMENTS_H

#include "../../core/elements.h"

/* ---- the dtypes that have loops ---- */

/* The dtype whose loops move elements.  Complex numbers are not aligned as integers. */
static inline gpo_dtype
mover_of(gpo_dtype dtype)
{
    static const gpo_dtype by_bytes[] = {
        [1] = GPO_U8, [2] = GPO_U16, [4] = GPO_U32, [8] = GPO_U64};
    return gpo_dtypes[dtype].kind == 'c' ? dtype : by_bytes[gpo_dtypes[dtype].bytes];
}

/* The dtype whose loops move the parts of elements: two of a complex number. */
static inline gpo_dtype
part_of(gpo_dtype dtype)
{
    return dtype == GPO_C64 ? GPO_U32 : dtype == GPO_C128 ? GPO_U64 : mover_of(dtype);
}

/* ---- sums: plus_F16 adds an element, rounded_F16 rounds a sum to an element ---- */

/* The type of a sum. */
typedef uint8_t V_U8;
typedef uint16_t V_U16;
typedef uint32_t V_U32;
typedef uint64_t V_U64;
typedef float V_F16, V_BF16, V_F32;
typedef double V_F64;
typedef gpo_c64 V_C64;
typedef gpo_c128 V_C128;

static inline void
plus_U8(uint8_t *sum, uint8_t y)
{
    *sum = (uint8_t)(*sum + y);
}

static inline void
plus_U16(uint16_t *sum, uint16_t y)
{
    *sum = (uint16_t)(*sum + y);
}

static inline void
plus_U32(uint32_t *sum, uint32_t y)
{
    *sum += y;
}

static inline void
plus_U64(uint64_t *sum, uint64_t y)
{
    *sum += y;
}

static inline void
plus_F16(float *sum, gpo_f16 y)
{
    *sum = *sum + float_of_f16(y);
}

static inline void
plus_BF16(float *sum, gpo_bf16 y)
{
    *sum = *sum + float_of_bf16(y);
}

static inline void
plus_F32(float *sum, float y)
{
    *sum += y;
}

static inline void
plus_F64(double *sum, double y)
{
    *sum += y;
}

static inline void
plus_C64(gpo_c64 *sum, gpo_c64 y)
{
    sum->re += y.re;
    sum->im += y.im;
}

static inline void
plus_C128(gpo_c128 *sum, gpo_c128 y)
{
    sum->re += y.re;
    sum->im += y.im;
}

#define rounded_U8(sum) (sum)
#define rounded_U16(sum) (sum)
#define rounded_U32(sum) (sum)
#define rounded_U64(sum) (sum)
#define rounded_F16(sum) f16_of_float(sum)
#define rounded_BF16(sum) bf16_of_float(sum)
#define rounded_F32(sum) (sum)
#define rounded_F64(sum) (sum)
#define rounded_C64(sum) (sum)
#define rounded_C128(sum) (sum)

#endif
