/*
 * cuda_sim.h  Replaces cuda_runtime.h for g++: the CUDA features that kernels use, with
 * the meaning that the CUDA C++ Programming Guide gives them.
 * Order: qualifiers, the thread's position, shared memory and launch, barriers, warp
 * functions, atomics and fences, loads, mathematics.
 * See scheduler.cpp, memory.cpp and access.cpp for the implementation.
 */
#ifndef GPO_SIM_CUDA_SIM_H
#define GPO_SIM_CUDA_SIM_H

#include "../core/gpo.h"
#include "half_sim.h"
#include "vector_sim.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

/* ---- qualifiers ---- */

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

/*
 * In the instrumented build the functions below must not be instrumented themselves:
 * the simulator reports atomics to the checks, the compiler plain accesses.
 */
#ifdef GPO_SIM_PROFILE
#if defined(__has_attribute)
#if __has_attribute(no_sanitize_coverage)
#define GPO_SIM_FN \
    __attribute__((noinline, unused, no_sanitize("thread"), no_sanitize_coverage))
#endif
#endif
#ifndef GPO_SIM_FN
#define GPO_SIM_FN __attribute__((noinline, unused, no_sanitize("thread")))
#endif
#else
#define GPO_SIM_FN inline __attribute__((unused))
#endif

/* The caller's source line, which identifies a barrier and is named in a fault. */
#define GPO_SIM_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

typedef void *cudaStream_t;
typedef enum cudaError { cudaSuccess = 0, cudaErrorInvalidValue = 1 } cudaError_t;
typedef enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3 } cudaMemcpyKind;

namespace gpo_sim {

/* ---- the thread's position ---- */

struct Position {
    uint3 thread;
    uint3 block;
    unsigned lane;
};

extern const Position *here; /* of the running thread; NULL outside of a kernel */
extern dim3 block_dim, grid_dim;

/* ---- scheduler.cpp ---- */

enum Fold { FOLD_NONE, FOLD_OR, FOLD_AND, FOLD_COUNT };
enum Exchange {
    EXCHANGE_SYNC,
    EXCHANGE_IDX,
    EXCHANGE_UP,
    EXCHANGE_DOWN,
    EXCHANGE_XOR,
    EXCHANGE_BALLOT,
    EXCHANGE_GATHER,
    EXCHANGE_ALIGNED /* as SYNC, but orders no memory */
};

int barrier(Fold fold, int value, const char *file, int line);

/*
 * A warp collective: waits until all lanes of `mask` have called it.  Every lane then
 * has its result in `out`: nothing for SYNC, the mask of lanes whose int `in` is not 0
 * for BALLOT, all 32 values (those of absent lanes are not written) for GATHER, one
 * lane's value for the others.  Returns the lanes that took part.
 */
unsigned meet(unsigned mask, Exchange kind, const void *in, void *out, size_t bytes,
              int arg, int width, const char *file, int line);

/* Called by a lane that waits for another block's or warp's store: lets others run. */
void spin(const char *file, int line);

/* Called before an atomic: checks and counts it; in some schedules lets others run. */
void atomic_access(void *address, size_t bytes, bool writes, const char *file,
                   int line);
void fence(void);
long long ticks(void);

/* ---- memory.cpp ---- */

cudaError_t memory_set(void *to, int value, size_t bytes);
cudaError_t memory_copy(void *to, const void *from, size_t bytes);

void *shared_array(const void *key, size_t bytes, const char *file, int line);
void *dynamic_shared(void);

gpo_status launch(gpo_call *call, void (*run)(const void *), const void *arguments,
                  size_t arguments_bytes, dim3 grid, dim3 block, size_t shared_bytes,
                  const char *kernel);

template <typename Body>
void
run_body(const void *body)
{
    (*static_cast<const Body *>(body))();
}

/* The arguments are evaluated here, once; every thread runs the kernel on copies. */
template <typename... Parameters, typename... Arguments>
gpo_status
launch_kernel(gpo_call *call, dim3 grid, dim3 block, size_t shared_bytes,
              const char *name, void (*kernel)(Parameters...), Arguments... arguments)
{
    const auto body = [=] { kernel(arguments...); };
    return launch(call, run_body<decltype(body)>, &body, sizeof body, grid, block,
                  shared_bytes, name);
}

template <typename T>
struct Same {
    typedef T type;
};

} // namespace gpo_sim

#define threadIdx (gpo_sim::here->thread)
#define blockIdx (gpo_sim::here->block)
#define blockDim (gpo_sim::block_dim)
#define gridDim (gpo_sim::grid_dim)
static const int warpSize = 32;

/* ---- shared memory and launch: see device/launch.cuh ---- */

#define GPO_SHARED(T, name, ...)                     \
    static char name##_key;                          \
    typedef T name##_type __VA_ARGS__;               \
    name##_type &name = *static_cast<name##_type *>( \
        gpo_sim::shared_array(&name##_key, sizeof(name##_type), __FILE__, __LINE__))

#define GPO_DYN_SHARED(T, name) \
    T *const name = static_cast<T *>(gpo_sim::dynamic_shared())

#define GPO_LAUNCH(call, grid, block, shared_bytes, kernel, ...)                    \
    (gpo_grid_is_empty(grid)                                                        \
         ? GPO_OK                                                                   \
         : gpo_sim::launch_kernel((call), (grid), (block), (shared_bytes), #kernel, \
                                  (kernel), ##__VA_ARGS__))

/* Device memory only: a host pointer is cudaErrorInvalidValue. */
static inline cudaError_t
cudaMemset(void *to, int value, size_t bytes)
{
    return gpo_sim::memory_set(to, value, bytes);
}

static inline cudaError_t
cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t)
{
    return gpo_sim::memory_set(to, value, bytes);
}

static inline cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t)
{
    return gpo_sim::memory_copy(to, from, bytes);
}

/* ---- barriers ---- */

GPO_SIM_FN static void
__syncthreads(GPO_SIM_HERE)
{
    gpo_sim::barrier(gpo_sim::FOLD_NONE, 0, file, line);
}

GPO_SIM_FN static int
__syncthreads_or(int predicate, GPO_SIM_HERE)
{
    return gpo_sim::barrier(gpo_sim::FOLD_OR, predicate, file, line);
}

GPO_SIM_FN static int
__syncthreads_and(int predicate, GPO_SIM_HERE)
{
    return gpo_sim::barrier(gpo_sim::FOLD_AND, predicate, file, line);
}

GPO_SIM_FN static int
__syncthreads_count(int predicate, GPO_SIM_HERE)
{
    return gpo_sim::barrier(gpo_sim::FOLD_COUNT, predicate, file, line);
}

GPO_SIM_FN static void
__syncwarp(unsigned mask = 0xffffffffu, GPO_SIM_HERE)
{
    gpo_sim::meet(mask, gpo_sim::EXCHANGE_SYNC, NULL, NULL, 0, 0, 32, file, line);
}

/* ---- warp functions ---- */

namespace gpo_sim {

template <typename T>
GPO_SIM_FN static T
shuffle(unsigned mask, Exchange kind, T value, int arg, int width, const char *file,
        int line)
{
    T result = value;
    meet(mask, kind, &value, &result, sizeof(T), arg, width, file, line);
    return result;
}

/* Combines the values of the lanes that take part, in lane order. */
template <typename T, typename Combine>
GPO_SIM_FN static T
combine(unsigned mask, T value, const char *file, int line, Combine combine_two)
{
    T all[32];
    unsigned met =
        meet(mask, EXCHANGE_GATHER, &value, all, sizeof(T), 0, 32, file, line);
    T result = all[__builtin_ctz(met)];
    for (met &= met - 1; met; met &= met - 1) {
        result = combine_two(result, all[__builtin_ctz(met)]);
    }
    return result;
}

} // namespace gpo_sim

#define GPO_SIM_SHUFFLE(name, kind, Arg)                                           \
    template <typename T>                                                          \
    GPO_SIM_FN static T name(unsigned mask, T value, Arg arg, int width = 32,      \
                             GPO_SIM_HERE)                                         \
    {                                                                              \
        return gpo_sim::shuffle(mask, gpo_sim::kind, value, (int)arg, width, file, \
                                line);                                             \
    }

GPO_SIM_SHUFFLE(__shfl_sync, EXCHANGE_IDX, int)
GPO_SIM_SHUFFLE(__shfl_up_sync, EXCHANGE_UP, unsigned)
GPO_SIM_SHUFFLE(__shfl_down_sync, EXCHANGE_DOWN, unsigned)
GPO_SIM_SHUFFLE(__shfl_xor_sync, EXCHANGE_XOR, int)

GPO_SIM_FN static unsigned
__ballot_sync(unsigned mask, int predicate, GPO_SIM_HERE)
{
    unsigned set = 0;
    gpo_sim::meet(mask, gpo_sim::EXCHANGE_BALLOT, &predicate, &set, sizeof predicate, 0,
                  32, file, line);
    return set;
}

GPO_SIM_FN static int
__any_sync(unsigned mask, int predicate, GPO_SIM_HERE)
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}

GPO_SIM_FN static int
__all_sync(unsigned mask, int predicate, GPO_SIM_HERE)
{
    return __ballot_sync(mask, !predicate, file, line) == 0;
}

template <typename T>
GPO_SIM_FN static unsigned
__match_any_sync(unsigned mask, T value, GPO_SIM_HERE)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "match takes 4 or 8 bytes");
    T all[32];
    unsigned same = 0;
    const unsigned met = gpo_sim::meet(mask, gpo_sim::EXCHANGE_GATHER, &value, all,
                                       sizeof(T), 0, 32, file, line);
    for (int lane = 0; lane < 32; lane++) {
        if (met >> lane & 1u && memcmp(&all[lane], &value, sizeof(T)) == 0) {
            same |= 1u << lane;
        }
    }
    return same;
}

template <typename T>
GPO_SIM_FN static unsigned
__match_all_sync(unsigned mask, T value, int *predicate, GPO_SIM_HERE)
{
    const unsigned same = __match_any_sync(mask, value, file, line);
    *predicate = __all_sync(mask, same == mask, file, line);
    return *predicate ? mask : 0;
}

#define GPO_SIM_WARP_REDUCE(name, T, expression)                           \
    GPO_SIM_FN static T name(unsigned mask, T value, GPO_SIM_HERE)         \
    {                                                                      \
        return gpo_sim::combine(mask, value, file, line,                   \
                                [](T a, T b) -> T { return expression; }); \
    }

GPO_SIM_WARP_REDUCE(__reduce_add_sync, unsigned, a + b)
GPO_SIM_WARP_REDUCE(__reduce_add_sync, int, (int)((unsigned)a + (unsigned)b))
GPO_SIM_WARP_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
GPO_SIM_WARP_REDUCE(__reduce_min_sync, int, a < b ? a : b)
GPO_SIM_WARP_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
GPO_SIM_WARP_REDUCE(__reduce_max_sync, int, a > b ? a : b)
GPO_SIM_WARP_REDUCE(__reduce_and_sync, unsigned, a &b)
GPO_SIM_WARP_REDUCE(__reduce_or_sync, unsigned, a | b)
GPO_SIM_WARP_REDUCE(__reduce_xor_sync, unsigned, a ^ b)

/* CUDA does not guarantee convergence: a correct kernel works with any subset. */
static inline unsigned
__activemask(void)
{
    return 1u << gpo_sim::here->lane;
}

/* ---- atomics and fences ---- */

namespace gpo_sim {

template <typename T, typename... Types>
struct IsOneOf : std::false_type {
};
template <typename T, typename First, typename... Rest>
struct IsOneOf<T, First, Rest...>
    : std::integral_constant<bool, std::is_same<T, First>::value ||
                                       IsOneOf<T, Rest...>::value> {
};

typedef unsigned long long Wide;

template <typename T, typename Change>
GPO_SIM_FN static T
atomic(T *address, const char *file, int line, Change change)
{
    atomic_access(address, sizeof(T), true, file, line);
    T old;
    memcpy((void *)&old, address, sizeof(T));
    const T now = change(old);
    memcpy((void *)address, &now, sizeof(T));
    return old;
}

/* For the C++ equivalents of ld.acquire and st.release in kernels. */
template <typename T>
GPO_SIM_FN static T
atomic_load(const T *address, GPO_SIM_HERE)
{
    atomic_access(const_cast<T *>(address), sizeof(T), false, file, line);
    T value;
    memcpy((void *)&value, address, sizeof(T));
    return value;
}

template <typename T>
GPO_SIM_FN static void
atomic_store_release(T *address, typename Same<T>::type value, GPO_SIM_HERE)
{
    fence();
    atomic_access(address, sizeof(T), true, file, line);
    memcpy((void *)address, &value, sizeof(T));
}

} // namespace gpo_sim

/* Only the types that CUDA has: what compiles here compiles with nvcc. */
#define GPO_SIM_ATOMIC(name, expression, ...)                               \
    template <typename T>                                                   \
    GPO_SIM_FN static T name(T *address, typename gpo_sim::Same<T>::type v, \
                             GPO_SIM_HERE)                                  \
    {                                                                       \
        static_assert(gpo_sim::IsOneOf<T, __VA_ARGS__>::value,              \
                      "CUDA has no " #name " of this type");                \
        return gpo_sim::atomic(address, file, line,                         \
                               [v](T old) -> T { return expression; });     \
    }

GPO_SIM_ATOMIC(atomicAdd, old + v, int, unsigned, gpo_sim::Wide, float, double, __half,
               __half2, __nv_bfloat16, __nv_bfloat162)
GPO_SIM_ATOMIC(atomicSub, old - v, int, unsigned)
GPO_SIM_ATOMIC(atomicMin, v < old ? v : old, int, unsigned, long long, gpo_sim::Wide)
GPO_SIM_ATOMIC(atomicMax, v > old ? v : old, int, unsigned, long long, gpo_sim::Wide)
GPO_SIM_ATOMIC(atomicExch, v, int, unsigned, gpo_sim::Wide, float)
GPO_SIM_ATOMIC(atomicAnd, old &v, int, unsigned, gpo_sim::Wide)
GPO_SIM_ATOMIC(atomicOr, old | v, int, unsigned, gpo_sim::Wide)
GPO_SIM_ATOMIC(atomicXor, old ^ v, int, unsigned, gpo_sim::Wide)
GPO_SIM_ATOMIC(atomicInc, old >= v ? 0u : old + 1u, unsigned)
GPO_SIM_ATOMIC(atomicDec, old == 0 || old > v ? v : old - 1u, unsigned)

template <typename T>
GPO_SIM_FN static T
atomicCAS(T *address, typename gpo_sim::Same<T>::type compare,
          typename gpo_sim::Same<T>::type v, GPO_SIM_HERE)
{
    static_assert(
        gpo_sim::IsOneOf<T, int, unsigned, gpo_sim::Wide, unsigned short>::value,
        "CUDA has no atomicCAS of this type");
    return gpo_sim::atomic(address, file, line,
                           [=](T old) -> T { return old == compare ? v : old; });
}

GPO_SIM_FN static void
__threadfence(void)
{
    gpo_sim::fence();
}

GPO_SIM_FN static void
__threadfence_block(void)
{
    gpo_sim::fence();
}

GPO_SIM_FN static void
__threadfence_system(void)
{
    gpo_sim::fence();
}

/* There is no timing here: every call is 1024 cycles after the one before. */
static inline long long
clock64(void)
{
    return gpo_sim::ticks();
}

GPO_SIM_FN static void
__nanosleep(unsigned, GPO_SIM_HERE)
{
    gpo_sim::spin(file, line);
}

/* ---- loads with a cache hint: plain loads here ---- */

#define GPO_SIM_LOAD(name)                 \
    template <typename T>                  \
    static inline T name(const T *address) \
    {                                      \
        return *address;                   \
    }
#define GPO_SIM_STORE(name)                                                    \
    template <typename T>                                                      \
    static inline void name(T *address, typename gpo_sim::Same<T>::type value) \
    {                                                                          \
        *address = value;                                                      \
    }

GPO_SIM_LOAD(__ldg)
GPO_SIM_LOAD(__ldca)
GPO_SIM_LOAD(__ldcg)
GPO_SIM_LOAD(__ldcs)
GPO_SIM_LOAD(__ldlu)
GPO_SIM_LOAD(__ldcv)
GPO_SIM_STORE(__stwb)
GPO_SIM_STORE(__stcg)
GPO_SIM_STORE(__stcs)
GPO_SIM_STORE(__stwt)

/* ---- mathematics ---- */

static inline int
__popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int
__popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int
__ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int
__ffsll(long long x)
{
    return __builtin_ffsll(x);
}

static inline int
__clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}

static inline int
__clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}

static inline unsigned
__brev(unsigned x)
{
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}

static inline unsigned long long
__brevll(unsigned long long x)
{
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}

static inline unsigned
__byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        result |= (unsigned)(both >> (selector >> 4 * i & 7u) * 8 & 0xffu) << 8 * i;
    }
    return result;
}

static inline unsigned
__umulhi(unsigned a, unsigned b)
{
    return (unsigned)((unsigned long long)a * b >> 32);
}

static inline int
__mulhi(int a, int b)
{
    return (int)((long long)a * b >> 32);
}

static inline unsigned long long
__umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

static inline unsigned
__funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)((((unsigned long long)high << 32 | low) << (shift & 31u)) >> 32);
}

static inline unsigned
__funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31u));
}

#define GPO_SIM_MIN_MAX(T)        \
    static inline T min(T a, T b) \
    {                             \
        return b < a ? b : a;     \
    }                             \
    static inline T max(T a, T b) \
    {                             \
        return a < b ? b : a;     \
    }

GPO_SIM_MIN_MAX(int)
GPO_SIM_MIN_MAX(unsigned)
GPO_SIM_MIN_MAX(long)
GPO_SIM_MIN_MAX(unsigned long)
GPO_SIM_MIN_MAX(long long)
GPO_SIM_MIN_MAX(unsigned long long)

/* Floats: if one operand is nan, the other, as fmin and fmax. */
static inline float
min(float a, float b)
{
    return fminf(a, b);
}

static inline float
max(float a, float b)
{
    return fmaxf(a, b);
}

static inline double
min(double a, double b)
{
    return fmin(a, b);
}

static inline double
max(double a, double b)
{
    return fmax(a, b);
}

static inline float
rsqrtf(float x)
{
    return (float)(1.0 / sqrt((double)x));
}

static inline double
rsqrt(double x)
{
    return 1.0 / sqrt(x);
}

static inline void
sincospif(float x, float *sine, float *cosine)
{
    const double angle = 3.14159265358979323846 * fmod((double)x, 2.0);
    *sine = (float)sin(angle);
    *cosine = (float)cos(angle);
}

/* Approximations on the device, exact here; tests that compare them need tolerance. */
static inline float
__fdividef(float a, float b)
{
    return a / b;
}

/* Macros: the C library declares functions of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(x, y) powf(x, y)

static inline float
__saturatef(float x)
{
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}

static inline float
__fadd_rn(float a, float b)
{
    return a + b;
}

static inline float
__fmul_rn(float a, float b)
{
    return a * b;
}

static inline float
__fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}

static inline double
__dadd_rn(double a, double b)
{
    return a + b;
}

static inline double
__dmul_rn(double a, double b)
{
    return a * b;
}

static inline float
__int_as_float(int bits)
{
    return gpo_sim::bits_float((uint32_t)bits);
}

static inline float
__uint_as_float(unsigned bits)
{
    return gpo_sim::bits_float(bits);
}

static inline int
__float_as_int(float value)
{
    return (int)gpo_sim::float_bits(value);
}

static inline unsigned
__float_as_uint(float value)
{
    return gpo_sim::float_bits(value);
}

static inline long long
__double_as_longlong(double value)
{
    long long bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double
__longlong_as_double(long long bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float
__int2float_rn(int x)
{
    return (float)x;
}

static inline int
__float2int_rn(float x)
{
    return (int)rintf(x);
}

static inline int
__float2int_rz(float x)
{
    return (int)x;
}

#endif
