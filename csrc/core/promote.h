/*
 * promote.h  The common dtype of two dtypes: NumPy's promotion rules, with ml_dtypes'
 * for bfloat16.  Order: kinds, integers, floats, any two.
 */
#ifndef GPO_PROMOTE_H
#define GPO_PROMOTE_H

#include "gpo.h"

static inline bool
gpo_is_whole(gpo_dtype dtype)
{
    return dtype <= GPO_U64; /* bool and integers come first in dtypes.def */
}

static inline gpo_dtype
gpo_signed_of(int bytes)
{
    return bytes == 1   ? GPO_I8
           : bytes == 2 ? GPO_I16
           : bytes == 4 ? GPO_I32
           : bytes == 8 ? GPO_I64
                        : GPO_F64;
}

static inline gpo_dtype
gpo_promote_whole(gpo_dtype a, gpo_dtype b)
{
    if (a == GPO_BOOL || b == GPO_BOOL) {
        return a == GPO_BOOL ? b : a;
    }
    const gpo_dtype_info *x = &gpo_dtypes[a], *y = &gpo_dtypes[b];
    if (x->kind == y->kind) {
        return x->bytes >= y->bytes ? a : b;
    }
    const int signed_bytes = x->kind == 'i' ? x->bytes : y->bytes;
    const int unsigned_bytes = x->kind == 'i' ? y->bytes : x->bytes;
    return gpo_signed_of(signed_bytes > unsigned_bytes ? signed_bytes
                                                       : 2 * unsigned_bytes);
}

/* The smallest real floating dtype that a real dtype is promoted to beside floats. */
static inline gpo_dtype
gpo_float_beside(gpo_dtype dtype)
{
    const int bytes = gpo_dtypes[dtype].bytes;
    if (gpo_is_whole(dtype)) {
        return bytes == 1 ? GPO_F16 : bytes == 2 ? GPO_F32 : GPO_F64;
    }
    return dtype;
}

static inline gpo_dtype
gpo_promote(gpo_dtype a, gpo_dtype b)
{
    if (a == b) {
        return a;
    }
    if (gpo_is_whole(a) && gpo_is_whole(b)) {
        return gpo_promote_whole(a, b);
    }
    if (gpo_dtypes[a].kind == 'c' || gpo_dtypes[b].kind == 'c') {
        const bool wide = a == GPO_C128 || b == GPO_C128 ||
                          gpo_float_beside(a) == GPO_F64 ||
                          gpo_float_beside(b) == GPO_F64;
        return wide ? GPO_C128 : GPO_C64;
    }
    const gpo_dtype x = gpo_float_beside(a), y = gpo_float_beside(b);
    if (x == GPO_F64 || y == GPO_F64) {
        return GPO_F64;
    }
    if (gpo_dtypes[x].bytes == 2 && gpo_dtypes[y].bytes == 2) {
        /* A bool or an 8-bit integer takes the dtype of either 16-bit float. */
        return gpo_is_whole(a) ? b : gpo_is_whole(b) ? a : GPO_F32;
    }
    return GPO_F32;
}

#endif
