/*
 * backend.h  The backends, which own memory and streams: one table of functions each.
 * Order: the table, the backends, the CPU backend and its thread pool.
 * See ops/ for the operators, bind/ for Python.
 */
#ifndef GPO_BACKEND_H
#define GPO_BACKEND_H

#include "../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every function may be called without the GIL.  `call` holds device and stream and
 * receives the message of a failure.  A backend whose `device_memory` is false computes
 * on the caller's own arrays and leaves alloc, upload and download NULL.
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
    gpo_status (*wait)(gpo_call *call); /* waits until all work of the call is done */

    gpo_status (*scratch)(gpo_call *call, size_t bytes, void **out);
    gpo_status (*tickets)(gpo_call *call, unsigned **out);
    int (*processors)(const gpo_call *call);
    int64_t (*l2_bytes)(const gpo_call *call);
    gpo_status (*may_wait)(gpo_call *call); /* NULL: always */
    /* As gpo_question and gpo_answer; NULL: by scratch and download. */
    gpo_status (*question)(gpo_call *call, uint64_t **word);
    gpo_status (*answer)(gpo_call *call, const uint64_t *word, uint64_t *answer);
    gpo_status (*later)(gpo_call *call, uint64_t **word); /* NULL: by these, at once */
    /* As gpo_lacks, for nonempty needs; NULL: no variant of the backend has any. */
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

/* The instruction sets for which loops are compiled (core/each_isa.h), ascending. */
typedef enum gpo_isa { GPO_ISA_BASE, GPO_ISA_V3, GPO_ISA_V4, GPO_NISA } gpo_isa;

extern const char *const gpo_isa_names[GPO_NISA]; /* "x86-64", "x86-64-v3", ... */

/* The best level of this machine, or the one GPUOPT_CPU forces; read at first use. */
gpo_isa gpo_cpu_isa(void);

gpo_isa gpo_cpu_best_isa(void); /* the best level of this machine; ignores GPUOPT_CPU */

/*
 * GB/s of reading `bytes` of memory on all threads, the best of 5 passes; false if the
 * allocation fails.
 */
bool gpo_cpu_read_bandwidth(size_t bytes, double *gb_per_second);

/* The rows with which every table of the CPU begins. */
enum { GPO_CPU_SCALAR, GPO_CPU_SIMD, GPO_CPU_THREADS };

/*
 * The `choose` of most of them: the row `threads` if several threads pay off and are
 * available, else `simd`.  `little` and `enough` are the reasons for `simd` and
 * `threads`.
 */
const gpo_variant *gpo_cpu_choose(const gpo_variant *variants, bool pays,
                                  const char *little, const char *enough,
                                  char why[GPO_MESSAGE]);

int gpo_cpu_threads(void);       /* threads a parallel call uses */
void gpo_cpu_set_threads(int n); /* n >= 1; 0 restores the default */

/*
 * Calls body(context, i) for every i in [0, count), on up to gpo_cpu_threads()
 * threads; returns when all are done.  A thread begins with a contiguous share of the
 * tasks, the same in every call, and then takes tasks from the other shares.  Which
 * thread runs which i is unspecified, so a deterministic operator has every i write to
 * its own place and combines the results in order.
 */
void gpo_cpu_parallel(int64_t count, void (*body)(void *context, int64_t i),
                      void *context);

/* The same if `parallel`; else a sequential loop on the calling thread. */
void gpo_cpu_loop(bool parallel, int64_t count, void (*body)(void *context, int64_t i),
                  void *context);

/*
 * gpo_cpu_loop for tasks that need more working memory than the stack has: each task
 * gets `bytes` of it, aligned to 64, which no other thread uses meanwhile.  Must not be
 * called from within a task.  If the memory cannot be allocated, no task runs.
 */
gpo_status gpo_cpu_work(gpo_call *call, bool parallel, int64_t count, size_t bytes,
                        void (*body)(void *context, int64_t i, void *memory),
                        void *context);

#ifdef __cplusplus
}
#endif
#endif
