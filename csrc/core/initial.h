/*
 * initial.h  The value that a reduction or scan starts from, the option initial=.
 */
#ifndef GPO_INITIAL_H
#define GPO_INITIAL_H

#include "gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Has the dtype of the result; a room reads the member that its dtype needs. */
typedef struct gpo_initial {
    bool given;
    int64_t whole; /* integers, modulo 2^64; bool: 0 or 1 */
    double real;   /* floats, rounded to the dtype; complex: the real part */
} gpo_initial;

/* Refuses a value that `dtype`, the dtype of the result, cannot hold. */
gpo_status gpo_initial_check(gpo_call *call, const gpo_option *option, gpo_dtype dtype);

/* The value of an option that gpo_initial_check has passed. */
gpo_initial gpo_initial_of(const gpo_option *option, gpo_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
