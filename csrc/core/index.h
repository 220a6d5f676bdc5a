/*
 * index.h  Indices out of bounds: the modes of NumPy's take and put.
 */
#ifndef GPO_INDEX_H
#define GPO_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "integers.h"

typedef enum gpo_index_mode {
    GPO_INDEX_RAISE, /* -length to -1 count from the end, all others are errors */
    GPO_INDEX_WRAP,  /* modulo length */
    GPO_INDEX_CLIP   /* to the nearest end; a negative index becomes 0 */
} gpo_index_mode;

/* The names of gpo_index_mode, in its order, for a gpo_arg of kind GPO_KIND_ENUM. */
#define GPO_INDEX_MODES "raise", "wrap", "clip", NULL

/*
 * The position in [0, length) that an index outside that range means; -1 if none.
 * `is_unsigned`: the index is a uint64, whose upper half looks negative.
 */
static inline GPO_ANYWHERE int64_t
gpo_index_place(int64_t index, int64_t length, gpo_index_mode mode, bool is_unsigned)
{
    const bool below = index < 0 && !is_unsigned;
    if (mode == GPO_INDEX_CLIP) {
        return below ? 0 : length - 1;
    }
    if (mode == GPO_INDEX_WRAP) {
        if (!below) {
            return (int64_t)((uint64_t)index % (uint64_t)length);
        }
        const int64_t rest = index % length;
        return rest < 0 ? rest + length : rest;
    }
    return below && index >= -length ? index + length : -1;
}

#endif
