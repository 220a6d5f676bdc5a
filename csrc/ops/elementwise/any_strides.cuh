/*
 * any_strides.cuh  Which calls elementwise's any_strides takes, on the host.
 */
#ifndef GPO_ELEMENTWISE_ANY_STRIDES_CUH
#define GPO_ELEMENTWISE_ANY_STRIDES_CUH

#include "flat.cuh"

/* The lowest and the highest offset of operand k among `rows` indices of the first axis. */
inline void
elementwise_reach(const elementwise_plan &plan, int k, int64_t rows, int64_t *low,
                  int64_t *high)
{
    *low = *high = 0;
    for (int d = 0; d < plan.ndim; d++) {
        const int64_t far = ((d > 0 ? plan.shape[d] : rows) - 1) * plan.strides[k][d];
        *(far < 0 ? low : high) += far;
    }
}

/* Indices of the first axis per launch: results and offsets have 31 bits.  0: none. */
inline int64_t
elementwise_rows_at_once(const elementwise_plan &plan)
{
    if (plan.ndim == 0 || plan.size == 0) {
        return 1;
    }
    int64_t rows = plan.shape[0];
    const int64_t most = MOST_OFFSET / (plan.size / rows);
    rows = rows < most ? rows : most;
    for (int k = 0; k < plan.inputs && rows > 0; k++) {
        int64_t low, high;
        elementwise_reach(plan, k, 1, &low, &high);
        const int64_t left = MOST_OFFSET - (high > -low ? high : -low);
        const int64_t stride = plan.strides[k][0];
        const int64_t step = stride < 0 ? -stride : stride;
        if (left < 0) {
            return 0;
        }
        if (step > left / rows) { /* else all of them */
            const int64_t own = left / step + 1;
            rows = rows < own ? rows : own;
        }
    }
    /* In whole packs, so that the result of the next launch is aligned as this one's. */
    return rows == plan.shape[0] || rows < 8 ? rows : rows / 8 * 8;
}

/* Whether a launch takes all axes, and at least one index of the first one. */
inline bool
elementwise_has_offsets(const elementwise_plan &plan)
{
    return plan.ndim <= FEW_AXES && elementwise_rows_at_once(plan) > 0;
}

/* Whether there is a kernel: for packs of 4 elements or more, and two operands of float64. */
inline bool
elementwise_has_strided_packs(const elementwise_plan &plan)
{
    return elementwise_pack(plan) >= STRIDED_PACK ||
           (plan.inputs == 2 && plan.type == GPO_F64);
}

/* Whether operand k lies as the result does: element i at offset i. */
inline bool
elementwise_lies_as_result(const elementwise_plan &plan, int k)
{
    int64_t inside = 1;
    bool good = true;
    for (int d = plan.ndim - 1; d >= 0; d--) {
        good = good && plan.strides[k][d] == inside;
        inside *= plan.shape[d];
    }
    return good;
}

/* Rows of the result whose elements are in one line of an operand: how many, 1 for none,
   and how many rows they are apart. */
struct elementwise_turn {
    int rows;
    int64_t apart;
};

/*
 * The most rows that share a line of an operand that is transposed, that is, whose
 * neighbours along a row are in sectors of their own.  Neighbouring rows of few elements
 * share a line within a block.
 */
inline elementwise_turn
elementwise_turn_of(const elementwise_plan &plan)
{
    const int last = plan.ndim - 1;
    elementwise_turn most = {1, 1};
    for (int k = 0; k < plan.inputs && last > 0; k++) {
        const int64_t line = LINE_BYTES / plan.bytes[k], step = plan.strides[k][last];
        int64_t rows = 1, left = line - 1, apart = 1;
        const bool is_turned =
            (step < 0 ? -step : step) * plan.bytes[k] >= SECTOR_BYTES;
        for (int d = last - 1; d >= 0 && is_turned; d--) {
            const int64_t stride =
                plan.strides[k][d] < 0 ? -plan.strides[k][d] : plan.strides[k][d];
            const int64_t fit = stride > 0 ? left / stride + 1 : line;
            const int64_t length = plan.shape[d];
            if (rows == 1 && fit == 1) { /* the next axis may have nearer ones */
                apart *= length;
                continue;
            }
            rows *= fit < length ? fit : length;
            if (fit < length) {
                break;
            }
            left -= (length - 1) * stride;
        }
        const int64_t narrow = apart > 1 ? line - 1 : NARROW;
        if (plan.shape[last] > narrow && rows > most.rows && rows <= line) {
            most = {static_cast<int>(rows), apart};
        }
    }
    return most;
}

gpo_status elementwise_any_strides(gpo_call *call);

#endif
