/*
 * cells.h  What all instruction sets share of the transforms of cells.inc: the order of
 * their bins and roots, and how vectors are shuffled.
 */
#ifndef GPO_CELLS_H
#define GPO_CELLS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* Eight cells become these bins, in this order; four become their bins from 0 on. */
static const int64_t gpo_bins_of_eight[] = {0, 2, 4, 6, 1, 3, 5, 7};

/* exp(-2 pi i k / n), k in [0, n), n a multiple of 8: no angle beyond pi / 4 is rounded. */
static inline void
gpo_exact_root(int64_t k, int64_t n, double *re, double *im)
{
    const int64_t quarter = k / (n / 4), r = k % (n / 4);
    const bool far = r > n / 8;
    const double angle = 6.283185307179586 * (double)(far ? n / 4 - r : r) / (double)n;
    const double c = far ? sin(angle) : cos(angle), s = far ? cos(angle) : sin(angle);
    const double x[] = {c, -s, -c, s}, y[] = {-s, -c, s, c};
    *re = x[quarter];
    *im = y[quarter];
}

/*
 * A table of roots: of a step that divides n cells by four there are n / 4 triples r, r^2,
 * r^3, r = exp(-2 pi i j / n).  A step of 16 cells, or of 32, is the first; those of four
 * times as many follow.  So many values come before the triples of n.
 */
static inline int64_t
gpo_roots_before(int64_t n)
{
    const bool twice = __builtin_ctzll((unsigned long long)n) % 2;
    return 6 * ((n / 4 - (twice ? 8 : 4)) / 3);
}

/*
 * Elements of two vectors in turn, as __builtin_shufflevector counts them: the first half
 * of what comes out, and the last.  Each vector has as many as the name says.
 */
#define FIRST_2 0, 2
#define LAST_2 1, 3
#define FIRST_4 0, 4, 1, 5
#define LAST_4 2, 6, 3, 7
#define FIRST_8 0, 8, 1, 9, 2, 10, 3, 11
#define LAST_8 4, 12, 5, 13, 6, 14, 7, 15
#define FIRST_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define LAST_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

/* The elements at even places of two vectors, and those at odd ones. */
#define EVEN_2 0, 2
#define ODD_2 1, 3
#define EVEN_4 0, 2, 4, 6
#define ODD_4 1, 3, 5, 7
#define EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
#define ODD_8 1, 3, 5, 7, 9, 11, 13, 15

#endif
