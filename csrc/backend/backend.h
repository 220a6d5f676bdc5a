/*
 * backend.h  Where memory lives and work is queued: one table of functions per
 * backend.  Order: the table, the backends there are, the thread pool of the CPU.
 * Not here: what is computed (ops/), what Python passed (bind/).
 */
#ifndef GPO_BACKEND_H
#define GPO_BACKEND_H

#include "../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every function may be called without the GIL.  `call` carries device and stream
 * and receives the sentence of a failure.  A backend whose `device_memory` is false
 * computes on the caller's own arrays and leaves alloc, upload and download NULL.
 */
struct gpo_backend {
    const char *name;
    bool device_memory;

    /* NULL if the backend can run, else the reason why not (static storage). */
    const char *(*unavailable)(void);

    gpo_status (*begin)(gpo_call *call); /* makes call->device current */
    void (*end)(gpo_call *call);         /* frees the call's scratch, undoes begin */

    gpo_status (*alloc)(gpo_call *call, size_t bytes, void **out);
    void (*free)(gpo_call *call, void *memory);
    gpo_status (*upload)(gpo_call *call, void *to, const void *from, size_t bytes);
    gpo_status (*download)(gpo_call *call, void *to, const void *from, size_t bytes);
    gpo_status (*wait)(gpo_call *call); /* until all queued work of the call is done */

    gpo_status (*scratch)(gpo_call *call, size_t bytes, void **out);
    gpo_status (*tickets)(gpo_call *call, unsigned **out);
    int (*processors)(const gpo_call *call);
    int64_t (*l2_bytes)(const gpo_call *call);
    gpo_status (*may_wait)(gpo_call *call); /* NULL: always */
    /* As gpo_lacks, for needs that are not ""; NULL: its variants need nothing. */
    const char *(*lacks)(int device, const char *needs);
};

extern const gpo_backend gpo_backend_cpu;
extern const gpo_backend
    gpo_backend_cuda; /* also in a build without CUDA: see unavailable */

/* The backend by its number, loading the simulator on first use; never NULL. */
const gpo_backend *gpo_backend_get(gpo_backend_id id);

/* The operator's table on a backend; NULL if that backend is not built. */
const gpo_table *gpo_backend_table(gpo_backend_id id, const gpo_op *op);

/* ---- the CPU backend itself: cpu.c, its threads team.c ---- */

/* Instruction sets that loops are compiled for (core/each_isa.h), from least to most. */
typedef enum gpo_isa { GPO_ISA_BASE, GPO_ISA_V3, GPO_ISA_V4, GPO_NISA } gpo_isa;

extern const char *const gpo_isa_names[GPO_NISA]; /* "x86-64", "x86-64-v3", ... */

/* The best level of this machine, or what GPUOPT_CPU forces; read at first use. */
gpo_isa gpo_cpu_isa(void);

gpo_isa gpo_cpu_best_isa(void); /* the best level of this machine, whatever is forced */

/*
 * GB/s of reading `bytes` of memory on all threads, the best of 5 passes; false if the
 * memory cannot be had.
 */
bool gpo_cpu_read_bandwidth(size_t bytes, double *gb_per_second);

/* The rows that every table of the CPU begins with. */
enum { GPO_CPU_SCALAR, GPO_CPU_SIMD, GPO_CPU_THREADS };

/*
 * What `choose` of most of them gives: the row `threads` where several threads pay and
 * there are some, else `simd`.  `little` and `enough` say why.
 */
const gpo_variant *gpo_cpu_choose(const gpo_variant *variants, bool pays,
                                  const char *little, const char *enough,
                                  char why[GPO_MESSAGE]);

int gpo_cpu_threads(void);       /* threads a parallel call uses */
void gpo_cpu_set_threads(int n); /* n >= 1; 0 restores the default */

/*
 * Calls body(context, i) for every i in [0, count), on up to gpo_cpu_threads()
 * threads; returns when all are done.  A thread begins with a share of neighbours, the
 * same in every call, and then helps the others.  Which thread runs which i is not fixed,
 * so a deterministic room gives every i its own place to write and combines in order.
 */
void gpo_cpu_parallel(int64_t count, void (*body)(void *context, int64_t i),
                      void *context);

/* The same, or with `parallel` false one i after the other on the calling thread. */
void gpo_cpu_loop(bool parallel, int64_t count, void (*body)(void *context, int64_t i),
                  void *context);

/*
 * gpo_cpu_loop for tasks that need memory to work in, which the stack of a caller's
 * thread does not have: each task finds `bytes` of it, aligned to 64, which no other
 * thread uses meanwhile.  Not from within a task.  Without the memory nothing is run.
 */
gpo_status gpo_cpu_work(gpo_call *call, bool parallel, int64_t count, size_t bytes,
                        void (*body)(void *context, int64_t i, void *memory),
                        void *context);

#ifdef __cplusplus
}
#endif
#endif
