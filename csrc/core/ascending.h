/*
 * ascending.h  Sums of the runs of an ascending index, on the CPU.  Order: the look at an
 * index, its lanes, sums in registers, all parts.  See ascends.inc and ascending.inc for the loops.
 *
 * The elements of a place are then neighbours, so their sum stays in a register and is
 * stored once, and every part of the index owns a range of places.  A part begins with a
 * run, and elements are added in their order: neither the parts nor the number of
 * threads changes a bit.  The look says that an index seems to ascend; the loops check
 * every entry, and a part that finds another order writes to no place that it does not own.
 */
#ifndef GPO_ASCENDING_H
#define GPO_ASCENDING_H

#include "once.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    ASCENDING_LEAST = 1 << 11, /* entries of an index that is looked at */
    ASCENDING_LOOKS = 64,
    ASCENDING_LANES = 4,      /* of a part, added in turn: each waits for its own sum */
    ASCENDING_PART = 1 << 13, /* entries, at least, of one of several parts */
    ASCENDING_PARTS = 32,
    ASCENDING_BLOCK =
        128, /* entries of a lane that are checked before they are added */
};

typedef struct ascending {
    const void *index; /* int64, or int32, without a stride */
    bool is_wide;
    int64_t n, size;
    int64_t parts;
    /* of each lane: its first entry and its first place; the end of the last */
    int64_t first[ASCENDING_PARTS * ASCENDING_LANES + 1];
    int64_t place[ASCENDING_PARTS * ASCENDING_LANES + 1];
} ascending;

static inline int64_t
ascending_entry(const ascending *a, int64_t i)
{
    return a->is_wide ? ONCE((const int64_t *)a->index + i)
                      : ONCE((const int32_t *)a->index + i);
}

/* The first entry that is not below `place`, if the index ascends; at most `i`. */
static inline int64_t
ascending_begin(const ascending *a, int64_t i, int64_t place)
{
    int64_t below = -1;
    while (below + 1 < i) {
        const int64_t middle = below + (i - below) / 2;
        if (ascending_entry(a, middle) < place) {
            below = middle;
        }
        else {
            i = middle;
        }
    }
    return i;
}

/*
 * Whether the index seems to ascend within [0, size), without long runs, which would leave
 * a part to one lane.  It depends on index and size alone.  If so, divides the index.
 */
static inline bool
ascending_look(ascending *a)
{
    if (a->n < ASCENDING_LEAST) {
        return false;
    }
    int64_t last = -1, same = 0;
    for (int64_t k = 0; k < ASCENDING_LOOKS; k++) {
        const int64_t place =
            ascending_entry(a, k * (a->n - 1) / (ASCENDING_LOOKS - 1));
        if (place < last || place < 0 || place >= a->size) {
            return false;
        }
        same += place == last;
        last = place;
    }
    if (same > ASCENDING_LOOKS / 8) {
        return false;
    }
    const int64_t most = a->n / ASCENDING_PART;
    a->parts = most < 1 ? 1 : most < ASCENDING_PARTS ? most : ASCENDING_PARTS;
    const int64_t lanes = a->parts * ASCENDING_LANES;
    a->first[0] = a->place[0] = 0;
    for (int64_t l = 1; l < lanes; l++) {
        const int64_t i = l * a->n / lanes;
        a->place[l] = ascending_entry(a, i);
        a->first[l] = ascending_begin(a, i, a->place[l]);
        if (a->place[l] < a->place[l - 1] || a->place[l] >= a->size ||
            a->first[l] < a->first[l - 1]) {
            return false;
        }
    }
    a->first[lanes] = a->n;
    a->place[lanes] = a->size;
    return true;
}

/* A stretch of the index that is added entry by entry, and the places it owns. */
typedef struct ascending_lane {
    int64_t next, end; /* entries that are left */
    int64_t last;      /* the place of the entry before; -1: none */
    int64_t low, open,
        limit; /* places [low, limit); those from `open` on have nothing */
} ascending_lane;

static inline void
ascending_lanes(const ascending *a, int64_t part, ascending_lane *lane)
{
    for (int64_t l = 0; l < ASCENDING_LANES; l++) {
        const int64_t k = part * ASCENDING_LANES + l;
        lane[l] = (ascending_lane){.next = a->first[k],
                                   .end = a->first[k + 1],
                                   .last = -1,
                                   .low = a->place[k],
                                   .open = a->place[k],
                                   .limit = a->place[k + 1]};
    }
}

/* Entries of the next block that each of some lanes has. */
static inline int64_t
ascending_block(const ascending_lane *lane, int lanes)
{
    int64_t n = ASCENDING_BLOCK;
    for (int l = 0; l < lanes; l++) {
        const int64_t left = lane[l].end - lane[l].next;
        n = left < n ? left : n;
    }
    return n;
}

/*
 * A sum in a register: nothing is kept where mask is 0, all where it is -1; the bits
 * `start`, 0 where something is kept, are taken instead.  Doubles are in a vector
 * register, since a branch would often be mispredicted.
 */
typedef uint64_t held_U64;
typedef double held_F64 __attribute__((vector_size(16)));
typedef int64_t held_bits __attribute__((vector_size(16)));

static inline held_U64
hold_U64(uint64_t x)
{
    return x;
}

static inline held_F64
hold_F64(double x)
{
    return (held_F64){x};
}

static inline uint64_t
held_sum_U64(held_U64 sum)
{
    return sum;
}

static inline double
held_sum_F64(held_F64 sum)
{
    return sum[0];
}

static inline held_U64
keep_U64(held_U64 sum, int64_t mask, int64_t start)
{
    return (sum & (uint64_t)mask) | (uint64_t)start;
}

static inline held_F64
keep_F64(held_F64 sum, int64_t mask, int64_t start)
{
    const held_bits kept = (held_bits)sum & (held_bits){mask};
    return (held_F64)(kept | (held_bits){start});
}

/* ---- all parts ---- */

/* part_ascends of ascends.inc, and sum_runs of ascending.inc. */
typedef bool (*ascending_check)(const ascending *a, int64_t part);
typedef bool (*ascending_sum)(const ascending *a, int64_t part, const void *values,
                              double alpha, const void *x, void *out);

typedef struct ascending_call {
    ascending index;
    ascending_check check;
    ascending_sum sum;
    const void *values, *x;
    double alpha;
    void *out;
    bool adds; /* else the parts are only checked */
    bool good[ASCENDING_PARTS];
} ascending_call;

static inline void
ascending_take_part(void *context, int64_t part)
{
    ascending_call *c = context;
    c->good[part] = c->adds ? c->sum(&c->index, part, c->values, c->alpha, c->x, c->out)
                            : c->check(&c->index, part);
}

/* Adds or checks all parts; false if they do not ascend.  `loop` is gpo_cpu_loop. */
static inline bool
ascending_take(ascending_call *c, bool adds, bool parallel,
               void (*loop)(bool parallel, int64_t count,
                            void (*body)(void *context, int64_t i), void *context))
{
    c->adds = adds;
    loop(parallel, c->index.parts, ascending_take_part, c);
    bool good = true;
    for (int64_t i = 0; i < c->index.parts; i++) {
        good &= c->good[i];
    }
    return good;
}

#endif
