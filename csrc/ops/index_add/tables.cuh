/*
 * tables.cuh  Tables of sums in shared memory (v2, few_destinations): their layout, and
 * whether one pays.
 */
#ifndef GPO_INDEX_ADD_TABLES_CUH
#define GPO_INDEX_ADD_TABLES_CUH

#include "frame.cuh"

/* The table of one block: entry (k, c) of copy j is at (k * columns + c) * copies + j;
 * `lanes` threads take the `columns` columns of a row. */
struct index_add_table {
    int64_t rows;           /* of the source, in a slice */
    unsigned slices, tiles; /* of the source, of a row's columns */
    int columns, lanes, copies;
};

/*
 * The table of a call for sums of `size` bytes; false if it does not fit or does not
 * pay.  `dense`: as many threads to a row as it has columns, else a power of two.
 */
inline bool
plan_table(const gpo_call *call, int64_t size, index_add_table *t, size_t *bytes,
           bool dense = false)
{
    const index_add_plan &a = *index_add_plan_of(call);
    if (a.outer * a.inner * a.count == 0 || a.length == 0) {
        return false;
    }
    int64_t columns = a.inner < WARP ? a.inner : WARP;
    if (dense) { /* parts of a row that are as long as each other */
        columns = ceil_div(a.inner, ceil_div(a.inner, WARP));
    }
    while (a.length * columns * size > gpo_shared_room(call) && columns > 1) {
        columns = (columns + 1) / 2;
    }
    const bool fits = a.length * columns * size <= gpo_shared_room(call);
    const bool is_whole = columns == a.inner;
    const bool is_long = columns * gpo_dtypes[a.dtype].bytes >= TABLE_MIN_BYTES;
    if (!fits || (!is_whole && !is_long) || a.count < 2 * a.length) {
        return false;
    }
    t->columns = static_cast<int>(columns);
    t->lanes = dense ? t->columns : 1;
    while (t->lanes < columns) {
        t->lanes *= 2;
    }
    t->copies = 1;
    while (t->copies * t->lanes < WARP &&
           2 * t->copies * a.length * columns * size <= TABLE_COPIES * size) {
        t->copies *= 2;
    }
    *bytes = static_cast<size_t>(a.length * columns * t->copies * size);
    const int64_t tiles = ceil_div(a.inner, columns), units = a.outer * tiles;
    const int64_t wanted = ceil_div(gpo_processors(call), units);
    const int64_t most = ceil_div(a.count, TABLE_BLOCK / t->lanes); /* a row a thread */
    const int64_t slices = wanted < most ? wanted : most;
    t->tiles = static_cast<unsigned>(tiles);
    t->slices = static_cast<unsigned>(slices);
    t->rows = ceil_div(a.count, slices);
    return units * slices < MAX_GRID;
}

/*
 * The tables of few_destinations for thousands of destinations, where a thread has two
 * columns of a row: of all columns of short rows or of half of them, as every table reads
 * the index, and sectors of the source that are another's, too.  A block has one copy,
 * column after column.  False if the table does not fit, or a block would not add several
 * rows to each of its sums, which it adds to those in memory.
 */
inline bool
plan_pairs(const gpo_call *call, index_add_table *t, size_t *bytes)
{
    const index_add_plan &a = *index_add_plan_of(call);
    const int64_t sum = static_cast<int64_t>(sizeof(double));
    const int64_t room = gpo_shared_room(call);
    if (a.outer * a.inner * a.count == 0 || a.length < MANY_PLACES ||
        a.inner > SHORT_ROW || a.inner % 2 != 0 || a.length > room / sum / 2) {
        return false;
    }
    const int64_t columns = a.length * a.inner * sum <= room ? a.inner : a.inner / 2;
    if (columns % 2 != 0 || a.length * columns * sum > room) {
        return false;
    }
    const int64_t tiles = a.inner / columns, units = a.outer * tiles;
    const int64_t slices = ceil_div(gpo_processors(call), units);
    *t = {ceil_div(a.count, slices),     static_cast<unsigned>(slices),
          static_cast<unsigned>(tiles),  static_cast<int>(columns),
          static_cast<int>(columns) / 2, 1};
    *bytes = static_cast<size_t>(a.length * columns * sum);
    return t->rows / ROWS_FOR_PLACE >= a.length && units * slices < MAX_GRID;
}

/* Whether the last block of few_destinations adds the tables of all blocks to x. */
inline bool
is_finished_alone(const index_add_plan &a, const index_add_table &t)
{
    const int64_t places = a.length * t.columns, units = a.outer * t.tiles;
    const bool are_few = places <= PLACES_ALONE ||
                         (places <= TABLE_BLOCK && places * t.slices <= PARTS_ALONE);
    return are_few && units <= GPO_TICKETS &&
           units * t.slices * places * static_cast<int64_t>(sizeof(double)) <=
               GPO_PARTIALS;
}

inline dim3
table_grid(int64_t outer, const index_add_table &t)
{
    return dim3(static_cast<unsigned>(outer * t.tiles * t.slices));
}

#endif
