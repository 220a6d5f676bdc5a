/*
 * cells.h  The parts of cells.inc that do not depend on the instruction set: the order
 * of bins, the tables of roots, and shuffle masks.
 */
#ifndef GPO_CELLS_H
#define GPO_CELLS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* The order of the bins of a radix-8 leaf; those of a radix-4 leaf are 0, 1, 2, 3. */
static const int64_t gpo_bins_of_eight[] = {0, 2, 4, 6, 1, 3, 5, 7};

/*
 * exp(-2 pi i k / n), k in [0, n), n a multiple of 8.  The angle is first reduced,
 * exactly, to at most pi / 4.
 */
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
 * exp(-2 pi i k / turn) for any k, turn a power of two and at least 64: a root of the
 * coarse table times a root near 1 of the fine table, stored as its difference from 1,
 * so the product is rounded about once.
 */
typedef struct gpo_root_tables {
    int64_t turn;
    int fine_bits;         /* log2 of the roots in the fine table */
    double *coarse, *fine; /* real and imaginary parts in turn */
} gpo_root_tables;

/* The tables in `memory`, unfilled; they end gpo_root_doubles(turn) after it. */
static inline gpo_root_tables
gpo_root_tables_of(int64_t turn, double *memory)
{
    const int fine_bits = __builtin_ctzll((unsigned long long)turn) / 2;
    return (gpo_root_tables){.turn = turn,
                             .fine_bits = fine_bits,
                             .coarse = memory,
                             .fine = memory + 2 * (turn >> fine_bits)};
}

static inline int64_t
gpo_root_doubles(int64_t turn)
{
    const int fine_bits = __builtin_ctzll((unsigned long long)turn) / 2;
    return 2 * (turn >> fine_bits) + ((int64_t)2 << fine_bits);
}

static inline void
gpo_fill_root_tables(const gpo_root_tables *t)
{
    const int64_t fine = (int64_t)1 << t->fine_bits;
    const double step = -6.283185307179586 / (double)t->turn;
    for (int64_t k = 0; k < t->turn / fine; k++) {
        gpo_exact_root(k, t->turn / fine, &t->coarse[2 * k], &t->coarse[2 * k + 1]);
    }
    for (int64_t k = 0; k < fine; k++) {
        const double half = sin(step / 2 * (double)k);
        t->fine[2 * k] = -2 * half * half;
        t->fine[2 * k + 1] = sin(step * (double)k);
    }
}

static inline void
gpo_root_of(const gpo_root_tables *t, int64_t k, double *re, double *im)
{
    const int64_t at = k & (t->turn - 1);
    const double *c = t->coarse + 2 * (at >> t->fine_bits);
    const double *f = t->fine + 2 * (at & (((int64_t)1 << t->fine_bits) - 1));
    *re = c[0] + (c[0] * f[0] - c[1] * f[1]);
    *im = c[1] + (c[0] * f[1] + c[1] * f[0]);
}

/*
 * The table of twiddle factors: a radix-4 step on n cells has n / 4 triples r, r^2,
 * r^3, r = exp(-2 pi i j / n), j in [0, n / 4).  The triples for n = 16 (or 32) come
 * first, then those for each n four times as large.  Returns the offset, in values, of
 * those for n.
 */
static inline int64_t
gpo_roots_before(int64_t n)
{
    const bool twice = __builtin_ctzll((unsigned long long)n) % 2;
    return 6 * ((n / 4 - (twice ? 8 : 4)) / 3);
}

/*
 * Masks of __builtin_shufflevector that interleave two vectors: the first and the last
 * half of the result.  The number in the name is the elements per vector.
 */
#define FIRST_2 0, 2
#define LAST_2 1, 3
#define FIRST_4 0, 4, 1, 5
#define LAST_4 2, 6, 3, 7
#define FIRST_8 0, 8, 1, 9, 2, 10, 3, 11
#define LAST_8 4, 12, 5, 13, 6, 14, 7, 15
#define FIRST_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define LAST_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

/* Masks that turn a vector around. */
#define TURNED_2 1, 0
#define TURNED_4 3, 2, 1, 0
#define TURNED_8 7, 6, 5, 4, 3, 2, 1, 0
#define TURNED_16 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0

/* Masks that take the even or the odd elements of two vectors. */
#define EVEN_2 0, 2
#define ODD_2 1, 3
#define EVEN_4 0, 2, 4, 6
#define ODD_4 1, 3, 5, 7
#define EVEN_8 0, 2, 4, 6, 8, 10, 12, 14
#define ODD_8 1, 3, 5, 7, 9, 11, 13, 15

#endif
