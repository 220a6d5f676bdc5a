/*
 * complex.h  Sums and products of complex numbers on the CPU, the same bits on every
 * instruction set.
 */
#ifndef GPO_COMPLEX_H
#define GPO_COMPLEX_H

#include "gpo.h"

/*
 * GCC 12 fuses a vectorised complex product into vfmaddsub even with -ffp-contract=off,
 * so the bits would depend on the instruction set; ROUNDED hides the product from that.
 */
#ifdef GPO_ANALYZE /* gcc -fanalyzer thinks a value that passes an asm uninitialised */
#define ROUNDED(x) ((void)0)
#elif defined(__x86_64__)
#define ROUNDED(x) __asm__("" : "+x"(x))
#elif defined(__aarch64__)
#define ROUNDED(x) __asm__("" : "+w"(x))
#else
#define ROUNDED(x) ((void)0)
#endif

static inline gpo_c64
add_C64(gpo_c64 a, gpo_c64 b)
{
    return (gpo_c64){a.re + b.re, a.im + b.im};
}

static inline gpo_c128
add_C128(gpo_c128 a, gpo_c128 b)
{
    return (gpo_c128){a.re + b.re, a.im + b.im};
}

static inline gpo_c64
mul_C64(gpo_c64 a, gpo_c64 b)
{
    float rr = a.re * b.re, ii = a.im * b.im, ri = a.re * b.im, ir = a.im * b.re;
    ROUNDED(rr);
    ROUNDED(ii);
    ROUNDED(ri);
    ROUNDED(ir);
    return (gpo_c64){rr - ii, ri + ir};
}

static inline gpo_c128
mul_C128(gpo_c128 a, gpo_c128 b)
{
    double rr = a.re * b.re, ii = a.im * b.im, ri = a.re * b.im, ir = a.im * b.re;
    ROUNDED(rr);
    ROUNDED(ii);
    ROUNDED(ri);
    ROUNDED(ir);
    return (gpo_c128){rr - ii, ri + ir};
}

#endif
