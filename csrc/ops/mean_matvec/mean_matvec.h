/*
 * mean_matvec.h  The plan of mean_matvec, made by op.c and read by every variant: the
 * sizes and strides of the two inputs and the result.
 */
#ifndef GPO_MEAN_MATVEC_H
#define GPO_MEAN_MATVEC_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * out[i, n] = sum over l of matrix[i, l] * mean over m of x[n, l, m], for i in
 * [0, outputs), n in [0, batches), l in [0, rows), m in [0, cols).  Strides in
 * elements.
 */
typedef struct mean_matvec_plan {
    int64_t batches, rows, cols, outputs; /* N, L, M, L2 */
    int64_t x_batch, x_row, x_col;        /* strides of x */
    int64_t matrix_output, matrix_row;    /* strides of matrix */
    int64_t out_output, out_batch;        /* strides of out */
} mean_matvec_plan;

static inline const mean_matvec_plan *
mean_matvec_plan_of(const gpo_call *call)
{
    return (const mean_matvec_plan *)call->plan;
}

#ifdef __cplusplus
}
#endif
#endif
