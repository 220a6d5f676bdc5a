/*
 * gather.h  Elements that lie apart, copied beside each other on the CPU.
 * Order: the width made known, elements and rows of that width, of any width.  Strides are
 * counted in elements.
 */
#ifndef GPO_GATHER_H
#define GPO_GATHER_H

#include <stdint.h>
#include <string.h>

/* A part of its caller, compiled for the constants that it passes. */
#define INLINED static inline __attribute__((always_inline))

enum { WIDEST = 16 }; /* bytes of an element */

/* The statement f(arguments..., bytes), in which the bytes of an element are known. */
#define EACH_WIDTH(f, bytes, ...)   \
    switch (bytes) {                \
        case 1:                     \
            f(__VA_ARGS__, 1);      \
            break;                  \
        case 2:                     \
            f(__VA_ARGS__, 2);      \
            break;                  \
        case 4:                     \
            f(__VA_ARGS__, 4);      \
            break;                  \
        case 8:                     \
            f(__VA_ARGS__, 8);      \
            break;                  \
        default:                    \
            f(__VA_ARGS__, WIDEST); \
            break;                  \
    }

/* ---- elements of a width that is known ---- */

/* One element n times. */
INLINED void
repeat_each(char *restrict to, const char *restrict from, int64_t n, int bytes)
{
    char same[WIDEST];
    memcpy(same, from, (size_t)bytes);
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * bytes, same, (size_t)bytes);
    }
}

/* n elements that are `stride` apart. */
INLINED void
gather_each(char *restrict to, const char *restrict from, int64_t n, int64_t stride,
            int bytes)
{
    if (stride == 0) {
        repeat_each(to, from, n, bytes);
        return;
    }
    if (stride == 2) { /* in vectors */
        for (int64_t i = 0; i < n; i++) {
            memcpy(to + i * bytes, from + 2 * i * bytes, (size_t)bytes);
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * bytes, from + i * stride * bytes, (size_t)bytes);
    }
}

/* Rows of n elements: rows are `row` apart, elements `stride`. */
INLINED void
gather_rows_each(char *restrict to, const char *restrict from, int64_t rows, int64_t n,
                 int64_t row, int64_t stride, int bytes)
{
    for (int64_t r = 0; r < rows; r++, from += row * bytes, to += n * bytes) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(to + i * bytes, from + i * stride * bytes, (size_t)bytes);
        }
    }
}

/* The same with loops of their own for the shortest rows and for repeated elements. */
INLINED void
gather_rows_of(char *to, const char *from, int64_t rows, int64_t n, int64_t row,
               int64_t stride, int bytes)
{
    if (n == 2) {
        gather_rows_each(to, from, rows, 2, row, stride, bytes);
    }
    else if (n == 3) {
        gather_rows_each(to, from, rows, 3, row, stride, bytes);
    }
    else if (n == 4) {
        gather_rows_each(to, from, rows, 4, row, stride, bytes);
    }
    else if (stride == 0) {
        for (int64_t r = 0; r < rows; r++) {
            repeat_each(to + r * n * bytes, from + r * row * bytes, n, bytes);
        }
    }
    else if (stride == 1) {
        gather_rows_each(to, from, rows, n, row, 1, bytes);
    }
    else {
        gather_rows_each(to, from, rows, n, row, stride, bytes);
    }
}

/* ---- of any width ---- */

/* Packs n elements that are `stride` apart. */
static inline void
gather(void *to, const void *from, int64_t n, int64_t stride, int64_t bytes)
{
    if (stride == 1) {
        memcpy(to, from, (size_t)(n * bytes));
        return;
    }
    EACH_WIDTH(gather_each, bytes, to, from, n, stride)
}

/* Packs whole rows of n elements: a call for each would take longer than they do. */
static inline void
gather_rows(void *to, const void *from, int64_t rows, int64_t n, int64_t row,
            int64_t stride, int64_t bytes)
{
    EACH_WIDTH(gather_rows_of, bytes, to, from, rows, n, row, stride)
}

#endif
