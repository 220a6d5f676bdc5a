/*
 * fft.h  Fourier transforms of host memory for CPU rooms.  bind/fft.c makes them of
 * NumPy's; in a program without Python gpo_fft is NULL, and a room does without.
 */
#ifndef GPO_FFT_H
#define GPO_FFT_H

#include "gpo.h"

typedef enum gpo_fft_kind {
    GPO_FFT_FORWARD,  /* n complex numbers from n complex */
    GPO_FFT_INVERSE,  /* the same back, divided by n */
    GPO_RFFT_FORWARD, /* n / 2 + 1 complex numbers from n real */
    GPO_RFFT_INVERSE, /* n real numbers from n / 2 + 1 complex, divided by n */
} gpo_fft_kind;

/*
 * Transforms `rows` rows that lie side by side, each for itself; complex numbers are two
 * doubles.  `from` and `to` share no memory.  To be called by the thread of the call
 * alone, not out of a parallel loop.  An exception, also one that a signal raises, is
 * GPO_EPYTHON.
 */
__attribute__((weak)) gpo_status gpo_fft(gpo_call *call, gpo_fft_kind kind,
                                         int64_t rows, int64_t n, const double *from,
                                         double *to);

#endif
