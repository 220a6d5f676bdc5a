/*
 * fibre.cpp  One stack per simulated thread and the switch between two of them: ten
 * instructions on x86-64 and aarch64, ucontext elsewhere or with GPO_SIM_UCONTEXT.
 * See scheduler.cpp for the choice of the next thread.
 */
#include "internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(GPO_SIM_UCONTEXT)
#define GPO_SIM_UCONTEXT 1
#endif

#ifdef GPO_SIM_UCONTEXT
#include <ucontext.h>
#endif

#ifdef GPO_SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace gpo_sim {

#ifdef GPO_SIM_ASAN
const size_t fibre_stack_bytes = 256 * 1024; /* ASan's frames have red zones */
#else
const size_t fibre_stack_bytes = 64 * 1024;
#endif

static struct {
    void *stack_pointer;
    void *fake_stack;
    const void *stack; /* the stack of the launching thread, for ASan */
    size_t stack_bytes;
} scheduler;

/* ---- the switch ---- */

#if defined(GPO_SIM_UCONTEXT)

/* stack_pointer points at a ucontext_t. */
static ucontext_t scheduler_context;

static void
swap(void **save, void *to)
{
    ucontext_t *self =
        save == &scheduler.stack_pointer ? &scheduler_context : (ucontext_t *)*save;
    *save = self;
    swapcontext(self, (ucontext_t *)to);
}

static void
prepare_stack(Fibre *fibre)
{
    ucontext_t *context = (ucontext_t *)fibre->stack_pointer;
    if (!context) {
        context = (ucontext_t *)calloc(1, sizeof *context);
    }
    getcontext(context);
    context->uc_stack.ss_sp = fibre->stack;
    context->uc_stack.ss_size = fibre_stack_bytes;
    context->uc_link = NULL;
    makecontext(context, fibre_main, 0);
    fibre->stack_pointer = context;
}

#else

/* Saves the callee-saved registers, switches stacks, restores those of the other. */
extern "C" void gpo_sim_swap(void **save, void *to)
    __attribute__((visibility("hidden")));

#if defined(__x86_64__)
asm(R"(
    .text
    .p2align 4
    .globl gpo_sim_swap
    .hidden gpo_sim_swap
    .type gpo_sim_swap, @function
gpo_sim_swap:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size gpo_sim_swap, .-gpo_sim_swap
)");

enum { FRAME = 8, RETURN = 6 }; /* in words; the last one is a NULL return address */
#else
asm(R"(
    .text
    .p2align 4
    .globl gpo_sim_swap
    .hidden gpo_sim_swap
    .type gpo_sim_swap, %function
gpo_sim_swap:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size gpo_sim_swap, .-gpo_sim_swap
)");

enum { FRAME = 20, RETURN = 11 };
#endif

static void
swap(void **save, void *to)
{
    gpo_sim_swap(save, to);
}

static void
prepare_stack(Fibre *fibre)
{
    /* Stacks are a multiple of a page apart; without the shift they would all map to
     * the same few sets of the L1 cache. */
    const size_t shift = fibre->linear % 64 * 320 % 4096;
    void **top = (void **)(fibre->stack + fibre_stack_bytes - shift) - FRAME;
    for (int i = 0; i < FRAME; i++) {
        top[i] = NULL;
    }
    top[RETURN] = (void *)fibre_main;
    fibre->stack_pointer = top;
}

#endif

void
fibre_switch(Fibre *from, Fibre *to)
{
    void **save = from ? &from->stack_pointer : &scheduler.stack_pointer;
    void *target = to ? to->stack_pointer : scheduler.stack_pointer;
#ifdef GPO_SIM_ASAN
    void **fake = from ? &from->fake_stack : &scheduler.fake_stack;
    __sanitizer_start_switch_fiber(fake, to ? to->stack : scheduler.stack,
                                   to ? fibre_stack_bytes : scheduler.stack_bytes);
#endif
    swap(save, target);
#ifdef GPO_SIM_ASAN
    __sanitizer_finish_switch_fiber(*fake, NULL, NULL);
#endif
}

void
fibre_entered(void)
{
#ifdef GPO_SIM_ASAN
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
}

/* ---- stacks ---- */

bool
fibres_prepare(Fibre *fibres, unsigned count)
{
    const size_t guard = (size_t)sysconf(_SC_PAGESIZE);
    for (unsigned i = 0; i < count; i++) {
        if (fibres[i].stack) {
            continue;
        }
        void *memory =
            mmap(NULL, guard + fibre_stack_bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (memory == MAP_FAILED) {
            return false;
        }
        mprotect(memory, guard, PROT_NONE); /* a stack overflow faults here */
        fibres[i].stack = (char *)memory + guard;
        fibres[i].linear = i;
        fibre_reset(&fibres[i]);
    }
#ifdef GPO_SIM_ASAN
    pthread_attr_t attributes;
    void *stack = NULL;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &scheduler.stack_bytes);
    pthread_attr_destroy(&attributes);
    scheduler.stack = stack;
#endif
    return true;
}

void
fibre_reset(Fibre *fibre)
{
#ifdef GPO_SIM_ASAN
    __asan_unpoison_memory_region(fibre->stack, fibre_stack_bytes);
    fibre->fake_stack = NULL;
#endif
    prepare_stack(fibre);
}

} // namespace gpo_sim
