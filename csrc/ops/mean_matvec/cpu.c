/*
 * cpu.c  mean_matvec on the CPU.  Order: the inner loops of three instruction sets, the
 * job, elements of one dtype, means, the product, the variants, choose.
 *
 * The means come first, one task per group of rows; they are stored in tiles of
 * batches, row by row, so that the product reads them contiguously.  Then comes the
 * product, a tile of batches and a block of outputs per task.  Where x has few rows, a
 * task computes means and multiplies them while they are in its cache.
 */
#include "elements.h"

#include "../../backend/backend.h"
#include "../../core/gather.h"
#include "../../core/integers.h"
#include "../../core/prefetch.h"

#include <math.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    LANES = 32,            /* partial sums of a piece of a row */
    FEW = 8,               /* elements of a row that are added one by one */
    PIECE = 256,           /* elements added before the sum is widened */
    TILE_BYTES = 128,      /* means of one row of x, for one tile of batches, or half */
    DOT_BYTES = 64,        /* partial sums of a product with one batch */
    OUTPUTS_AT_ONCE = 8,   /* rows of the matrix that share loads of the means */
    OUTPUTS = 64,          /* per task, at most */
    TASK_SUMS = 128,       /* outputs by tiles of batches, per task: 16 KiB */
    LEAST_TASKS = 8,       /* of a loop, if there is enough work */
    DEPTH = 128,           /* rows of x whose means stay in L1: 16 KiB */
    ALIASED = 512,         /* bytes; rows this multiple apart compete for lines of L1 */
    TERMS_ALONE = 16,      /* for each batch, from which on it is multiplied alone */
    SHORT = 64,            /* rows of x, up to which storing results costs the most */
    GROUP_BYTES = 1 << 17, /* of x per task */
    JOINED = 64,           /* outputs, up to which means are multiplied in their task */
    JOINED_BYTES = 1 << 16, /* of means of such a task */
};

/* The last so many of the lanes of a product: from keep + count on. */
typedef int32_t lane_float;
typedef int64_t lane_double;
static const int32_t keep_float[32] = {[16] = -1, -1, -1, -1, -1, -1, -1, -1,
                                       -1,        -1, -1, -1, -1, -1, -1, -1};
static const int64_t keep_double[16] = {[8] = -1, -1, -1, -1, -1, -1, -1, -1};

typedef struct loops {
    /* see piece.inc */
    double (*piece)(const void *x, int64_t n);
    void (*means)(const void *x, int64_t stride, int64_t rows, int64_t n, void *to,
                  int64_t apart);
    /* see product.inc */
    void (*product)(const void *rows, int64_t pitch, int count, const void *means,
                    int64_t n, void *acc, int64_t tile_bytes, int64_t columns,
                    const void *ahead, int64_t apart);
    void (*dot)(const void *rows, int64_t pitch, int count, const void *means,
                int64_t apart, int64_t batches, int64_t n, void *to, int64_t step);
    void (*widen)(const void *from, int64_t n, float *to); /* of 16-bit floats */
} loops;

/* ---- the inner loops of three instruction sets ---- */

#define GPO_LOOPS "../ops/mean_matvec/loops.inc"
#include "../../core/each_isa.h"

/* ---- the job: what every part of one call reads ---- */

typedef struct job {
    const mean_matvec_plan *plan;
    const char *x, *matrix;
    char *out;
    const loops *loops;
    gpo_dtype dtype;
    bool parallel;
    int64_t bytes, value_bytes; /* of an element, of a computed value */
    bool is_alone;              /* each batch is multiplied alone */
    bool by_output;             /* tasks go through all tiles of a block of outputs */
    int64_t tile;               /* batches whose means of a row lie side by side */
    int64_t columns, tiles;     /* batches per task, and groups of as many */
    int64_t group;              /* rows of x per task */
    int64_t outputs, blocks;    /* per task, and blocks of as many */
    int64_t at_once, sets;      /* tiles per task, and sets of as many */
    bool is_aliased;            /* rows of the matrix are copied before use */
    char *means;                /* tiles x rows x tile */
    const char *values;         /* of the matrix; row i starts at i * pitch values */
    char *packed;               /* where they are packed, if they need to be */
    int64_t pitch;
} job;

/* ---- elements of one dtype: pack_F16, put_F16, scalar_F16, ... ---- */

#define DTYPE F16
#define VALUE float
#include "elements.inc"

#define DTYPE BF16
#define VALUE float
#include "elements.inc"

#define DTYPE F32
#define VALUE float
#include "elements.inc"

#define DTYPE F64
#define VALUE double
#include "elements.inc"

/* ---- means ---- */

/* The sum of up to PIECE elements of a row that are apart. */
static double
gathered_sum(const job *j, const char *x, int64_t n)
{
    _Alignas(64) char buffer[PIECE * sizeof(double)];
    gather(buffer, x, n, j->plan->x_col, j->bytes);
    return j->loops->piece(buffer, n);
}

/* The mean of a row whose elements are apart. */
static double
row_mean(const job *j, const char *x)
{
    const mean_matvec_plan *p = j->plan;
    long_sum sum = {0, 0};
    for (int64_t k = 0; k < p->cols; k += PIECE) {
        const int64_t n = p->cols - k < PIECE ? p->cols - k : PIECE;
        long_sum_add(&sum, gathered_sum(j, x + k * p->x_col * j->bytes, n));
    }
    return long_sum_value(&sum) / (double)p->cols;
}

/* The means of `count` rows of batch n from row l on, `apart` values apart, to `to`. */
static void
row_means(const job *j, int64_t n, int64_t l, int64_t count, char *to, int64_t apart)
{
    const mean_matvec_plan *p = j->plan;
    const char *x = j->x + (n * p->x_batch + l * p->x_row) * j->bytes;
    if (p->x_col == 1 && p->cols > 0) {
        j->loops->means(x, p->x_row, count, p->cols, to, apart);
        return;
    }
    for (int64_t r = 0; r < count; r++) {
        const double mean = row_mean(j, x + r * p->x_row * j->bytes);
        if (j->dtype == GPO_F64) {
            ((double *)to)[r * apart] = mean;
        }
        else {
            ((float *)to)[r * apart] = (float)mean;
        }
    }
}

/*
 * Task i: the means of a group of rows, counted through all batches.  They are stored
 * by batch if each is multiplied alone, else row by row in tiles of batches.
 */
static void
mean_group(void *context, int64_t i)
{
    const job *j = context;
    const mean_matvec_plan *p = j->plan;
    const int64_t first = i * j->group, all = p->batches * p->rows;
    const int64_t end = all - first < j->group ? all : first + j->group;
    int64_t n = first / p->rows, l = first % p->rows;
    for (int64_t r = first; r < end;) {
        const int64_t left = p->rows - l, count = left < end - r ? left : end - r;
        const int64_t at = (n / j->tile * p->rows + l) * j->tile + n % j->tile;
        row_means(j, n, l, count, j->means + at * j->value_bytes, j->tile);
        r += count;
        l = 0;
        n++;
    }
}

/* ---- the product ---- */

/* Task i: packs row i of the matrix as contiguous values. */
static void
pack_row(void *context, int64_t i)
{
    const job *j = context;
    switch (j->dtype) {
        case GPO_F16:
            pack_F16(j, i);
            return;
        case GPO_BF16:
            pack_BF16(j, i);
            return;
        case GPO_F32:
            pack_F32(j, i);
            return;
        default:
            pack_F64(j, i);
            return;
    }
}

/* Value k of row `output` of the matrix. */
static const char *
values_at(const job *j, int64_t output, int64_t k)
{
    return j->values + (output * j->pitch + k) * j->value_bytes;
}

/* Copies n values of each of `count` rows to `to`, DEPTH and a line apart. */
static void
copy_rows(const job *j, const char *from, int64_t count, int64_t n, char *to)
{
    for (int64_t q = 0; q < count; q++) {
        memcpy(to + q * (DEPTH * j->value_bytes + TILE_BYTES / 2),
               from + q * j->pitch * j->value_bytes, (size_t)(n * j->value_bytes));
    }
}

/*
 * Tiles of batches, from `tile` on, whose means begin at `means`, times `outputs` outputs
 * from `output` on; the sums of tile t begin at t * j->outputs rows of `acc`.  Rows of
 * the matrix stay in L1 for all tiles.  Not inlined: its copy would make the frame of
 * the task too large.
 */
static __attribute__((noinline)) void
multiply_tiles(const job *j, const char *means, int64_t tile, int64_t tiles,
               int64_t output, int64_t outputs, char *acc)
{
    const int64_t l = j->plan->rows, row_bytes = j->columns * j->value_bytes;
    const int64_t batches = j->plan->batches - tile * j->columns;
    const int64_t apart = DEPTH + TILE_BYTES / 2 / j->value_bytes;
    _Alignas(64) char copy[OUTPUTS_AT_ONCE * (DEPTH * sizeof(double) + TILE_BYTES / 2)];
    memset(acc, 0, (size_t)(tiles * j->outputs * row_bytes));
    for (int64_t k = 0; k < l; k += DEPTH) {
        const int64_t n = l - k < DEPTH ? l - k : DEPTH;
        for (int64_t r = 0; r < outputs; r += OUTPUTS_AT_ONCE) {
            const int64_t left = outputs - r;
            const int64_t count = left < OUTPUTS_AT_ONCE ? left : OUTPUTS_AT_ONCE;
            const char *rows = values_at(j, output + r, k);
            const char *ahead = rows + DEPTH * j->value_bytes; /* their next terms */
            if (j->is_aliased) {
                copy_rows(j, rows, count, n, copy);
                rows = copy;
            }
            for (int64_t t = 0; t < tiles; t++) {
                j->loops->product(rows, j->is_aliased ? apart : j->pitch, (int)count,
                                  means + (t * l + k) * row_bytes, n,
                                  acc + (t * j->outputs + r) * row_bytes, row_bytes,
                                  batches - t * j->columns, ahead,
                                  j->pitch * j->value_bytes);
            }
        }
    }
}

/* All batches, each alone, times `outputs` outputs from `output` on. */
static void
multiply_alone(const job *j, int64_t output, int64_t outputs, char *acc)
{
    const mean_matvec_plan *p = j->plan;
    for (int64_t r = 0; r < outputs; r += OUTPUTS_AT_ONCE) {
        const int64_t left = outputs - r;
        const int64_t count = left < OUTPUTS_AT_ONCE ? left : OUTPUTS_AT_ONCE;
        j->loops->dot(values_at(j, output + r, 0), j->pitch, (int)count, j->means,
                      p->rows, p->batches, p->rows,
                      acc + r * j->columns * j->value_bytes, j->columns);
    }
}

/* Stores the sums of a tile. */
static void
put(const job *j, const char *acc, int64_t output, int64_t outputs, int64_t tile)
{
    const int64_t batch = tile * j->columns, left = j->plan->batches - batch;
    const int64_t batches = left < j->columns ? left : j->columns;
    switch (j->dtype) {
        case GPO_F16:
            put_F16(j, acc, output, outputs, batch, batches);
            return;
        case GPO_BF16:
            put_BF16(j, acc, output, outputs, batch, batches);
            return;
        case GPO_F32:
            put_F32(j, acc, output, outputs, batch, batches);
            return;
        default:
            put_F64(j, acc, output, outputs, batch, batches);
            return;
    }
}

/* Task i: a set of tiles of batches times a block of outputs. */
static void
product_block(void *context, int64_t i)
{
    const job *j = context;
    const mean_matvec_plan *p = j->plan;
    const int64_t set = j->by_output ? i % j->sets : i / j->blocks;
    const int64_t block = j->by_output ? i / j->sets : i % j->blocks;
    const int64_t tile = set * j->at_once, output = block * j->outputs;
    const int64_t left = j->tiles - tile, more = p->outputs - output;
    const int64_t tiles = left < j->at_once ? left : j->at_once;
    const int64_t outputs = more < j->outputs ? more : j->outputs;
    const int64_t tile_bytes = j->columns * j->value_bytes;
    _Alignas(64) char acc[TASK_SUMS * TILE_BYTES];
    if (j->is_alone) {
        multiply_alone(j, output, outputs, acc);
    }
    else {
        multiply_tiles(j, j->means + tile * p->rows * tile_bytes, tile, tiles, output,
                       outputs, acc);
    }
    for (int64_t t = 0; t < tiles; t++) {
        put(j, acc + t * j->outputs * tile_bytes, output, outputs, tile + t);
    }
}

/*
 * Task i: the means of a set of tiles of batches, which stay in the cache, times all
 * outputs.
 */
static void
means_and_product(void *context, int64_t i, void *memory)
{
    const job *j = context;
    const mean_matvec_plan *p = j->plan;
    const int64_t tile = i * j->at_once, more = j->tiles - tile;
    const int64_t tiles = more < j->at_once ? more : j->at_once;
    const int64_t tile_bytes = j->columns * j->value_bytes;
    const int64_t first = tile * j->columns, left = p->batches - first;
    const int64_t batches = left < tiles * j->columns ? left : tiles * j->columns;
    char *means = memory;
    _Alignas(64) char acc[TASK_SUMS * TILE_BYTES];
    if (batches < tiles * j->columns) {
        memset(means + (tiles - 1) * p->rows * tile_bytes, 0,
               (size_t)(p->rows * tile_bytes));
    }
    for (int64_t n = 0; n < batches && p->rows > 0; n++) {
        const int64_t at = n / j->columns * p->rows * j->columns + n % j->columns;
        row_means(j, first + n, 0, p->rows, means + at * j->value_bytes, j->columns);
    }
    for (int64_t output = 0; output < p->outputs; output += j->outputs) {
        const int64_t rest = p->outputs - output;
        const int64_t outputs = rest < j->outputs ? rest : j->outputs;
        multiply_tiles(j, means, tile, tiles, output, outputs, acc);
        for (int64_t t = 0; t < tiles; t++) {
            put(j, acc + t * j->outputs * tile_bytes, output, outputs, tile + t);
        }
    }
}

/*
 * How many tiles a task multiplies with a block of outputs: each task reads its rows of
 * the matrix and the means of its tiles once, so the fewest bytes count.
 */
static void
choose_sets(job *j)
{
    const mean_matvec_plan *p = j->plan;
    double least = HUGE_VAL;
    for (int64_t at_once = 1; at_once <= TASK_SUMS / OUTPUTS_AT_ONCE; at_once *= 2) {
        const int64_t share = TASK_SUMS / at_once;
        const int64_t outputs = share < OUTPUTS ? share : OUTPUTS;
        const int64_t sets = ceil_div(j->tiles, at_once);
        const int64_t blocks = ceil_div(p->outputs, outputs);
        const double read = (double)sets * (double)p->outputs +
                            (double)blocks * (double)(j->tiles * j->columns);
        if (at_once == 1 || (read < least && sets * blocks >= LEAST_TASKS)) {
            least = read;
            j->at_once = at_once;
            j->outputs = outputs;
        }
    }
}

/*
 * How many tiles of few terms a task takes: the more, the longer are the pieces of rows of
 * the result that it writes.
 */
static void
choose_joined(job *j)
{
    const int64_t tile_bytes = j->columns * j->value_bytes * j->plan->rows;
    j->at_once = 1;
    while (2 * j->at_once <= TASK_SUMS / OUTPUTS_AT_ONCE &&
           2 * j->at_once * tile_bytes <= JOINED_BYTES &&
           j->tiles >= 2 * j->at_once * LEAST_TASKS) {
        j->at_once *= 2;
    }
}

/* ---- the variants ---- */

static gpo_status
run(gpo_call *call, bool parallel)
{
    static const loops *const tables[GPO_NISA] = GPO_EACH_ISA(table);
    const mean_matvec_plan *p = mean_matvec_plan_of(call);
    job j = {.plan = p,
             .x = call->in[0].data,
             .matrix = call->in[1].data,
             .out = call->out[0].data,
             .dtype = call->in[0].dtype,
             .parallel = parallel};
    if (p->batches == 0 || p->outputs == 0) {
        return GPO_OK;
    }
    j.loops = &tables[gpo_cpu_isa()][j.dtype];
    j.bytes = gpo_dtypes[j.dtype].bytes;
    j.value_bytes = j.dtype == GPO_F64 ? sizeof(double) : sizeof(float);
    const int64_t half = TILE_BYTES / 2 / j.value_bytes;
    /* In a tile most columns would be padding, which for few terms costs less than lanes. */
    j.is_alone = p->batches <= half / 2 && p->rows > TERMS_ALONE * p->batches;
    j.columns = j.is_alone ? p->batches : p->batches <= half ? half : 2 * half;
    j.tile = j.is_alone ? 1 : j.columns;
    j.tiles = ceil_div(p->batches, j.columns);
    const int64_t most = GROUP_BYTES / ((p->cols + 1) * j.bytes) + 1;
    const int64_t share = ceil_div(p->batches * p->rows, LEAST_TASKS);
    j.group = share < most && share > 0 ? share : most;
    /* After few terms the result costs the most: it is written in few streams. */
    const bool is_short = !j.is_alone && p->rows <= SHORT;
    j.at_once = 1;
    j.outputs = is_short ? OUTPUTS_AT_ONCE : OUTPUTS;
    const bool is_joined = is_short && j.tiles >= LEAST_TASKS && p->outputs <= JOINED;
    if (is_joined) {
        choose_joined(&j);
    }
    else if (!is_short) {
        choose_sets(&j);
    }
    j.sets = ceil_div(j.tiles, j.at_once);
    while (!is_joined && j.outputs > OUTPUTS_AT_ONCE &&
           j.sets * ceil_div(p->outputs, j.outputs) < LEAST_TASKS) {
        j.outputs /= 2; /* few batches: the outputs are shared */
    }
    j.blocks = ceil_div(p->outputs, j.outputs);
    /* Else the factor that is read once is the one whose repetition costs more. */
    j.by_output = is_short || (double)j.blocks * (double)p->batches <
                                  (double)j.sets * (double)p->outputs;

    const bool in_place = p->matrix_row == 1 && j.bytes == j.value_bytes;
    const size_t tile_bytes = (size_t)(p->rows * j.columns * j.value_bytes);
    const size_t means_bytes = is_joined ? 0 : (size_t)j.tiles * tile_bytes;
    const size_t matrix_bytes =
        in_place ? 0 : (size_t)(p->outputs * p->rows * j.value_bytes);
    if (means_bytes + matrix_bytes > 0) {
        void *memory = NULL;
        gpo_status status = gpo_scratch(call, means_bytes + matrix_bytes, &memory);
        if (status) {
            return status;
        }
        j.means = memory;
        j.packed = j.means + means_bytes;
    }
    j.values = in_place ? j.matrix : j.packed;
    j.pitch = in_place ? p->matrix_output : p->rows;
    j.is_aliased = j.pitch * j.value_bytes % ALIASED == 0;
    if (!in_place && p->rows > 0) {
        gpo_cpu_loop(j.parallel, p->outputs, pack_row, &j);
    }
    if (is_joined) {
        return gpo_cpu_work(call, j.parallel, j.sets, (size_t)j.at_once * tile_bytes,
                            means_and_product, &j);
    }
    if (p->rows > 0) {
        if (j.means && p->batches % j.columns != 0) { /* columns that have no batch */
            memset(j.means + means_bytes - tile_bytes, 0, tile_bytes);
        }
        gpo_cpu_loop(j.parallel, ceil_div(p->batches * p->rows, j.group), mean_group,
                     &j);
    }
    gpo_cpu_loop(j.parallel, j.sets * j.blocks, product_block, &j);
    return GPO_OK;
}

static gpo_status
run_simd(gpo_call *call)
{
    return run(call, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run(call, true);
}

/* ---- choose ---- */

#define RUNS(run)                                                           \
    {                                                                       \
        [GPO_F16] = run, [GPO_BF16] = run, [GPO_F32] = run, [GPO_F64] = run \
    }

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one element after the other, a batch at a time",
                        "",
                        "run-to-run",
                        {[GPO_F16] = scalar_F16,
                         [GPO_BF16] = scalar_BF16,
                         [GPO_F32] = scalar_F32,
                         [GPO_F64] = scalar_F64}},
    [GPO_CPU_SIMD] =
        {"simd", "rows in 32 lanes; eight outputs by a tile of batches in registers",
         "", "run-to-run", RUNS(run_simd)},
    [GPO_CPU_THREADS] = {"threads",
                         "simd on groups of rows, then on blocks of the result", "",
                         "run-to-run", RUNS(run_threads)},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    enum { PAYS_BYTES = 1 << 18, PAYS_TERMS = 1 << 20 };
    const gpo_array *x = &call->in[0];
    const double terms = (double)call->out[0].size * (double)x->shape[1];
    const bool pays =
        x->size >= PAYS_BYTES / gpo_dtypes[x->dtype].bytes || terms >= PAYS_TERMS;
    return gpo_cpu_choose(variants, pays,
                          "under 256 KiB of x, and a product under 2^20 terms, "
                          "starting threads costs more than it saves",
                          "the work is enough for several threads", why);
}

const gpo_table mean_matvec_cpu = {variants, choose};
