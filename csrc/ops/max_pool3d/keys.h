/*
 * keys.h  Keys of max_pool3d on the CPU: integers in the order of the elements.
 * Order: types, keys of 32 bits, keys of 64 bits, the least key.
 * A nan has the largest key, so one comparison of integers is the whole rule.
 */
#ifndef GPO_MAX_POOL3D_KEYS_H
#define GPO_MAX_POOL3D_KEYS_H

#include "../../core/elements.h"
#include "max_pool3d.h"

/* ---- types: an element T_F16 has a key K_F16, and is compared as a V_F16 ---- */

typedef int32_t K_I8, K_U8, K_I16, K_U16, K_I32, K_U32, K_F16, K_BF16, K_F32;
typedef int64_t K_I64, K_U64, K_F64;

typedef int32_t V_I8, V_U8, V_I16, V_U16, V_I32;
typedef int64_t V_U32, V_I64;
typedef uint64_t V_U64;
typedef float V_F16, V_BF16, V_F32;
typedef double V_F64;

/* The value an element is compared as. */
#define value_I8(x) (x)
#define value_U8(x) (x)
#define value_I16(x) (x)
#define value_U16(x) (x)
#define value_I32(x) (x)
#define value_U32(x) (x)
#define value_I64(x) (x)
#define value_U64(x) (x)
#define value_F16(x) float_of_f16(x)
#define value_BF16(x) float_of_bf16(x)
#define value_F32(x) (x)
#define value_F64(x) (x)

/* Whether an element is a nan. */
#define nan_I8(x) ((void)(x), false)
#define nan_U8 nan_I8
#define nan_I16 nan_I8
#define nan_U16 nan_I8
#define nan_I32 nan_I8
#define nan_U32 nan_I8
#define nan_I64 nan_I8
#define nan_U64 nan_I8
#define nan_F16(x) (((x).bits & 0x7fff) > 0x7c00)
#define nan_BF16(x) (((x).bits & 0x7fff) > 0x7f80)
#define nan_F32(x) ((x) != (x))
#define nan_F64(x) ((x) != (x))

/* ---- keys of 32 bits ---- */

static inline int32_t
key_of_float(float x)
{
    const float_bits y = {.f = x};
    const int32_t bits = (int32_t)y.u;
    const int32_t key = bits ^ (bits >> 31 & INT32_MAX);
    return x != x ? INT32_MAX : key;
}

static inline float
float_of_key(int32_t key)
{
    const float_bits y = {.u = (uint32_t)(key ^ (key >> 31 & INT32_MAX))};
    return y.f;
}

/* A 16-bit float whose infinity has the bits `inf`; `nan` is what a nan comes back as. */
static inline int32_t
key_of_half(uint16_t bits, int32_t inf, int32_t nan)
{
    const int32_t size = bits & 0x7fff, sign = -(int32_t)(bits >> 15);
    return size > inf ? nan : (size ^ sign);
}

static inline uint16_t
half_of_key(int32_t key)
{
    const int32_t sign = key >> 31;
    return (uint16_t)(((key ^ sign) & 0x7fff) | (sign & 0x8000));
}

/* Zero for -0, else the same bits. */
static inline uint16_t
unsigned_zero(uint16_t bits)
{
    return bits == 0x8000 ? 0 : bits;
}

#define key_I8(x) (x)
#define key_U8(x) (x)
#define key_I16(x) (x)
#define key_U16(x) (x)
#define key_I32(x) (x)
#define key_U32(x) ((int32_t)((x) ^ 0x80000000u))
#define key_F16(x) key_of_half((x).bits, 0x7c00, 0x7e00)
#define key_BF16(x) key_of_half((x).bits, 0x7f80, 0x7fc0)
#define key_F32(x) key_of_float(x)

#define element_I8(key) ((int8_t)(key))
#define element_U8(key) ((uint8_t)(key))
#define element_I16(key) ((int16_t)(key))
#define element_U16(key) ((uint16_t)(key))
#define element_I32(key) (key)
#define element_U32(key) ((uint32_t)(key) ^ 0x80000000u)
#define element_F16(key) ((gpo_f16){half_of_key(key)})
#define element_BF16(key) ((gpo_bf16){half_of_key(key)})
#define element_F32(key) float_of_key(key)

/* ---- keys of 64 bits ---- */

typedef union double_bits {
    double f;
    uint64_t u;
} double_bits;

static inline int64_t
key_of_double(double x)
{
    const double_bits y = {.f = x};
    const int64_t bits = (int64_t)y.u;
    const int64_t key = bits ^ (bits >> 63 & INT64_MAX);
    return x != x ? INT64_MAX : key;
}

static inline double
double_of_key(int64_t key)
{
    const double_bits y = {.u = (uint64_t)(key ^ (key >> 63 & INT64_MAX))};
    return y.f;
}

#define key_I64(x) (x)
#define key_U64(x) ((int64_t)((x) ^ 0x8000000000000000u))
#define key_F64(x) key_of_double(x)

#define element_I64(key) (key)
#define element_U64(key) ((uint64_t)(key) ^ 0x8000000000000000u)
#define element_F64(key) double_of_key(key)

/* As the key, but both zeros are equal, so the first of them counts. */
#define plain_I8(x) (x)
#define plain_U8(x) (x)
#define plain_I16(x) (x)
#define plain_U16(x) (x)
#define plain_I32(x) (x)
#define plain_U32(x) key_U32(x)
#define plain_I64(x) (x)
#define plain_U64(x) key_U64(x)
#define plain_F16(x) key_of_half(unsigned_zero((x).bits), 0x7c00, 0x7e00)
#define plain_BF16(x) key_of_half(unsigned_zero((x).bits), 0x7f80, 0x7fc0)
#define plain_F32(x) key_of_float((x) + 0.0f)
#define plain_F64(x) key_of_double((x) + 0.0)

/* ---- the least key: that of a window without elements ---- */

static inline int64_t
least_key(gpo_dtype dtype)
{
    switch (dtype) {
        case GPO_I8:
            return INT8_MIN;
        case GPO_I16:
            return INT16_MIN;
        case GPO_U8:
        case GPO_U16:
            return 0;
        case GPO_F16:
            return key_of_half(0xfc00, 0x7c00, 0x7e00);
        case GPO_BF16:
            return key_of_half(0xff80, 0x7f80, 0x7fc0);
        case GPO_F32:
            return key_of_float(-INFINITY);
        case GPO_F64:
            return key_of_double(-(double)INFINITY);
        default: /* integers of 32 and 64 bits */
            return gpo_dtypes[dtype].bytes == 4 ? INT32_MIN : INT64_MIN;
    }
}

#endif
