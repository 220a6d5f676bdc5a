/*
 * scalar.h  The variants `scalar` of upsample_nearest and its backward on the CPU: one
 * element after the other, directly by the rule.  Only cpu.c includes it, after
 * core/each_isa.h.
 * See scalar_forward.inc and scalar_backward.inc for the rows of one dtype.
 */
#ifndef GPO_UPSAMPLE_NEAREST_SCALAR_H
#define GPO_UPSAMPLE_NEAREST_SCALAR_H

#include "elements.h"
#include "rows.h"

/* Writes row (d, h) of a plane to `out` and returns where the next one begins. */
typedef void *(*scalar_row)(const upsample_nearest_plan *p, const void *plane,
                            int64_t d, int64_t h, void *out);

#define DTYPE U8
#include "scalar_forward.inc"
#define DTYPE U16
#include "scalar_forward.inc"
#define DTYPE U32
#include "scalar_forward.inc"
#define DTYPE U64
#include "scalar_forward.inc"
#define DTYPE C64
#include "scalar_forward.inc"
#define DTYPE C128
#include "scalar_forward.inc"

#define DTYPE U8
#include "scalar_backward.inc"
#define DTYPE U16
#include "scalar_backward.inc"
#define DTYPE U32
#include "scalar_backward.inc"
#define DTYPE U64
#include "scalar_backward.inc"
#define DTYPE F16
#include "scalar_backward.inc"
#define DTYPE BF16
#include "scalar_backward.inc"
#define DTYPE F32
#include "scalar_backward.inc"
#define DTYPE F64
#include "scalar_backward.inc"
#define DTYPE C64
#include "scalar_backward.inc"
#define DTYPE C128
#include "scalar_backward.inc"

/* All rows of the result, whose planes have `depth` times `height` of them. */
static void
scalar_rows(const gpo_call *call, int64_t depth, int64_t height, scalar_row row)
{
    const upsample_nearest_plan *p = upsample_nearest_plan_of(call);
    const char *from = call->in[0].data;
    void *to = call->out[0].data;
    for (int64_t a = 0; a < p->images; a++) {
        for (int64_t b = 0; b < p->channels; b++) {
            const char *plane =
                from +
                (a * p->stride[UPSAMPLE_A] + b * p->stride[UPSAMPLE_B]) * p->bytes;
            for (int64_t d = 0; d < depth; d++) {
                for (int64_t h = 0; h < height; h++) {
                    to = row(p, plane, d, h, to);
                }
            }
        }
    }
}

static gpo_status
scalar_forward(gpo_call *call)
{
    static const scalar_row rows[GPO_NDTYPES] = {
        [GPO_U8] = scalar_forward_U8,   [GPO_U16] = scalar_forward_U16,
        [GPO_U32] = scalar_forward_U32, [GPO_U64] = scalar_forward_U64,
        [GPO_C64] = scalar_forward_C64, [GPO_C128] = scalar_forward_C128,
    };
    const upsample_nearest_plan *p = upsample_nearest_plan_of(call);
    scalar_rows(call, p->axis[0].out, p->axis[1].out,
                rows[mover_of(call->out[0].dtype)]);
    return GPO_OK;
}

static gpo_status
scalar_backward(gpo_call *call)
{
    static const scalar_row rows[GPO_NDTYPES] = {
        [GPO_U8] = scalar_backward_U8,   [GPO_U16] = scalar_backward_U16,
        [GPO_U32] = scalar_backward_U32, [GPO_U64] = scalar_backward_U64,
        [GPO_F16] = scalar_backward_F16, [GPO_BF16] = scalar_backward_BF16,
        [GPO_F32] = scalar_backward_F32, [GPO_F64] = scalar_backward_F64,
        [GPO_C64] = scalar_backward_C64, [GPO_C128] = scalar_backward_C128,
    };
    const upsample_nearest_plan *p = upsample_nearest_plan_of(call);
    scalar_rows(call, p->axis[0].in, p->axis[1].in,
                rows[gpo_unsigned_of(call->out[0].dtype)]);
    return GPO_OK;
}

#endif
