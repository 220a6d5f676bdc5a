/*
 * turn.h  Matrices turned on the CPU, rows to columns, in squares of 16 bytes a side.
 * Order: squares, a matrix, of any width.  Strides are counted in elements.
 */
#ifndef GPO_TURN_H
#define GPO_TURN_H

#include "gather.h"

/* ---- squares: y[i * sy + k] = x[k * sx + i] for a vector's length of i and k ---- */

#define FIRST_OF_2 0, 2
#define LAST_OF_2 1, 3
#define FIRST_OF_4 0, 4, 1, 5
#define LAST_OF_4 2, 6, 3, 7
#define FIRST_OF_8 0, 8, 1, 9, 2, 10, 3, 11
#define LAST_OF_8 4, 12, 5, 13, 6, 14, 7, 15
#define FIRST_OF_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define LAST_OF_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

/* The first and the last halves of two rows, interleaved: to[k] and to[k + 1]. */
#define MIX(to, k, a, b, size)                                \
    (to)[k] = __builtin_shufflevector(a, b, FIRST_OF_##size); \
    (to)[(k) + 1] = __builtin_shufflevector(a, b, LAST_OF_##size)

#define LOAD_SQUARE(size)                       \
    for (int k = 0; k < (size); k++) {          \
        memcpy(&r[k], x + k * sx, sizeof r[k]); \
    }

#define STORE_SQUARE(rows, size)                        \
    for (int i = 0; i < (size); i++) {                  \
        memcpy(y + i * sy, &(rows)[i], sizeof *(rows)); \
    }

INLINED void
turn_2(uint64_t *restrict y, int64_t sy, const uint64_t *restrict x, int64_t sx)
{
    uint64_t __attribute__((vector_size(16))) r[2], s[2];
    LOAD_SQUARE(2)
    MIX(s, 0, r[0], r[1], 2);
    STORE_SQUARE(s, 2)
}

INLINED void
turn_4(uint32_t *restrict y, int64_t sy, const uint32_t *restrict x, int64_t sx)
{
    uint32_t __attribute__((vector_size(16))) r[4], s[4];
    LOAD_SQUARE(4)
    MIX(s, 0, r[0], r[2], 4);
    MIX(s, 2, r[1], r[3], 4);
    MIX(r, 0, s[0], s[2], 4);
    MIX(r, 2, s[1], s[3], 4);
    STORE_SQUARE(r, 4)
}

INLINED void
turn_8(uint16_t *restrict y, int64_t sy, const uint16_t *restrict x, int64_t sx)
{
    uint16_t __attribute__((vector_size(16))) r[8], s[8];
    LOAD_SQUARE(8)
    MIX(s, 0, r[0], r[4], 8);
    MIX(s, 2, r[1], r[5], 8);
    MIX(s, 4, r[2], r[6], 8);
    MIX(s, 6, r[3], r[7], 8);
    MIX(r, 0, s[0], s[4], 8);
    MIX(r, 2, s[1], s[5], 8);
    MIX(r, 4, s[2], s[6], 8);
    MIX(r, 6, s[3], s[7], 8);
    MIX(s, 0, r[0], r[4], 8);
    MIX(s, 2, r[1], r[5], 8);
    MIX(s, 4, r[2], r[6], 8);
    MIX(s, 6, r[3], r[7], 8);
    STORE_SQUARE(s, 8)
}

static inline void
turn_16(uint8_t *restrict y, int64_t sy, const uint8_t *restrict x, int64_t sx)
{
    uint8_t __attribute__((vector_size(16))) r[16], s[16];
    LOAD_SQUARE(16)
    for (int round = 0; round < 4; round++) {
        for (int k = 0; k < 8; k++) {
            MIX(s, 2 * k, r[k], r[k + 8], 16);
        }
        memcpy(r, s, sizeof r);
    }
    STORE_SQUARE(r, 16)
}

#undef FIRST_OF_2
#undef LAST_OF_2
#undef FIRST_OF_4
#undef LAST_OF_4
#undef FIRST_OF_8
#undef LAST_OF_8
#undef FIRST_OF_16
#undef LAST_OF_16
#undef MIX
#undef LOAD_SQUARE
#undef STORE_SQUARE

/* ---- a matrix: y[i * sy + k] = x[k * sx + i], k in [0, rows), i in [0, n) ---- */

#define DEFINE_TURN(type, size)                                                      \
    static inline void turn_##type(type *restrict y, int64_t sy,                     \
                                   const type *restrict x, int64_t sx, int64_t rows, \
                                   int64_t n)                                        \
    {                                                                                \
        const int64_t across = rows - rows % (size), along = n - n % (size);         \
        for (int64_t k = 0; k < across; k += (size)) {                               \
            for (int64_t i = 0; i < along; i += (size)) {                            \
                turn_##size(y + i * sy + k, sy, x + k * sx + i, sx);                 \
            }                                                                        \
        }                                                                            \
        for (int64_t i = 0; i < n; i++) {                                            \
            for (int64_t k = i < along ? across : 0; k < rows; k++) {                \
                y[i * sy + k] = x[k * sx + i];                                       \
            }                                                                        \
        }                                                                            \
    }

DEFINE_TURN(uint8_t, 16)
DEFINE_TURN(uint16_t, 8)
DEFINE_TURN(uint32_t, 4)
DEFINE_TURN(uint64_t, 2)

#undef DEFINE_TURN

/* ---- of any width ---- */

static inline void
turn(void *y, int64_t sy, const void *x, int64_t sx, int64_t rows, int64_t n,
     int64_t bytes)
{
    switch (bytes) {
        case 1:
            turn_uint8_t(y, sy, x, sx, rows, n);
            break;
        case 2:
            turn_uint16_t(y, sy, x, sx, rows, n);
            break;
        case 4:
            turn_uint32_t(y, sy, x, sx, rows, n);
            break;
        case 8:
            turn_uint64_t(y, sy, x, sx, rows, n);
            break;
        default:
            for (int64_t i = 0; i < n; i++) {
                gather((char *)y + i * sy * bytes, (const char *)x + i * bytes, rows,
                       sx, bytes);
            }
    }
}

#endif
