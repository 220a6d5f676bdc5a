/*
 * cpu.c  dot on the CPU.  Order: elements, the inner loops of three instruction sets,
 * accumulators, one chunk, the variants, choose.
 *
 * The arrays are read once, front to back, in leaves of LEAF_STEPS steps; a step adds
 * one product to each accumulator of ACC_BYTES.  The leaves of a chunk are added
 * pairwise, and so are the chunks.  Leaves and chunks have fixed sizes, so that neither
 * the number of threads nor the instruction set changes a bit of the result.
 */
#include "dot.h"

#include "../../backend/backend.h"
#include "../../core/elements.h"
#include "../../core/gather.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* ---- the inner loops of three instruction sets ---- */

enum {
    ACC_BYTES = 256,       /* of accumulators: 4 registers of 64 bytes */
    GROUP_STEPS = 8,       /* steps added in order */
    LEAF_STEPS = 64,       /* 8 groups, added in order */
    STEP_BYTES = 256,      /* of x per step, at most: see step_bytes */
    CHUNK_BYTES = 1 << 18, /* of x per chunk */
    SHARED_BYTES = 1 << 15 /* the same where threads pay: one may start late */
};

/* to[0..ACC_BYTES) = the accumulators of `steps` steps from x and y on */
typedef void (*leaf)(const void *x, const void *y, int64_t steps, void *to);

#define GPO_LOOPS "../ops/dot/loops.inc"
#include "../../core/each_isa.h"

/*
 * Bytes of x per step.  A dtype with two accumulators per element (the bytes of a
 * 16-bit word, the two products of a part of a complex number) or with accumulators
 * wider than the element (16-bit floats) reads half of ACC_BYTES.
 */
static int64_t
step_bytes(gpo_dtype dtype)
{
    switch (dtype) {
        case GPO_U8:
        case GPO_F16:
        case GPO_BF16:
        case GPO_C64:
        case GPO_C128:
            return STEP_BYTES / 2;
        default:
            return STEP_BYTES;
    }
}

/* ---- accumulators of a leaf, and the state of a chunk ---- */

/* The state of a chunk: an integer modulo 2^64, a double, or a complex number. */
typedef union state {
    uint64_t u;
    double f;
    gpo_c128 c;
} state;

typedef union accs {
    uint8_t u8[ACC_BYTES];
    uint16_t u16[ACC_BYTES / 2];
    uint32_t u32[ACC_BYTES / 4];
    uint64_t u64[ACC_BYTES / 8];
    float f32[ACC_BYTES / 4];
    double f64[ACC_BYTES / 8];
} accs;

#define EACH_LANE(member, operator)                                     \
    for (size_t k = 0; k < sizeof a->member / sizeof *a->member; k++) { \
        a->member[k] operator b->member[k];                             \
    }

/* a = a + b, lane by lane */
static void
add_accs(gpo_dtype dtype, accs *restrict a, const accs *restrict b)
{
    switch (dtype) {
        case GPO_BOOL:
            EACH_LANE(u8, |=)
            return;
        case GPO_U8:
        case GPO_U16:
            EACH_LANE(u16, +=)
            return;
        case GPO_U32:
            EACH_LANE(u32, +=)
            return;
        case GPO_U64:
            EACH_LANE(u64, +=)
            return;
        case GPO_F64:
        case GPO_C128:
            EACH_LANE(f64, +=)
            return;
        default:
            EACH_LANE(f32, +=)
            return;
    }
}

#define WHOLE_LANES(member)                                             \
    for (size_t k = 0; k < sizeof a->member / sizeof *a->member; k++) { \
        s.u += a->member[k];                                            \
    }

/* lane[0] = the sum of n lanes, a power of two, pairwise; n is a constant in each call */
static inline __attribute__((always_inline)) double
add_lanes(double *lane, int n)
{
    for (int half = n / 2; half > 0; half /= 2) {
        for (int k = 0; k < half; k++) {
            lane[k] += lane[k + half];
        }
    }
    return lane[0];
}

/*
 * The sum of all lanes.  A complex leaf alternates two kinds of vectors of `width`
 * bytes: x.re y.re and x.im y.im, then x.re y.im and x.im y.re.
 */
static state
finish_accs(gpo_dtype dtype, int width, const accs *a)
{
    enum { LANES = ACC_BYTES / 4 };
    state s = {.c = {0, 0}};
    double lane[LANES];
    const bool single = dtype != GPO_F64 && dtype != GPO_C128;
    const int n = single ? ACC_BYTES / 4 : ACC_BYTES / 8;
    switch (dtype) {
        case GPO_BOOL:
            for (int k = 0; k < ACC_BYTES; k++) {
                s.u |= a->u8[k];
            }
            return s;
        case GPO_U8: /* only the low byte of a lane matters */
        case GPO_U16:
            WHOLE_LANES(u16)
            return s;
        case GPO_U32:
            WHOLE_LANES(u32)
            return s;
        case GPO_U64:
            WHOLE_LANES(u64)
            return s;
        default:
            break;
    }
    for (int k = 0; k < n; k++) {
        lane[k] = single ? (double)a->f32[k] : a->f64[k];
    }
    if (dtype != GPO_C64 && dtype != GPO_C128) {
        s.f = single ? add_lanes(lane, LANES) : add_lanes(lane, LANES / 2);
        return s;
    }
    const int vector = single ? width / 4 : width / 8;
    double re[LANES / 2], im[LANES / 2];
    for (int k = 0, to = 0; k < n; k += 2 * vector) {
        for (int i = 0; i < vector; i += 2, to++) {
            re[to] = lane[k + i] - lane[k + i + 1];
            im[to] = lane[k + vector + i] + lane[k + vector + i + 1];
        }
    }
    s.c = (gpo_c128){add_lanes(re, n / 4), add_lanes(im, n / 4)};
    return s;
}

/* a + b */
static state
add_states(gpo_dtype dtype, state a, state b)
{
    switch (dtype) {
        case GPO_BOOL:
            return (state){.u = a.u | b.u};
        case GPO_U8:
        case GPO_U16:
        case GPO_U32:
        case GPO_U64:
            return (state){.u = a.u + b.u};
        case GPO_C64:
        case GPO_C128:
            return (state){.c = {a.c.re + b.c.re, a.c.im + b.c.im}};
        default:
            return (state){.f = a.f + b.f};
    }
}

static void
store(gpo_dtype dtype, state s, void *out)
{
    switch (dtype) {
        case GPO_BOOL:
            *(gpo_bool *)out = s.u != 0;
            return;
        case GPO_U8:
            *(uint8_t *)out = (uint8_t)s.u;
            return;
        case GPO_U16:
            *(uint16_t *)out = (uint16_t)s.u;
            return;
        case GPO_U32:
            *(uint32_t *)out = (uint32_t)s.u;
            return;
        case GPO_U64:
            *(uint64_t *)out = s.u;
            return;
        case GPO_F16:
            *(gpo_f16 *)out = f16_of_f64(s.f);
            return;
        case GPO_BF16:
            *(gpo_bf16 *)out = bf16_of_f64(s.f);
            return;
        case GPO_F32:
            *(float *)out = (float)s.f;
            return;
        case GPO_F64:
            *(double *)out = s.f;
            return;
        case GPO_C64:
            *(gpo_c64 *)out = (gpo_c64){(float)s.c.re, (float)s.c.im};
            return;
        default:
            *(gpo_c128 *)out = s.c;
            return;
    }
}

/* ---- one chunk ---- */

typedef struct job {
    dot_plan plan;
    const char *x, *y; /* the first elements */
    gpo_dtype dtype;   /* a carrier: see gpo_unsigned_of */
    int64_t bytes;     /* of an element */
    leaf leaf;
    int width;          /* bytes of a vector of `leaf` */
    int64_t step;       /* elements */
    int64_t chunk;      /* elements */
    int64_t pack_bytes; /* of a packed leaf of x, or of y */
    int64_t done;       /* chunks finished before this loop */
    state *states;      /* one per chunk */
    atomic_bool found;  /* bool: a chunk was true, the result is known */
} job;

/* n elements, contiguous: in place, or packed into `buffer`. */
static const char *
take(const char *from, int64_t n, int64_t stride, int64_t bytes, char *buffer)
{
    if (stride == 1) {
        return from;
    }
    gather(buffer, from, n, stride, bytes);
    return buffer;
}

enum {
    LEAF_BYTES = LEAF_STEPS * STEP_BYTES,
    LEVELS = 7, /* log2(CHUNK_BYTES / (LEAF_BYTES / 2)) + 2 */
};
_Static_assert(1 << (LEVELS - 2) == CHUNK_BYTES / (LEAF_BYTES / 2), "see LEVELS");

/*
 * The accumulators of m contiguous elements, m in [1, a leaf].  The groups of whole
 * steps are read in place, the rest from a copy that zeros fill up.
 */
static void
leaf_of(const job *j, const char *x, const char *y, int64_t m, accs *to)
{
    const int64_t rest = m % j->step == 0 ? 0 : m % (GROUP_STEPS * j->step);
    if (rest == 0 || m > rest) {
        j->leaf(x, y, (m - rest) / j->step, to);
    }
    if (rest > 0) {
        char rest_x[GROUP_STEPS * STEP_BYTES], rest_y[GROUP_STEPS * STEP_BYTES];
        const int64_t steps = (rest + j->step - 1) / j->step;
        const size_t used = (size_t)(rest * j->bytes);
        const size_t all = (size_t)(steps * j->step * j->bytes);
        accs last;
        memcpy(rest_x, x + (m - rest) * j->bytes, used);
        memcpy(rest_y, y + (m - rest) * j->bytes, used);
        memset(rest_x + used, 0, all - used);
        memset(rest_y + used, 0, all - used);
        j->leaf(rest_x, rest_y, steps, m > rest ? &last : to);
        if (m > rest) {
            add_accs(j->dtype, to, &last);
        }
    }
}

/* The state of the n elements from `first` on, n in [1, chunk]. */
static state
fold_chunk(const job *j, int64_t first, int64_t n, void *memory)
{
    accs *nodes = memory;
    char *pack_x = (char *)(nodes + LEVELS), *pack_y = pack_x + j->pack_bytes;
    const int64_t bytes = j->bytes, x_stride = j->plan.x_stride;
    const int64_t y_stride = j->plan.y_stride, whole = LEAF_STEPS * j->step;
    const char *at_x = j->x + first * x_stride * bytes;
    const char *at_y = j->y + first * y_stride * bytes;
    memset(nodes, 0, sizeof *nodes); /* for the analyzer, which does not know n > 0 */
    int depth = 0;
    for (int64_t leaves = 0; n > 0; leaves++) {
        const int64_t m = n < whole ? n : whole;
        const char *x = take(at_x, m, x_stride, bytes, pack_x);
        const char *y = take(at_y, m, y_stride, bytes, pack_y);
        leaf_of(j, x, y, m, &nodes[depth++]);
        if (j->dtype == GPO_BOOL) {
            const state s = finish_accs(j->dtype, j->width, &nodes[depth - 1]);
            if (s.u != 0) {
                return s;
            }
        }
        for (int64_t k = leaves; k & 1; k >>= 1) { /* equal halves are added first */
            depth--;
            add_accs(j->dtype, &nodes[depth - 1], &nodes[depth]);
        }
        at_x += m * x_stride * bytes;
        at_y += m * y_stride * bytes;
        n -= m;
    }
    for (; depth > 1; depth--) {
        add_accs(j->dtype, &nodes[depth - 2], &nodes[depth - 1]);
    }
    return finish_accs(j->dtype, j->width, nodes);
}

static void
run_chunk(void *context, int64_t i, void *memory)
{
    job *j = context;
    i += j->done;
    const int64_t first = i * j->chunk, left = j->plan.n - first;
    if (j->dtype == GPO_BOOL && atomic_load_explicit(&j->found, memory_order_relaxed)) {
        j->states[i].u = 0;
        return;
    }
    j->states[i] = fold_chunk(j, first, left < j->chunk ? left : j->chunk, memory);
    if (j->dtype == GPO_BOOL && j->states[i].u != 0) {
        atomic_store_explicit(&j->found, true, memory_order_relaxed);
    }
}

/* ---- the variants ---- */

/* Bytes of both arrays from which threads pay off, and that L2 may hold. */
enum { PAYS = 1 << 19, CACHED = 1 << 20 };

/*
 * Whether vectors of 64 bytes are faster than of 32 in L1 and L2, though arrays are seldom
 * aligned to 64 and most loads touch two lines: on Intel's processors.
 */
static bool
wide_pays_in_cache(void)
{
#ifdef __x86_64__
    return __builtin_cpu_is("intel");
#else
    return true;
#endif
}

static gpo_status
run(gpo_call *call, bool parallel)
{
    static const leaf *const leaves[GPO_NISA] = GPO_EACH_ISA(leaves);
    static const int widths[GPO_NISA] = {16, 32, 64};
    job j = {.plan = *dot_plan_of(call)};
    j.dtype = gpo_unsigned_of(call->in[0].dtype);
    gpo_isa isa = gpo_cpu_isa();
    j.bytes = gpo_dtypes[j.dtype].bytes;
    const bool in_cache = j.plan.n < CACHED / 2 / j.bytes;
    if (isa == GPO_ISA_V4 && in_cache && !wide_pays_in_cache() &&
        (j.dtype == GPO_F32 || j.dtype == GPO_F64)) {
        isa = GPO_ISA_V3;
    }
    j.x = (const char *)call->in[0].data + j.plan.x_first * j.bytes;
    j.y = (const char *)call->in[1].data + j.plan.y_first * j.bytes;
    j.leaf = leaves[isa][j.dtype];
    j.width = leaves[isa] == leaves_base ? 16 : widths[isa];
    j.step = step_bytes(j.dtype) / j.bytes;
    j.chunk = (j.plan.n >= PAYS / 2 / j.bytes ? SHARED_BYTES : CHUNK_BYTES) / j.bytes;
    atomic_init(&j.found, false);
    state alone = {.c = {0, 0}};
    const int64_t chunks = (j.plan.n + j.chunk - 1) / j.chunk;
    j.states = &alone;
    if (chunks > 1) {
        void *memory = NULL;
        gpo_status status = gpo_scratch(call, (size_t)chunks * sizeof(state), &memory);
        if (status) {
            return status;
        }
        j.states = memory;
    }
    const int64_t leaf_steps = (j.plan.n + j.step - 1) / j.step;
    const bool packed = j.plan.x_stride != 1 || j.plan.y_stride != 1;
    j.pack_bytes =
        packed ? (leaf_steps < LEAF_STEPS ? leaf_steps : LEAF_STEPS) * j.step * j.bytes
               : 0;
    const size_t each = LEVELS * sizeof(accs) + 2 * (size_t)j.pack_bytes;
    gpo_status status = GPO_OK;
    j.done = 0;
    if (j.dtype == GPO_BOOL && chunks > 0) { /* the first chunk often decides */
        status = gpo_cpu_work(call, false, 1, each, run_chunk, &j);
        j.done = 1;
    }
    const bool pays = parallel && !j.found && j.plan.n >= PAYS / 2 / j.bytes;
    if (!status && j.done < chunks) {
        status = gpo_cpu_work(call, pays, chunks - j.done, each, run_chunk, &j);
    }
    if (status) {
        return status;
    }
    for (int64_t step = 1; step < chunks; step *= 2) {
        for (int64_t k = 0; k + step < chunks; k += 2 * step) {
            j.states[k] = add_states(j.dtype, j.states[k], j.states[k + step]);
        }
    }
    store(j.dtype, j.states[0], call->out[0].data);
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

/* ---- scalar: one element after the other ---- */

enum { PLAIN = 16 }; /* products added in order */

#define KEEP(x) (x)

/* s = the sum of n products, n in [1, PLAIN] */
#define DEFINE_PLAIN(dtype, A, LOAD, member)                                \
    static void plain_##dtype(const void *x, const void *y, int64_t n,      \
                              int64_t x_stride, int64_t y_stride, state *s) \
    {                                                                       \
        const T_##dtype *p = x, *q = y;                                     \
        A sum = 0;                                                          \
        for (int64_t k = 0; k < n; k++) {                                   \
            sum += (A)LOAD(p[k * x_stride]) * (A)LOAD(q[k * y_stride]);     \
        }                                                                   \
        s->member = sum;                                                    \
    }
#define DEFINE_PLAIN_COMPLEX(dtype, R)                                       \
    static void plain_##dtype(const void *x, const void *y, int64_t n,       \
                              int64_t x_stride, int64_t y_stride, state *s)  \
    {                                                                        \
        const T_##dtype *p = x, *q = y;                                      \
        R rr = 0, ii = 0, ri = 0, ir = 0;                                    \
        for (int64_t k = 0; k < n; k++) {                                    \
            const T_##dtype a = p[k * x_stride], b = q[k * y_stride];        \
            rr += a.re * b.re;                                               \
            ii += a.im * b.im;                                               \
            ri += a.re * b.im;                                               \
            ir += a.im * b.re;                                               \
        }                                                                    \
        s->c = (gpo_c128){(double)rr - (double)ii, (double)ri + (double)ir}; \
    }

#define TRUTH(x) ((x) != 0)

DEFINE_PLAIN(BOOL, uint64_t, TRUTH, u)
DEFINE_PLAIN(U8, uint64_t, KEEP, u)
DEFINE_PLAIN(U16, uint64_t, KEEP, u)
DEFINE_PLAIN(U32, uint64_t, KEEP, u)
DEFINE_PLAIN(U64, uint64_t, KEEP, u)
DEFINE_PLAIN(F16, float, float_of_f16, f)
DEFINE_PLAIN(BF16, float, float_of_bf16, f)
DEFINE_PLAIN(F32, float, KEEP, f)
DEFINE_PLAIN(F64, double, KEEP, f)
DEFINE_PLAIN_COMPLEX(C64, float)
DEFINE_PLAIN_COMPLEX(C128, double)

typedef void (*plain_loop)(const void *x, const void *y, int64_t n, int64_t x_stride,
                           int64_t y_stride, state *s);

static gpo_status
run_scalar(gpo_call *call)
{
#define PLAIN_ROW(dtype) [GPO_##dtype] = plain_##dtype
    static const plain_loop plain[GPO_NDTYPES] = {
        PLAIN_ROW(BOOL), PLAIN_ROW(U8),  PLAIN_ROW(U16),  PLAIN_ROW(U32),
        PLAIN_ROW(U64),  PLAIN_ROW(F16), PLAIN_ROW(BF16), PLAIN_ROW(F32),
        PLAIN_ROW(F64),  PLAIN_ROW(C64), PLAIN_ROW(C128),
    };
    const gpo_dtype dtype = gpo_unsigned_of(call->in[0].dtype);
    const int64_t bytes = gpo_dtypes[dtype].bytes;
    const dot_plan plan = *dot_plan_of(call);
    const char *x = (const char *)call->in[0].data + plan.x_first * bytes;
    const char *y = (const char *)call->in[1].data + plan.y_first * bytes;
    state nodes[64] = {{.c = {0, 0}}};
    int depth = 0;
    for (int64_t groups = 0, n = plan.n; n > 0; groups++) {
        const int64_t m = n < PLAIN ? n : PLAIN;
        plain[dtype](x, y, m, plan.x_stride, plan.y_stride, &nodes[depth++]);
        if (dtype == GPO_BOOL && nodes[depth - 1].u != 0) {
            break;
        }
        for (int64_t k = groups; k & 1; k >>= 1) {
            depth--;
            nodes[depth - 1] = add_states(dtype, nodes[depth - 1], nodes[depth]);
        }
        x += m * plan.x_stride * bytes;
        y += m * plan.y_stride * bytes;
        n -= m;
    }
    for (; depth > 1; depth--) {
        nodes[depth - 2] = add_states(dtype, nodes[depth - 2], nodes[depth - 1]);
    }
    store(dtype, nodes[0], call->out[0].data);
    return GPO_OK;
}

/* ---- choose ---- */

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one product after the other, in groups of 16",
                        "",
                        "run-to-run",
                        {GPO_EVERY_DTYPE(run_scalar)}},
    [GPO_CPU_SIMD] = {"simd",
                      "256 bytes of accumulators in vector registers, leaves pairwise",
                      "",
                      "run-to-run",
                      {GPO_EVERY_DTYPE(run_simd)}},
    [GPO_CPU_THREADS] = {"threads",
                         "simd on chunks of fixed size, shared out among threads",
                         "",
                         "run-to-run",
                         {GPO_EVERY_DTYPE(run_threads)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const gpo_array *x = &call->in[0];
    return gpo_cpu_choose(
        variants, x->size >= PAYS / 2 / gpo_dtypes[x->dtype].bytes,
        "under 256 KiB of input starting threads costs more than they save",
        "from 256 KiB of input on several threads pay", why);
}

const gpo_table dot_cpu = {variants, choose};
