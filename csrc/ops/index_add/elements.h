/*
 * elements.h  The element types of index_add on the CPU: what a sum is held in, how an
 * element enters it and how it leaves.
 */
#ifndef GPO_INDEX_ADD_ELEMENTS_H
#define GPO_INDEX_ADD_ELEMENTS_H

#include "../../core/elements.h"
#include "index_add.h"

#define KEEP(x) (x)
#define TRUTH(x) ((x) != 0)
#define PLUS(a, b) (a) + (b)
#define EITHER(a, b) (a) | (b)
#define TIMES(a, b) (a) * (b)
#define BOTH(a, b) (a) & (b)

/*
 * F(dtype, A, LOAD, STORE, ADD, SCALE, alpha): a sum is an A, of which LOAD makes one
 * of an element and STORE the element; ADD adds two, SCALE multiplies by the plan's
 * alpha.  Signed integers are added as the unsigned ones of their width.
 */
#define ELEMENTS(F)                                                            \
    F(BOOL, uint8_t, TRUTH, KEEP, EITHER, BOTH, (uint8_t)(p->whole != 0))      \
    F(U8, uint8_t, KEEP, KEEP, PLUS, TIMES, (uint8_t)p->whole)                 \
    F(U16, uint16_t, KEEP, KEEP, PLUS, TIMES_U16, (uint16_t)p->whole)          \
    F(U32, uint32_t, KEEP, KEEP, PLUS, TIMES, (uint32_t)p->whole)              \
    F(U64, uint64_t, KEEP, KEEP, PLUS, TIMES, (uint64_t)p->whole)              \
    F(F16, float, float_of_f16, f16_of_float, PLUS, TIMES, (float)p->alpha)    \
    F(BF16, float, float_of_bf16, bf16_of_float, PLUS, TIMES, (float)p->alpha) \
    F(F32, float, KEEP, KEEP, PLUS, TIMES, (float)p->alpha)                    \
    F(F64, double, KEEP, KEEP, PLUS, TIMES, p->alpha)

/* Promoted to int, a product of two uint16_t may overflow. */
#define TIMES_U16(a, b) (uint32_t)(a) * (uint32_t)(b)

/* The entry of ELEMENTS that adds a dtype of a plan. */
static inline gpo_dtype
added_as(gpo_dtype dtype)
{
    switch (dtype) {
        case GPO_I8:
            return GPO_U8;
        case GPO_I16:
            return GPO_U16;
        case GPO_I32:
            return GPO_U32;
        case GPO_I64:
            return GPO_U64;
        default:
            return dtype;
    }
}

#endif
