/*
 * integers.h  Integer arithmetic that every room needs, on the host and on the device.
 */
#ifndef GPO_INTEGERS_H
#define GPO_INTEGERS_H

#include <stdint.h>

#ifdef __CUDACC__
#define GPO_ANYWHERE __host__ __device__
#else
#define GPO_ANYWHERE
#endif

/* a / b rounded up, for a >= 0 and b > 0. */
static inline GPO_ANYWHERE int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The exponent of the largest power of two up to n; 0 for n < 2. */
static inline GPO_ANYWHERE int
floor_log2(int64_t n)
{
    int e = 0;
    while (n >> e > 1) {
        e++;
    }
    return e;
}

#endif
