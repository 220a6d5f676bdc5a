/*
 * guard.c  The two functions of libstdc++ with which nvcc's launch stubs initialise a
 * static variable once, so that the module needs no C++ library.
 */
#define _GNU_SOURCE /* PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP */
#include <pthread.h>
#include <stdint.h>

#ifdef GPO_WITH_CUDA

int __cxa_guard_acquire(uint64_t *guard);
void __cxa_guard_release(uint64_t *guard);

/* Held while a static is initialised; recursive, as that may initialise others. */
static pthread_mutex_t making = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* Whether the caller must initialise the static: its first byte is 1 when done. */
int
__cxa_guard_acquire(uint64_t *guard)
{
    pthread_mutex_lock(&making);
    if (__atomic_load_n((uint8_t *)guard, __ATOMIC_ACQUIRE)) {
        pthread_mutex_unlock(&making);
        return 0;
    }
    return 1;
}

void
__cxa_guard_release(uint64_t *guard)
{
    __atomic_store_n((uint8_t *)guard, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&making);
}

#endif
