/*
 * dense.cuh  Which calls shapes/backward_dense_windows.cu takes, its shared memory and
 * what a call is estimated to take.  For its launcher and the table.
 */
#ifndef GPO_MAX_POOL3D_DENSE_CUH
#define GPO_MAX_POOL3D_DENSE_CUH

#include "overlap.cuh"

#include <math.h>

/* Windows that one element may have: so many terms of a limb fit 32 bits. */
constexpr double MOST_TERMS = 1000;

/* Elements from a window's first to its last on an axis: a bit of a word each. */
constexpr unsigned MOST_EXTENT = 32;

/* Limbs of a sum, for elements of so many bytes (fixed_sums.cuh). */
__host__ __device__ constexpr int
dense_limbs(int bytes)
{
    return bytes == 8 ? 3 : 2;
}

/* A block's shared memory: gradients and names of its windows, then words of sums. */
__host__ __device__ constexpr int64_t
dense_windows_bytes(int64_t windows, int bytes)
{
    return (windows * (bytes + 2) + 15) / 16 * 16;
}

/* Elements of a block, in whole words of 16 bytes. */
__host__ __device__ constexpr int64_t
dense_pitch(int64_t elements)
{
    return (elements + 3) / 4 * 4;
}

/* ---- the estimate ---- */

/* Threads of a block at most, 64 registers each, and elements of one where windows are few. */
constexpr int DENSE_BLOCK = 1024, DENSE_ELEMENTS = 8;
/*
 * Instructions of a window of whole planes, of a box, and of an element; us before the
 * first of them, of a block of an SM, of an instruction of a thread after another; what
 * times are of such an estimate: fitted to 78 times on an H200, 14 % off by root mean
 * square with 3.9 us before the first.  2.5 are for the choice, as other estimates are
 * too low by as much for small calls.
 */
constexpr double DENSE_WINDOW_WORK = 110, DENSE_CUT_WORK = 130, DENSE_ELEMENT_WORK = 24;
constexpr double DENSE_START_US = 2.5, DENSE_BLOCK_US = 0.1, DENSE_SERIAL_US = 0.002;
constexpr double DENSE_MEASURED = 1.2;

/* No call takes less than that. */
constexpr double DENSE_LEAST_US = DENSE_MEASURED * (DENSE_START_US + 2 * WAIT_US);

/* Completes a plan whose boxes are known; false if a block has more than `room`. */
inline bool
measure_dense(const gpo_call *call, int64_t room, overlap_plan *s)
{
    const int size = static_cast<int>(gpo_dtypes[call->out[0].dtype].bytes);
    const box_counts n = count_boxes(call, s);
    if (!may_fit(n, size, room)) {
        return false;
    }
    const double elements = n.elements, windows = n.windows;
    s->bytes =
        dense_windows_bytes(static_cast<int64_t>(windows), size) +
        4 * (1 + dense_limbs(size)) * dense_pitch(static_cast<int64_t>(elements));
    if (s->bytes > room) {
        return false;
    }
    const double sms = gpo_processors(call), blocks = static_cast<double>(s->blocks);
    const bool is_whole = s->tiles[POOL_T] * s->tiles[POOL_H] * s->tiles[POOL_W] == 1;
    s->us = INFINITY;
    for (int most = DENSE_BLOCK / 16; most <= DENSE_BLOCK; most *= 2) {
        const double rounds = ceil(windows / (most * IN_FLIGHT));
        const double wanted =
            fmax(windows / (rounds * IN_FLIGHT), fmin(elements / DENSE_ELEMENTS, most));
        const double threads = ceil(wanted / WARP) * WARP;
        const double fit =
            floor(static_cast<double>(room) / static_cast<double>(s->bytes));
        const double resident = fmin(floor(DENSE_BLOCK / threads), fit);
        const double window = is_whole ? DENSE_WINDOW_WORK : DENSE_CUT_WORK;
        const double work =
            threads * THREAD_WORK + windows * window + elements * DENSE_ELEMENT_WORK;
        const double waits = (1 + rounds) * WAIT_US + work / threads * DENSE_SERIAL_US;
        const double parts[] = {ceil(blocks / sms) *
                                    (work / GRADIENT_RATE + DENSE_BLOCK_US),
                                ceil(blocks / (sms * resident)) * waits,
                                moved_bytes(call) / (GRADIENT_BYTES * sms)};
        const double us =
            DENSE_MEASURED * (DENSE_START_US + together_us(parts, resident));
        if (us < s->us) {
            s->us = us;
            s->threads = static_cast<int>(threads);
        }
    }
    return true;
}

inline bool
plan_dense(const gpo_call *call, overlap_plan *best)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    double most = 1;
    bool is_short = true;
    for (int d = 0; d < POOL_AXES; d++) {
        most *= windows_naming(plan.axis[d]).most;
        is_short = is_short && pool_extent(&plan.axis[d]) <= int64_t{MOST_EXTENT};
    }
    return most <= MOST_TERMS && is_short && plan_boxes(call, measure_dense, best);
}

/*
 * Windows overlap, but at most MOST_TERMS have one element, none spans more than
 * MOST_EXTENT, and 16 bits count the elements of a block.
 */
inline bool
takes_dense_windows(const gpo_call *call)
{
    return takes_boxes(call, plan_dense);
}

template <typename T>
gpo_status max_pool3d_backward_dense_windows(gpo_call *call);

#endif
