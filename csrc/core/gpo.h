/*
 * gpo.h  The types that every part of gpuopt shares.
 * Order: status, dtypes, errors, arrays, options, variants, operators, the call,
 * helpers.
 * See bind/ for Python, backend/ for memory and streams, ops/ and device/ for kernels.
 */
#ifndef GPO_H
#define GPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gpo_op gpo_op;
typedef struct gpo_call gpo_call;
typedef struct gpo_backend gpo_backend;

enum {
    GPO_MAX_DIMS = 64, /* NumPy 2's own limit */
    GPO_MAX_IN = 5,
    GPO_MAX_OUT = 3,
    GPO_MAX_ARGS = 12,
    GPO_MESSAGE = 512,
};

/* ---- status: what went wrong; bind/ turns each into one exception class ---- */

typedef enum gpo_status {
    GPO_OK = 0,
    GPO_EVALUE,       /* ValueError */
    GPO_ETYPE,        /* TypeError */
    GPO_EAXIS,        /* numpy.exceptions.AxisError */
    GPO_EINDEX,       /* IndexError */
    GPO_EMEMORY,      /* MemoryError: host memory */
    GPO_EDEVMEMORY,   /* gpuopt.OutOfMemoryError: device memory */
    GPO_EVARIANT,     /* gpuopt.VariantError */
    GPO_EUNSUPPORTED, /* NotImplementedError */
    GPO_ECUDA,        /* gpuopt.CudaError */
    GPO_EDEAD,        /* gpuopt.ContextDeadError */
    GPO_ESIM,         /* gpuopt.SimulatorError: a fault found in a kernel */
} gpo_status;

/* ---- dtypes ---- */

typedef uint8_t gpo_bool;
typedef struct {
    uint16_t bits;
} gpo_f16;
typedef struct {
    uint16_t bits;
} gpo_bf16;
typedef struct {
    float re, im;
} gpo_c64;
typedef struct {
    double re, im;
} gpo_c128;

typedef enum gpo_dtype {
#define GPO_DTYPE(suffix, type, name, bytes, kind) GPO_##suffix,
#include "dtypes.def"
#undef GPO_DTYPE
    GPO_NDTYPES,
    GPO_NONE = GPO_NDTYPES, /* "not given" where a dtype is optional */
} gpo_dtype;

typedef struct gpo_dtype_info {
    const char *name;
    int bytes;
    char kind;
} gpo_dtype_info;

extern const gpo_dtype_info gpo_dtypes[GPO_NDTYPES];

/* ---- errors ---- */

/* The description of a failure; a status beside a field: only that status sets it. */
typedef struct gpo_error {
    char message[GPO_MESSAGE]; /* one sentence; set by gpo_fail */
    int code;                  /* GPO_ECUDA: the runtime's code, and where */
    const char *api, *kernel;  /* NULL where unknown; static storage */
    size_t requested_bytes, free_bytes, total_bytes; /* GPO_EDEVMEMORY */
} gpo_error;

/* Sets the message, printf style, and returns `status` for `return gpo_fail(...)`. */
#ifdef __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
gpo_status
gpo_fail(gpo_error *error, gpo_status status, const char *format, ...);

/* ---- arrays: a view of memory somebody else owns ---- */

typedef struct gpo_array {
    void *data; /* address of element (0, 0, ...) */
    gpo_dtype dtype;
    int ndim;
    int64_t size; /* product of shape */
    int64_t shape[GPO_MAX_DIMS];
    int64_t strides[GPO_MAX_DIMS]; /* in elements; may be 0 or negative */
    bool present;                  /* false for an optional array left out */
    bool weak;    /* a Python number: its dtype gives way to the arrays' (NEP 50) */
    bool on_host; /* a number of a call on device arrays, see gpo_op.by_value */
} gpo_array;

/* ---- options: the typed arguments that are not arrays ---- */

typedef enum gpo_kind {
    GPO_KIND_ARRAY,
    GPO_KIND_BOOL,
    GPO_KIND_INT,
    GPO_KIND_FLOAT,  /* if the caller gave an integer, i holds its exact value */
    GPO_KIND_INTS,   /* an int or a tuple of ints */
    GPO_KIND_FLOATS, /* a float or a tuple of floats */
    GPO_KIND_ENUM,   /* one of the strings in `choices`; i is its index */
    GPO_KIND_DTYPE,
} gpo_kind;

typedef struct gpo_option {
    bool given;  /* false: None, or left at a default of None */
    bool is_int; /* GPO_KIND_FLOAT: the caller gave an integer, which is in i */
    int64_t i;   /* BOOL, INT, ENUM, DTYPE; the length of INTS or FLOATS */
    double f;
    bool is_tuple; /* INTS, FLOATS: the caller gave a tuple, not one value */
    union {
        int64_t ints[GPO_MAX_DIMS];
        double floats[GPO_MAX_DIMS];
    };
} gpo_option;

typedef struct gpo_arg {
    const char *name;
    gpo_kind kind;
    const char *preset;         /* the default as Python text; NULL: required */
    const char *const *choices; /* GPO_KIND_ENUM: ends with NULL */
    bool named;                 /* by keyword alone, like variant= */
} gpo_arg;

/* ---- variants: the rungs of a ladder ---- */

typedef gpo_status (*gpo_run)(gpo_call *call);

typedef struct gpo_variant {
    const char *name;         /* v0, v1, ... in CUDA; scalar, simd, threads on a CPU */
    const char *idea;         /* one line */
    const char *needs;        /* "sm_90a": runs on that architecture only; "" if any */
    const char *determinism;  /* "run-to-run" or "no" */
    gpo_run run[GPO_NDTYPES]; /* by the dtype of input op->by; NULL: unsupported */
    const char *causal; /* "exact" or "to rounding"; NULL: the operator is not causal */

    /*
     * A shape kernel, named by the shape it is for, takes only certain calls: `shape`
     * describes them ("rows of at most 32 KiB"), takes() tests a call by its plan.
     * Both are NULL for a rung, which takes every call of its dtypes.
     */
    const char *shape;
    bool (*takes)(const gpo_call *call);
} gpo_variant;

/* For a variant with one function for all dtypes; a new dtype is added here by hand. */
#define GPO_EVERY_DTYPE(run)                                             \
    [GPO_BOOL] = run, [GPO_I8] = run, [GPO_U8] = run, [GPO_I16] = run,   \
    [GPO_U16] = run, [GPO_I32] = run, [GPO_U32] = run, [GPO_I64] = run,  \
    [GPO_U64] = run, [GPO_F16] = run, [GPO_BF16] = run, [GPO_F32] = run, \
    [GPO_F64] = run, [GPO_C64] = run, [GPO_C128] = run

/*
 * Picks a row of `variants` for this call and writes the reason into `why`, which is NULL
 * where nobody asks for it: to format a sentence takes as long as a small sum.
 */
typedef const gpo_variant *(*gpo_choose)(const gpo_call *call, char why[GPO_MESSAGE]);

/* GPO_SAY(why, format, ...): the reason, as printf writes it. */
#define GPO_SAY(why, ...) \
    ((why) ? (void)snprintf((why), GPO_MESSAGE, __VA_ARGS__) : (void)0)

typedef struct gpo_table {
    const gpo_variant *variants; /* ends with a row whose name is NULL */
    gpo_choose choose;
} gpo_table;

typedef enum gpo_backend_id {
    GPO_CPU,
    GPO_CUDA,
    GPO_SIM,
    GPO_NBACKENDS
} gpo_backend_id;

/* ---- operators ---- */

typedef struct gpo_cost {
    double read_bytes;    /* the fewest bytes any algorithm must read */
    double written_bytes; /* and write */
    double flops;
} gpo_cost;

struct gpo_op {
    const char *name;
    const char *ladder;  /* it runs the tables of op_<ladder>; NULL: its own */
    const char *room;    /* the folder in csrc/ops; NULL: named as the ladder */
    const gpo_arg *args; /* in order; arrays first; ends with a NULL name */
    int nout;            /* the most outputs a call may have, see gpo_call.nout */
    int member;        /* the operator's number in a shared ladder, given by the room */
    int by;            /* the input whose dtype picks the entry of gpo_variant.run */
    unsigned in_place; /* bit i: out= may be input i itself, element for element */
    unsigned by_value; /* bit i: a number as input i is an argument of the kernels */
    int indices;       /* the input whose integers are checked on the device; 0: none */
    int mask; /* the input with which Python composes the call (detour.c); 0: none */

    /* Checks the options; sets dtype, ndim and shape of every output. */
    gpo_status (*shape)(gpo_call *call);

    /*
     * Derives what cost, choose and the variants need from shapes, strides and options,
     * and writes it to call->plan as a struct that the room defines.  It holds no
     * addresses: call->in and call->out have them when a variant runs.
     */
    void (*plan)(const gpo_call *call);
    void (*cost)(const gpo_call *call, gpo_cost *cost);

    const gpo_table *cpu;
    const gpo_table
        *cuda; /* NULL in a build without CUDA; the simulator has its own tables */
};

/*
 * GPO_TABLES(ladder) declares the tables that a descriptor names.  A build without CUDA
 * has no CUDA table; in a simulator library the CPU table is a weak symbol, because
 * only the module contains it.
 */
#ifdef GPO_SIM_LIBRARY
#define GPO_TABLES(ladder) extern const gpo_table ladder##_cpu __attribute__((weak))
#define GPO_CUDA_TABLE(ladder) NULL
#elif defined(GPO_WITH_CUDA)
#define GPO_TABLES(ladder) extern const gpo_table ladder##_cpu, ladder##_cuda
#define GPO_CUDA_TABLE(ladder) &ladder##_cuda
#else
#define GPO_TABLES(ladder) extern const gpo_table ladder##_cpu
#define GPO_CUDA_TABLE(ladder) NULL
#endif

/* ---- the call: the whole state of one invocation ---- */

enum { GPO_PLAN_BYTES = 4096 }; /* enough for the plan of any operator */

/* What is known of the integers of an array; nothing if low >= high. */
typedef struct gpo_indices {
    int64_t low, high; /* from `low` to before `high` */
    int64_t most;      /* no destination occurs more often; 0: not looked at */
    int behind;  /* of 256, so many equal one of the 31 before; 0: or not looked */
    bool sorted; /* from 0 on, none below the one before; false: or not looked */
} gpo_indices;

struct gpo_call {
    const gpo_op *op;
    const gpo_variant *variant;
    const gpo_backend *backend;
    void *stream; /* the backend's stream; NULL is its default */
    int device;

    gpo_array in[GPO_MAX_IN];
    gpo_array out[GPO_MAX_OUT];
    int nout; /* op->nout; the shape rule lowers it if the last are not requested */
    gpo_dtype out_given[GPO_MAX_OUT]; /* dtype of the caller's out=, else GPO_NONE */
    gpo_option opt[GPO_MAX_ARGS];     /* by position in op->args; unused for arrays */

    /*
     * The shape rule may request input i in another dtype: it sets convert[i], and the
     * binding replaces in[i] by a converted copy on the same device before `run`.
     */
    gpo_dtype convert[GPO_MAX_IN];

    /*
     * Of the input op->indices: `known` by an earlier call, and it has not changed
     * since; `found` by this one, for later calls (see gpo_question).
     */
    gpo_indices known, found;

    void *plan; /* GPO_PLAN_BYTES, 16-byte aligned; see gpo_op.plan */

    gpo_error error;

    void *scratch; /* backend-owned list of this call's workspace */
};

/* ---- helpers: status.c, shape.c ---- */

/* Row-major strides and the size for a->ndim and a->shape; false on overflow. */
bool gpo_row_major(gpo_array *a);

/* The same for an array that is about to be allocated: EVALUE on overflow. */
gpo_status gpo_array_contiguous(gpo_error *error, gpo_array *a);

bool gpo_array_is_contiguous(const gpo_array *a);

/* Maps axis in [-ndim, ndim) to [0, ndim); else EAXIS with NumPy's message. */
gpo_status gpo_axis(gpo_error *error, int64_t axis, int ndim, int *out);

/*
 * Workspace of the call: device memory of the call's backend, at least 256-byte
 * aligned, freed (in stream order) when the call ends.
 */
gpo_status gpo_scratch(gpo_call *call, size_t bytes, void **out);

/*
 * Persistent workspace of the call's stream: GPO_TICKETS zeroed counters, then
 * GPO_PARTIALS bytes.  A kernel must leave the counters zeroed.  The bytes belong to a
 * kernel only until it ends, so only an operator with a single launch may use them.
 */
enum { GPO_TICKETS = 16384, GPO_PARTIALS = 4 << 20 };
gpo_status gpo_tickets(gpo_call *call, unsigned **out);

/* The number of SMs of the call's device, from which grids are sized. */
int gpo_processors(const gpo_call *call);

/* Bytes of the device's L2 cache. */
int64_t gpo_l2_bytes(const gpo_call *call);

/*
 * NULL if the device runs variants with these `needs`, else the reason why not
 * (static storage).  Such a variant is never called, so choose() checks before it
 * picks one.
 */
const char *gpo_lacks(const gpo_backend *backend, int device, const char *needs);

/*
 * An operator whose host code depends on a kernel's result calls gpo_may_wait before
 * its first launch (an error while the call's stream is captured into a graph) and then
 * gpo_fetch, which waits for the stream and copies `bytes` from the backend's memory.
 */
gpo_status gpo_may_wait(gpo_call *call);
gpo_status gpo_fetch(gpo_call *call, void *to, const void *from, size_t bytes);

/*
 * A faster way for one word.  After gpo_may_wait, gpo_question sets `*word` to one that
 * a kernel of the call writes once, with tell_host() (device/index.cuh); gpo_answer
 * returns what it wrote, as soon as it is there, while kernels may go on.
 */
gpo_status gpo_question(gpo_call *call, uint64_t **word);
gpo_status gpo_answer(gpo_call *call, const uint64_t *word, uint64_t *answer);

/*
 * The same for what is known, so that the host need not wait: `*word` holds UINT64_MAX,
 * and a kernel that finds the opposite writes something else.  On a GPU that is told by
 * a later call, which fails, and gpo_later_answer says UINT64_MAX at once.
 */
gpo_status gpo_later_question(gpo_call *call, uint64_t **word);
gpo_status gpo_later_answer(gpo_call *call, const uint64_t *word, uint64_t *answer);

#ifdef __cplusplus
}
#endif
#endif
