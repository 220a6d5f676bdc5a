/*
 * tile.h  One tile of max_pool3d on the CPU.  Order: the inner loops of three instruction
 * sets, the job, loading, the passes along an axis, storing, windows straight from x, one
 * tile.  Only cpu.c
 * includes it, which cuts the tiles and describes their passes.
 */
#ifndef GPO_MAX_POOL3D_TILE_H
#define GPO_MAX_POOL3D_TILE_H

#include "../../core/integers.h"
#include "../../core/prefetch.h"
#include "keys.h"

#include <string.h>

/* ---- the inner loops of three instruction sets ---- */

enum {
    OTHERS = 3,     /* keys that one pass may join with each key */
    MOST_ROWS = 4,  /* of x, whose keys are joined at once */
    MOST_ALONE = 8, /* elements of a window that shares none, which need no pass */
};

/* Rows of x, so many elements apart, and the keys of each: before, of n elements, after. */
typedef struct key_rows {
    int64_t rows, apart, before, n, after;
    int64_t least; /* the key of what lies before and after */
} key_rows;

typedef struct loops {
    /* n elements of x as keys; position `first` of a plane is the first of them */
    void (*load)(const void *x, int64_t stride, int64_t n, int64_t first, void *keys,
                 void *codes);
    void (*pack)(const void *x, int64_t stride, int64_t n, int64_t first, void *keys,
                 void *codes);
    void (*load_rows)(const void *x, const key_rows *of, void *keys);
    void (*join_rows)(void *keys, const void *x, const int64_t *at, int64_t n, int rows,
                      bool first);
    void (*store)(const void *keys, int64_t step, int64_t n, void *y);
    void (*store_windows)(const void *keys, int64_t kernel, int64_t n, void *y);
    void (*store_apart)(const void *keys, int64_t n, void *y, int64_t apart);
    /* see keys.inc */
    void (*fetch)(const void *keys, const void *codes, int64_t step, int64_t n,
                  int64_t origin, const void *x, const void *none, void *y,
                  int64_t *indices);
    /* keys[i] = the larger of keys[i] and keys[i + ahead] */
    void (*take)(void *keys, void *codes, int64_t ahead, int64_t n);
    void (*take_packed)(void *keys, void *codes, int64_t ahead, int64_t n);
    /* the same with keys[i + ahead[k]], k in [0, OTHERS); NULL: only one at a time */
    void (*take_three)(void *keys, const int64_t *ahead, int64_t n);
    void (*take_three_packed)(void *keys, const int64_t *ahead, int64_t n);
    int64_t bytes, key_bytes; /* of an element, of a key without a position */
    bool has_codes;           /* positions have their own array, not part of the key */
} loops;

/* Along W nearly every 64-byte load would touch two cache lines. */
#define GPO_NARROW_V4
#define GPO_LOOPS "../ops/max_pool3d/loops.inc"
#include "../../core/each_isa.h"
#undef GPO_NARROW_V4

/* ---- the job: what every part of one call reads ---- */

enum {
    TILE_KEYS = 1 << 17,  /* a ring of 512 KiB of 32-bit keys: in L2 */
    TILE_ROW = 1 << 12,   /* windows of a row */
    STRIP_KEYS = 1 << 12, /* 16 KiB: rows that go through all passes in L1 */
    TASKS = 4,            /* per thread */
    TASK_KEYS = 1 << 12,  /* fewer are not worth a task */
    NARROW = 48,          /* keys of a row that is not worth a pass of its own */
    CHANNELS = 32,        /* contiguous ones that are joined straight from x... */
    LONG_ROW = 64,        /* ...or elements of a row, ... */
    CHANNELS_READ = 6,    /* ...where none is read more often than this... */
    ROW_READ = 3,         /* ...or twice as often as this */
};

typedef struct job {
    const max_pool3d_plan *plan;
    const char *x;
    char *y;
    int64_t *indices; /* NULL if not wanted */
    const loops *loops;
    gpo_dtype dtype;
    int64_t key_bytes; /* of a key in the ring */
    int64_t least;     /* the key of what lies outside of x */
    int64_t windows[POOL_AXES], tiles[POOL_AXES], extent[POOL_AXES];
    int64_t slots;        /* slices that the ring of a tile holds */
    int64_t at_once;      /* slices loaded before they are pooled: 1, or all */
    int64_t items, tasks; /* tiles of all planes */
    bool is_folded;       /* the rows are planes of one row */
    int64_t apart;        /* if not 0: W counts planes of y, which are so far apart */
    bool is_direct;       /* rows of a window are joined straight from x */
    bool ends_alone; /* windows share no key of a row: they are found when stored */
    bool is_strip;   /* no window has two rows: a tile holds keys of one strip */
    bool is_packed;  /* the elements of a plane are contiguous, in order */
    bool *failed;    /* per task: no memory */
} job;

static int64_t
least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- loading ---- */

typedef struct tile {
    char *keys, *codes;
    const char *x; /* of the plane */
    char *y;
    int64_t *indices;
    int64_t begin[POOL_AXES], windows[POOL_AXES], extent[POOL_AXES];
    int64_t from[POOL_AXES];              /* the tile's first element */
    int64_t lo[POOL_AXES], hi[POOL_AXES]; /* the part of it that lies in x */
} tile;

static void
fill_least(const job *j, const tile *t, int64_t at, int64_t n)
{
    if (j->key_bytes == 4) {
        int32_t *keys = (int32_t *)t->keys + at;
        for (int64_t i = 0; i < n; i++) {
            keys[i] = (int32_t)j->least;
        }
        return;
    }
    int64_t *keys = (int64_t *)t->keys + at;
    for (int64_t i = 0; i < n; i++) {
        keys[i] = j->least;
    }
    if (j->loops->has_codes && j->plan->with_indices) {
        int64_t *codes = (int64_t *)t->codes + at;
        for (int64_t i = 0; i < n; i++) {
            codes[i] = INT64_MIN;
        }
    }
}

/* n elements of x from position (p[T], p[H], p[W]) on, into the tile at `at`. */
static void
load_run(const job *j, const tile *t, const int64_t *p, int64_t n, int64_t at)
{
    const max_pool3d_plan *plan = j->plan;
    const int64_t *by = plan->by;
    const int64_t offset = p[0] * by[0] + p[1] * by[1] + p[2] * by[2];
    const int64_t first =
        (p[0] * plan->axis[POOL_H].in + p[1]) * plan->axis[POOL_W].in + p[2];
    char *codes = t->codes ? t->codes + at * 8 : NULL;
    (j->plan->with_indices ? j->loops->pack : j->loops->load)(
        t->x + offset * j->loops->bytes, by[POOL_W], n, first,
        t->keys + at * j->key_bytes, codes);
}

/* Rows [begin, end) of a slice into the ring, from `at` on. */
static void
load_rows(const job *j, const tile *t, int64_t slice, int64_t begin, int64_t end,
          int64_t at)
{
    const int64_t *by = j->plan->by, *lo = t->lo, *hi = t->hi;
    const int64_t cols = t->extent[POOL_W];
    int64_t p[POOL_AXES] = {t->from[0] + slice, t->from[1] + begin, t->from[2] + lo[2]};
    if (slice < lo[0] || slice >= hi[0]) {
        fill_least(j, t, at, (end - begin) * cols);
        return;
    }
    if (!j->plan->with_indices && by[2] == 1) {
        const int64_t first = least_of(most_of(begin, lo[1]), end);
        const int64_t last = most_of(least_of(end, hi[1]), first);
        key_rows of = {.rows = last - first,
                       .apart = by[1],
                       .before = lo[2],
                       .n = hi[2] - lo[2],
                       .after = cols - hi[2],
                       .least = j->least};
        if (of.n == cols && by[1] == cols) { /* as one row */
            of.n *= of.rows;
            of.rows = of.n > 0;
        }
        const int64_t row = t->from[1] + first;
        const char *x = t->x + (p[0] * by[0] + row * by[1] + p[2]) * j->loops->bytes;
        fill_least(j, t, at, (first - begin) * cols);
        at += (first - begin) * cols;
        j->loops->load_rows(x, &of, t->keys + at * j->key_bytes);
        fill_least(j, t, at + (last - first) * cols, (end - last) * cols);
        return;
    }
    const bool whole = lo[2] == 0 && hi[2] == cols && lo[1] <= begin && hi[1] >= end;
    if (whole && by[1] == cols * by[2]) { /* the rows have one stride */
        load_run(j, t, p, (end - begin) * cols, at);
        return;
    }
    for (int64_t h = begin; h < end; h++, p[1]++, at += cols) {
        if (h < lo[1] || h >= hi[1]) {
            fill_least(j, t, at, cols);
            continue;
        }
        fill_least(j, t, at, lo[2]);
        load_run(j, t, p, hi[2] - lo[2], at + lo[2]);
        fill_least(j, t, at + hi[2], cols - hi[2]);
    }
}

/* ---- the passes along an axis ---- */

static bool
joins_four(const job *j)
{
    return (j->plan->with_indices ? j->loops->take_three_packed
                                  : j->loops->take_three) != NULL;
}

/* Each of n keys from `at` on becomes the largest of it and `others` at ahead[]. */
static void
join(const job *j, const tile *t, int64_t at, const int64_t *ahead, int64_t others,
     int64_t n)
{
    const loops *l = j->loops;
    char *keys = t->keys + at * j->key_bytes;
    if (others == OTHERS) {
        (j->plan->with_indices ? l->take_three_packed : l->take_three)(keys, ahead, n);
        return;
    }
    char *codes = t->codes ? t->codes + at * 8 : NULL;
    (j->plan->with_indices ? l->take_packed : l->take)(keys, codes, ahead[0], n);
}

/*
 * A pass makes larger windows from those of the last pass: each is joined with
 * `others`, which begin `apart`, 2 * `apart`, ... further on, the last one `reach`
 * further.
 */
typedef struct pass {
    int64_t made, others, apart, reach;
} pass;

/* Moves to the pass after that which made windows of p->made; false if none is left. */
static bool
next_pass(const job *j, const pool_axis *a, pass *p)
{
    if (p->made == a->kernel) {
        return false;
    }
    const bool four = joins_four(j) && 4 * p->made <= a->kernel;
    const int64_t more = four ? p->made : least_of(p->made, a->kernel - p->made);
    p->others = four ? OTHERS : 1;
    p->made += p->others * more;
    p->apart = more * a->dilation;
    p->reach = p->others * p->apart;
    return true;
}

/* Element i along T or H in a tile: n keys from base + i % slots * unit on. */
typedef struct line {
    int64_t base, unit, slots, n;
} line;

static int64_t
place_of(const line *l, int64_t i)
{
    return l->base +
           (i < l->slots ? i : i % l->slots) * l->unit; /* mostly the former */
}

/* Joins elements [first, first + count) with `others`: at `next`, next + apart, ... */
static void
join_elements(const job *j, const tile *t, const line *l, int64_t first, int64_t count,
              int64_t next, int64_t apart, int64_t others)
{
    int64_t ahead[OTHERS];
    const int64_t at = place_of(l, first);
    for (int64_t k = 0; k < others; k++) {
        ahead[k] = place_of(l, next + k * apart) - at;
    }
    join(j, t, at, ahead, others, count * l->n);
}

/*
 * Whether windows are made at every element of an axis, n keys each, by passes over all
 * of them: where they are wanted, or where a pass for each would be too short.
 */
static bool
is_dense(const pool_axis *a, int64_t n)
{
    return a->stride == 1 || (n <= NARROW && a->stride <= a->kernel);
}

/*
 * Elements [*begin, *end) of axis d are new.  Pools the windows that they complete, and
 * sets *begin and *end to the elements at which these windows begin.
 */
static void
pool_elements(const job *j, const tile *t, int d, const line *l, int64_t *begin,
              int64_t *end)
{
    const pool_axis *a = &j->plan->axis[d];
    if (is_dense(a, l->n)) {
        for (pass p = {.made = 1}; next_pass(j, a, &p);) {
            *begin = most_of(*begin - p.reach, 0);
            *end = most_of(*end - p.reach, 0);
            if (*end > *begin) {
                join_elements(j, t, l, *begin, *end - *begin, *begin + p.apart, p.apart,
                              p.others);
            }
        }
        return;
    }
    *begin = most_of(*begin - pool_extent(a) + 1, 0);
    *end = most_of(*end - pool_extent(a) + 1, 0);
    for (int64_t first = ceil_div(*begin, a->stride) * a->stride; first < *end;
         first += a->stride) {
        for (int64_t k = 1, others; k < a->kernel; k += others) {
            others = joins_four(j) && k + OTHERS <= a->kernel ? OTHERS : 1;
            join_elements(j, t, l, first, 1, first + k * a->dilation, a->dilation,
                          others);
        }
    }
}

/* Windows along W in n contiguous keys: window o is at o * stride. */
static void
pool_columns(const job *j, const tile *t, int64_t at, int64_t n)
{
    if (j->ends_alone) {
        return;
    }
    for (pass p = {.made = 1}; next_pass(j, &j->plan->axis[POOL_W], &p);) {
        const int64_t ahead[OTHERS] = {p.apart, 2 * p.apart, 3 * p.apart};
        n -= p.reach;
        join(j, t, at, ahead, p.others, n);
    }
}

/* ---- storing ---- */

/* The position of the element that a key was made from; -1 if there is none. */
static int64_t
position_of(const job *j, const tile *t, int64_t at)
{
    int64_t code;
    if (j->loops->has_codes) {
        memcpy(&code, t->codes + at * 8, 8);
        return code == INT64_MIN ? -1 : code < 0 ? ~code : code;
    }
    memcpy(&code, t->keys + at * 8, 8);
    const int32_t low = (int32_t)((uint32_t)code ^ 0x80000000u);
    return low == INT32_MIN ? -1 : low < 0 ? ~low : low;
}

/* The least element, for windows outside of x. */
static void
store_least(const job *j, char *y)
{
    const int64_t wide = least_key(j->dtype);
    const int32_t narrow = (int32_t)wide;
    const void *key = j->loops->key_bytes == 8 ? (const void *)&wide : &narrow;
    j->loops->store(key, 1, 1, y);
}

/* Element `at` of a plane of x into y. */
static void
copy_element(const job *j, const char *x, int64_t at, char *y)
{
    const pool_axis *axis = j->plan->axis;
    const int64_t *by = j->plan->by;
    if (at < 0) {
        store_least(j, y);
        return;
    }
    const int64_t w = at % axis[POOL_W].in, row = at / axis[POOL_W].in;
    const int64_t h = row % axis[POOL_H].in, k = row / axis[POOL_H].in;
    const int64_t bytes = j->loops->bytes;
    memcpy(y, x + (k * by[0] + h * by[1] + w * by[2]) * bytes, (size_t)bytes);
}

static void
store_row(const job *j, const tile *t, int64_t at, int64_t out)
{
    const int64_t step = j->plan->axis[POOL_W].stride, n = t->windows[POOL_W];
    const int64_t bytes = j->loops->bytes;
    if (j->apart > 0) {
        const int64_t planes = j->plan->axis[POOL_W].out;
        const int64_t to = out % planes * j->apart + out / planes;
        j->loops->store_apart(t->keys + at * j->key_bytes, n, t->y + to * bytes,
                              j->apart);
        return;
    }
    if (j->ends_alone) {
        j->loops->store_windows(t->keys + at * j->key_bytes, step, n,
                                t->y + out * bytes);
        return;
    }
    if (!t->indices) {
        j->loops->store(t->keys + at * j->key_bytes, step, n, t->y + out * bytes);
        return;
    }
    const pool_axis *w = &j->plan->axis[POOL_W];
    const int64_t origin = j->is_folded ? out / w->out * w->in : 0; /* of the row */
    if (j->is_packed) {
        char none[8];
        store_least(j, none);
        j->loops->fetch(t->keys + at * 8, t->codes ? t->codes + at * 8 : NULL, step, n,
                        origin, t->x, none, t->y + out * bytes, t->indices + out);
        return;
    }
    for (int64_t o = 0; o < n; o++) {
        const int64_t place = position_of(j, t, at + o * step);
        t->indices[out + o] = place < 0 ? place : place - origin;
        copy_element(j, t->x, place, t->y + (out + o) * bytes);
    }
}

/* ---- windows straight from x ---- */

/*
 * Whether the rows of a window are joined while they are loaded: where few windows share
 * a row that costs less than keys of each row, which passes join.
 */
static bool
is_direct(const job *j)
{
    const max_pool3d_plan *p = j->plan;
    const pool_axis *t = &p->axis[POOL_T], *h = &p->axis[POOL_H];
    const double rows = (double)t->kernel * (double)h->kernel;
    const double times = rows / ((double)t->stride * (double)h->stride);
    if (j->apart > 0) {
        const bool is_half = j->dtype == GPO_F16 || j->dtype == GPO_BF16;
        const double key = is_half ? 2 : 1; /* what a key costs */
        return j->extent[POOL_W] >= CHANNELS && key * times <= CHANNELS_READ;
    }
    return !p->with_indices && p->by[POOL_W] == 1 && rows > 1 &&
           j->extent[POOL_W] >= LONG_ROW && 2 * times <= ROW_READ;
}

/* The keys of the rows of window (o, h) of a tile, joined, from `at` on. */
static void
join_window(const job *j, const tile *t, int64_t o, int64_t h, int64_t at)
{
    const pool_axis *axis = j->plan->axis;
    const int64_t *by = j->plan->by, cols = t->extent[POOL_W];
    const int64_t lo = t->lo[POOL_W], n = t->hi[POOL_W] - lo;
    int64_t first[2], end[2], rows[MOST_ROWS];
    int held = 0;
    bool is_first = true;
    pool_window(&axis[POOL_T], t->begin[POOL_T] + o, &first[0], &end[0]);
    pool_window(&axis[POOL_H], t->begin[POOL_H] + h, &first[1], &end[1]);
    fill_least(j, t, at, lo);
    fill_least(j, t, at + lo + n, cols - lo - n);
    const char *x = t->x + (t->from[POOL_W] + lo) * j->loops->bytes;
    char *keys = t->keys + (at + lo) * j->key_bytes;
    for (int64_t a = first[0]; a < end[0]; a += axis[POOL_T].dilation) {
        for (int64_t b = first[1]; b < end[1]; b += axis[POOL_H].dilation) {
            if (held == MOST_ROWS) {
                j->loops->join_rows(keys, x, rows, n, held, is_first);
                is_first = false;
                held = 0;
            }
            rows[held++] = a * by[POOL_T] + b * by[POOL_H];
        }
    }
    if (held > 0) {
        j->loops->join_rows(keys, x, rows, n, held, is_first);
    }
    else {
        fill_least(j, t, at + lo, n);
    }
}

static void
pool_directly(const job *j, const tile *t)
{
    const pool_axis *axis = j->plan->axis;
    const int64_t cols = t->extent[POOL_W], bytes = j->loops->bytes;
    for (int64_t o = 0; o < t->windows[POOL_T]; o++) {
        const int64_t row =
            (t->begin[POOL_T] + o) * axis[POOL_H].out + t->begin[POOL_H];
        for (int64_t h = 0; h < t->windows[POOL_H]; h++) {
            const int64_t at = j->apart > 0 ? h * cols : 0;
            join_window(j, t, o, h, at);
            if (j->apart == 0) {
                pool_columns(j, t, at, cols);
                store_row(j, t, at, (row + h) * axis[POOL_W].out + t->begin[POOL_W]);
            }
        }
        for (int64_t c = 0; j->apart > 0 && c < cols; c++) { /* to plane after plane */
            j->loops->store(t->keys + c * j->key_bytes, cols, t->windows[POOL_H],
                            t->y + ((t->begin[POOL_W] + c) * j->apart + row) * bytes);
        }
    }
}

/* ---- one tile ---- */

/* Rows [begin, end) of slot `at` are pooled along T: they belong to slice `out`. */
static void
pool_rows(const job *j, const tile *t, int64_t at, int64_t begin, int64_t end,
          int64_t out)
{
    const pool_axis *axis = j->plan->axis;
    const int64_t cols = t->extent[POOL_W], stride = axis[POOL_H].stride;
    const line rows = {.base = at, .unit = cols, .slots = INT64_MAX, .n = cols};
    pool_elements(j, t, POOL_H, &rows, &begin, &end);
    const bool dense = is_dense(&axis[POOL_H], cols);
    if (dense && end > begin) { /* as one row: ends of rows are not used */
        pool_columns(j, t, at + begin * cols, (end - begin) * cols);
    }
    for (int64_t h = ceil_div(begin, stride); h * stride < end; h++) {
        const int64_t row = at + h * stride * cols;
        if (!dense) {
            pool_columns(j, t, row, cols);
        }
        store_row(j, t, row,
                  ((t->begin[0] + out) * axis[POOL_H].out + t->begin[1] + h) *
                          axis[POOL_W].out +
                      t->begin[2]);
    }
}

/* The rows of a tile that go through all passes together. */
static int64_t
strip_of(const job *j)
{
    return most_of(STRIP_KEYS / j->extent[POOL_W], 1);
}

static void
pool_tile(const job *j, const tile *t)
{
    if (j->is_direct) {
        pool_directly(j, t);
        return;
    }
    const int64_t rows = t->extent[POOL_H], cols = t->extent[POOL_W];
    const pool_axis *a = &j->plan->axis[POOL_T];
    const int64_t strip = strip_of(j);
    line slices = {.unit = rows * cols, .slots = j->slots};
    for (int64_t slice = 0, next; slice < t->extent[POOL_T]; slice = next) {
        next = least_of(slice + j->at_once, t->extent[POOL_T]);
        if (j->at_once == 1 && slice % a->stride >= pool_extent(a)) {
            continue; /* between two windows */
        }
        for (int64_t row = 0; row < rows; row += strip) {
            const int64_t last = least_of(row + strip, rows);
            int64_t begin = slice, end = next;
            slices.base = j->is_strip ? 0 : row * cols;
            slices.n = (last - row) * cols;
            for (int64_t k = begin; k < end; k++) {
                load_rows(j, t, k, row, last, place_of(&slices, k));
            }
            pool_elements(j, t, POOL_T, &slices, &begin, &end);
            for (int64_t o = ceil_div(begin, a->stride); o * a->stride < end; o++) {
                const int64_t at = place_of(&slices, o * a->stride) - row * cols;
                pool_rows(j, t, at, row, last, o); /* whose row 0 would be at `at` */
            }
        }
    }
}

#endif
