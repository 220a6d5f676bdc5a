/*
 * sums.h  The types that index_add sums in on the CPU: the kinds of sums, and the kind
 * for each dtype.  See sums.inc for how an element enters a sum.
 */
#ifndef GPO_INDEX_ADD_SUMS_H
#define GPO_INDEX_ADD_SUMS_H

#include "../../core/elements.h"
#include "index_add.h"

/*
 * SUMS(X): X(kind, C type of a sum).  Signed integers are added as unsigned ones of the
 * same width.  Floats below float64 have two kinds: the wide one is for many rows.
 */
#define SUMS(X)          \
    X(BOOL, uint8_t)     \
    X(U8, uint8_t)       \
    X(U16, uint16_t)     \
    X(U32, uint32_t)     \
    X(U64, uint64_t)     \
    X(F16, float)        \
    X(BF16, float)       \
    X(F32, float)        \
    X(F64, double)       \
    X(WIDE_F16, double)  \
    X(WIDE_BF16, double) \
    X(WIDE_F32, double)

#define SUMS_NAME(kind, type) SUMS_##kind,
enum { SUMS(SUMS_NAME) NSUMS };
#undef SUMS_NAME

#define SUMS_TYPE(kind, type) typedef type sum_##kind;
SUMS(SUMS_TYPE)
#undef SUMS_TYPE

/* Whether a dtype has a kind of float64 sums beside that of float32 sums. */
static inline bool
is_narrow_float(gpo_dtype dtype)
{
    return dtype == GPO_F16 || dtype == GPO_BF16 || dtype == GPO_F32;
}

/* The kind of sums of a dtype; `many`: more than a few rows may share a destination. */
static inline int
sums_of(gpo_dtype dtype, bool many)
{
    switch (dtype) {
        case GPO_BOOL:
            return SUMS_BOOL;
        case GPO_I8:
        case GPO_U8:
            return SUMS_U8;
        case GPO_I16:
        case GPO_U16:
            return SUMS_U16;
        case GPO_I32:
        case GPO_U32:
            return SUMS_U32;
        case GPO_F16:
            return many ? SUMS_WIDE_F16 : SUMS_F16;
        case GPO_BF16:
            return many ? SUMS_WIDE_BF16 : SUMS_BF16;
        case GPO_F32:
            return many ? SUMS_WIDE_F32 : SUMS_F32;
        case GPO_F64:
            return SUMS_F64;
        default:
            return SUMS_U64;
    }
}

#endif
