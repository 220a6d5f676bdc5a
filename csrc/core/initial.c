/*
 * initial.c  The value that a reduction or scan starts from: checked against the dtype
 * of the result, and rounded to it.
 */
#include "initial.h"

#include "elements.h"
#include "promote.h"

/* Whether an integer dtype holds the int whose double is f, and modulo 2^64 is i. */
static bool
holds(gpo_dtype dtype, int64_t i, double f)
{
    const int bits = 8 * gpo_dtypes[dtype].bytes;
    const bool is_signed = gpo_dtypes[dtype].kind == 'i';
    const uint64_t most = UINT64_MAX >> (64 - bits + is_signed);
    if (f < 0) { /* i has the same sign unless the int is below int64 */
        return is_signed && f >= -0x1p63 && i < 0 && i >= -(int64_t)most - 1;
    }
    /* f is rounded, but the sign of i says on which side of 2^63 the int is */
    const bool fits = i >= 0 ? f <= 0x1p63 : f >= 0x1p63 && f <= 0x1p64;
    return fits && (uint64_t)i <= most;
}

gpo_status
gpo_initial_check(gpo_call *call, const gpo_option *option, gpo_dtype dtype)
{
    const char *name = gpo_dtypes[dtype].name;
    if (!option->given || (!gpo_is_whole(dtype) && !option->is_int)) {
        return GPO_OK;
    }
    if (!option->is_int) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "Cannot cast initial from dtype('float64') to dtype('%s') "
                        "according to the rule 'same_kind'",
                        name);
    }
    if (!gpo_is_whole(dtype)) {
        return isinf(option->f) ? gpo_fail(&call->error, GPO_EVALUE,
                                           "initial is an int too large for a float")
                                : GPO_OK;
    }
    if (dtype == GPO_BOOL || holds(dtype, option->i, option->f)) {
        return GPO_OK;
    }
    if (fabs(option->f) < 0x1p63) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "Python integer %lld out of bounds for %s",
                        (long long)option->i, name);
    }
    return gpo_fail(&call->error, GPO_EVALUE,
                    "Python integer of 19 or more digits out of bounds for %s", name);
}

gpo_initial
gpo_initial_of(const gpo_option *option, gpo_dtype dtype)
{
    gpo_initial initial = {.given = option->given};
    if (!option->given) {
        return initial;
    }
    initial.whole = dtype == GPO_BOOL ? option->f != 0 : option->i;
    switch (dtype) {
        case GPO_F16:
            initial.real = float_of_f16(f16_of_f64(option->f));
            break;
        case GPO_BF16:
            initial.real = float_of_bf16(bf16_of_f64(option->f));
            break;
        case GPO_F32:
        case GPO_C64:
            initial.real = (float)option->f;
            break;
        default:
            initial.real = option->f;
    }
    return initial;
}
