/*
 * kernel_sim.cpp  Runs the kernels of one source of `gpuopt.lab.kernel`: device memory,
 * launches, the kernels' parameters, and faults that the rooms' kernels do not need.
 * Order: kernels, memory, launches, limits, the compiler's hooks.
 * It is linked with the simulator and the source; Python calls the functions gpo_lab_*.
 */
#include "kernel_sim.h"

#include "sim/internal.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

using gpo_sim::Fibre;
using gpo_sim::Site;

const gpo_table *gpo_sim_room(const char *op);

const gpo_table *
gpo_sim_room(const char *)
{
    return NULL;
}

/* ---- kernels ---- */

EXPORT int
gpo_lab_count(void)
{
    return gpo_lab_nkernels;
}

EXPORT int
gpo_lab_parameters(int kernel)
{
    return gpo_lab_kernels[kernel].nparameters;
}

/* The fields of a parameter: kind, pointer, constant, bytes, lanes. */
EXPORT void
gpo_lab_parameter(int kernel, int i, int fields[5])
{
    const gpo_lab::Parameter &p = gpo_lab_kernels[kernel].parameters[i];
    fields[0] = p.kind;
    fields[1] = p.pointer;
    fields[2] = p.constant;
    fields[3] = p.bytes;
    fields[4] = p.lanes;
}

/* ---- memory ---- */

static gpo_status
finish(const gpo_call &call, gpo_status status, char *message)
{
    memcpy(message, call.error.message, GPO_MESSAGE);
    return status;
}

/* Copies `from` into a fresh allocation; NULL leaves it unwritten. */
EXPORT gpo_status
gpo_lab_alloc(size_t bytes, const void *from, void **out, char *message)
{
    gpo_call call = gpo_call();
    gpo_status status = gpo_sim::backend.alloc(&call, bytes, out);
    if (!status && from) {
        status = gpo_sim::backend.upload(&call, *out, from, bytes);
    }
    return finish(call, status, message);
}

EXPORT void
gpo_lab_free(void *memory)
{
    gpo_call call = gpo_call();
    gpo_sim::backend.free(&call, memory);
}

EXPORT gpo_status
gpo_lab_download(void *to, const void *from, size_t bytes, char *message)
{
    gpo_call call = gpo_call();
    return finish(call, gpo_sim::backend.download(&call, to, from, bytes), message);
}

/* ---- launches ---- */

static int64_t step_limit;
static int64_t launch_number;

EXPORT gpo_status
gpo_lab_launch(int kernel, const unsigned grid[3], const unsigned block[3],
               size_t shared_bytes, void *const *arguments, int64_t max_steps,
               char *message)
{
    gpo_call call = gpo_call();
    const gpo_lab::Kernel &k = gpo_lab_kernels[kernel];
    call.backend = &gpo_sim::backend;
    step_limit = max_steps;
    launch_number++;
    const gpo_status status =
        k.launch(&call, k.name, dim3(grid[0], grid[1], grid[2]),
                 dim3(block[0], block[1], block[2]), shared_bytes, arguments);
    return finish(call, status, message);
}

void *
gpo_lab_dynamic_shared(const char *file, int line)
{
    void *memory = gpo_sim::dynamic_shared();
    if (!memory) {
        const Site site = {file, line};
        gpo_sim::fault(gpo_sim::current, &site,
                       "invalid launch: the kernel has an extern __shared__ array, and "
                       "the launch gives it no bytes (shared_bytes=)");
    }
    return memory;
}

void
gpo_lab_left_barrier(int arrived, const char *file, int line)
{
    const Site site = {file, line};
    gpo_sim::fault(gpo_sim::current, &site,
                   "barrier divergence: %d of the block's %u threads have come to this "
                   "barrier, the others have ended",
                   arrived, blockDim.x * blockDim.y * blockDim.z);
}

void
gpo_lab_touch(const void *address, size_t bytes, bool write, const char *file, int line)
{
    const Site site = {file, line};
    for (size_t i = 0; i < bytes; i++) { /* one by one, as the alignment may be any */
        gpo_sim::access_plain((const char *)address + i, 1, write, &site);
    }
}

void
gpo_lab_stop(const char *what, const char *expression, const char *file, int line)
{
    const Site site = {file, line};
    gpo_sim::fault(gpo_sim::current, &site, "%s%s", what, expression);
}

/* ---- limits: how many pieces of code each thread has executed ---- */

struct Steps {
    const gpo_sim::Block *block;
    uint64_t number; /* of the block in its grid */
    int64_t launch;
    int64_t taken[gpo_sim::MAX_THREADS];
};

/* What the reports of a fault need of a thread's stack, with room to spare. */
static const size_t STACK_RESERVE = 12 << 10;

/* A thread that was stopped and goes on counts as so many pieces of code. */
static const int64_t RESUMED = 256;

static Steps steps[gpo_sim::MAX_RESIDENT];
static const Fibre *counted;
static int64_t *taken;

static Steps *
steps_of(const gpo_sim::Block *block)
{
    Steps *found = NULL;
    for (Steps &s : steps) {
        if (s.block == block) {
            found = &s;
            break;
        }
        if (!found && !s.block) {
            found = &s;
        }
    }
    if (found->block != block || found->number != block->linear ||
        found->launch != launch_number) {
        *found = Steps();
        found->block = block;
        found->number = block->linear;
        found->launch = launch_number;
    }
    return found;
}

static void
count_step(uintptr_t pc)
{
    const Fibre *self = gpo_sim::current;
    if (!self || !gpo_sim::launching) {
        return;
    }
    const char *frame = (const char *)__builtin_frame_address(0);
    if ((size_t)(frame - self->stack) < STACK_RESERVE) {
        const Site site = gpo_sim::line_of(pc - 1);
        gpo_sim::fault(self, &site,
                       "stack overflow: functions call each other too deeply");
    }
    static int64_t launch;
    static uint64_t number;
    if (self != counted || number != self->block->linear || launch != launch_number) {
        counted = self;
        number = self->block->linear;
        launch = launch_number;
        taken = &steps_of(self->block)->taken[self->linear];
        *taken += RESUMED;
    }
    if (++*taken <= step_limit) {
        return;
    }
    const Site site = gpo_sim::line_of(pc - 1);
    const bool own = strcmp(gpo_sim::short_path(site.file), "kernel.cu") == 0;
    if (own || *taken > step_limit + 1000) { /* soon it returns to the source */
        gpo_sim::fault(self, &site,
                       "endless loop: the thread has not ended after %lld steps "
                       "(max_steps=)",
                       (long long)step_limit);
    }
}

/* ---- the compiler's hooks ---- */

extern "C" void __wrap___sanitizer_cov_trace_pc(void);
extern "C" void __real___sanitizer_cov_trace_pc(void);

/* The last call is a jump: the simulator sees the return address of this function. */
void
__wrap___sanitizer_cov_trace_pc(void)
{
    count_step((uintptr_t)__builtin_return_address(0));
    __real___sanitizer_cov_trace_pc();
}

/* What the handlers of -fsanitize=bounds and integer-divide-by-zero are given. */
struct Type {
    uint16_t kind, info;
    char name[1]; /* in quotes, as 'float [32]' */
};

struct Check {
    const char *file;
    uint32_t line, column;
    const Type *type;
};

extern "C" {
void __ubsan_handle_out_of_bounds_abort(const Check *check, intptr_t index);
void __ubsan_handle_divrem_overflow_abort(const Check *check, uintptr_t, uintptr_t);
}

void
__ubsan_handle_out_of_bounds_abort(const Check *check, intptr_t index)
{
    const Site site = {check->file, (int)check->line};
    gpo_sim::fault(gpo_sim::current, &site, "out-of-bounds index %lld of an array %s",
                   (long long)index, check->type->name);
    __builtin_trap(); /* outside of a kernel */
}

void
__ubsan_handle_divrem_overflow_abort(const Check *check, uintptr_t, uintptr_t)
{
    const Site site = {check->file, (int)check->line};
    gpo_sim::fault(gpo_sim::current, &site, "integer division by zero");
    __builtin_trap();
}
