/*
 * kernel_sim.h  What the source of `gpuopt.lab.kernel` is compiled with: CUDA's features
 * from the simulator, shared arrays, a strict __syncthreads, and the table of the kernels.
 * Order: shared memory, loops, barriers, the C library, parameters, the table, what the source is wrapped in.
 * kernel_sim.cpp launches the kernels; gpuopt/lab/cuda_source.py rewrites the source.
 */
#ifndef GPO_LAB_KERNEL_SIM_H
#define GPO_LAB_KERNEL_SIM_H

#include "device/launch.cuh"

#include <limits.h>
#include <stdio.h>
#include <utility>

/* ---- kernel_sim.cpp ---- */

void *gpo_lab_dynamic_shared(const char *file, int line);
void gpo_lab_left_barrier(int arrived, const char *file, int line);

void gpo_lab_touch(const void *address, size_t bytes, bool write, const char *file,
                   int line);
void gpo_lab_stop(const char *what, const char *expression, const char *file, int line);

/* ---- shared memory: `__shared__ float tile[8];` becomes a typedef and one of these ---- */

#define GPO_LAB_SHARED_OF(key, type) \
    (*static_cast<type *>(           \
        gpo_sim::shared_array((key), sizeof(type), __FILE__, __LINE__)))

#define GPO_LAB_SHARED(type)                         \
    GPO_LAB_SHARED_OF(([]() -> const char * {        \
                          static const char key = 0; \
                          return &key;               \
                      }()),                          \
                      type)

#define GPO_LAB_DYNAMIC(type) \
    (static_cast<type *>(gpo_lab_dynamic_shared(__FILE__, __LINE__)))

/* ---- loops ---- */

/*
 * The compiler does not instrument an empty block, which an endless loop may be: with
 * checks the condition of a loop, and a goto, is one more statement.
 */
#ifdef GPO_LAB_CHECKED
static inline __attribute__((always_inline)) bool
gpo_lab_step()
{
    __asm__ volatile("");
    return true;
}
#define GPO_LAB_LOOP(...) gpo_lab_step() && (__VA_ARGS__)
#define GPO_LAB_GOTO       \
    if (!gpo_lab_step()) { \
    }                      \
    else
#else
#define GPO_LAB_LOOP(...) __VA_ARGS__
#define GPO_LAB_GOTO
#endif

/* ---- barriers ---- */

/*
 * A barrier that some threads of the block never reach is a fault, also where they have
 * ended and a GPU may let it pass.
 */
GPO_SIM_FN static void
gpo_lab_syncthreads(GPO_SIM_HERE)
{
    const int arrived = gpo_sim::barrier(gpo_sim::FOLD_COUNT, 1, file, line);
    if (arrived != (int)(blockDim.x * blockDim.y * blockDim.z)) {
        gpo_lab_left_barrier(arrived, file, line);
    }
}

/* ---- functions of the C library, which is not instrumented ---- */

GPO_SIM_FN static void *
gpo_lab_memset(void *to, int value, size_t bytes, GPO_SIM_HERE)
{
    gpo_lab_touch(to, bytes, true, file, line);
    return memset(to, value, bytes);
}

GPO_SIM_FN static void *
gpo_lab_memcpy(void *to, const void *from, size_t bytes, GPO_SIM_HERE)
{
    gpo_lab_touch(from, bytes, false, file, line);
    gpo_lab_touch(to, bytes, true, file, line);
    return memmove(to, from, bytes);
}

GPO_SIM_FN static void
gpo_lab_assert(bool holds, const char *expression, GPO_SIM_HERE)
{
    if (!holds) {
        gpo_lab_stop("assertion failed: ", expression, file, line);
    }
}

GPO_SIM_FN static void
__trap(GPO_SIM_HERE)
{
    gpo_lab_stop("__trap() was called", "", file, line);
}

namespace gpo_lab {

/* ---- parameters, as Python sees them ---- */

/* 'b' bool, 'i' int, 'u' unsigned, 'f' float, 'g' bfloat16, 'v' void, 'x' others */
template <typename T, bool IS_ENUM = std::is_enum<T>::value>
struct Element {
    static const char kind = std::is_same<T, bool>::value       ? 'b'
                             : std::is_void<T>::value           ? 'v'
                             : std::is_floating_point<T>::value ? 'f'
                             : !std::is_integral<T>::value      ? 'x'
                             : std::is_signed<T>::value         ? 'i'
                                                                : 'u';
    typedef T scalar;
    static const int lanes = 1;
};

template <>
struct Element<__half, false> {
    static const char kind = 'f';
    typedef __half scalar;
    static const int lanes = 1;
};

template <>
struct Element<__nv_bfloat16, false> {
    static const char kind = 'g';
    typedef __nv_bfloat16 scalar;
    static const int lanes = 1;
};

#define GPO_LAB_VECTOR(type, T, n)                 \
    template <>                                    \
    struct Element<type, false> {                  \
        static const char kind = Element<T>::kind; \
        typedef T scalar;                          \
        static const int lanes = n;                \
    };
#define GPO_LAB_VECTORS(name, T)  \
    GPO_LAB_VECTOR(name##2, T, 2) \
    GPO_LAB_VECTOR(name##4, T, 4)

GPO_LAB_VECTORS(char, signed char)
GPO_LAB_VECTORS(uchar, unsigned char)
GPO_LAB_VECTORS(short, short)
GPO_LAB_VECTORS(ushort, unsigned short)
GPO_LAB_VECTORS(int, int)
GPO_LAB_VECTORS(uint, unsigned)
GPO_LAB_VECTORS(float, float)
GPO_LAB_VECTOR(double2, double, 2)
GPO_LAB_VECTOR(longlong2, long long, 2)
GPO_LAB_VECTOR(ulonglong2, unsigned long long, 2)
GPO_LAB_VECTOR(int3, int, 3)
GPO_LAB_VECTOR(float3, float, 3)
GPO_LAB_VECTOR(double3, double, 3)

struct Parameter {
    char kind;
    bool pointer, constant;
    int bytes; /* of a scalar */
    int lanes; /* scalars of a vector type */
};

template <typename T>
constexpr int
size_of()
{
    if constexpr (std::is_void<T>::value) {
        return 1;
    }
    else {
        return (int)sizeof(T);
    }
}

template <typename P>
constexpr Parameter
parameter()
{
    typedef std::remove_pointer_t<std::remove_cv_t<P>> Pointee;
    typedef std::remove_cv_t<Pointee> T;
    typedef Element<T> E;
    return Parameter{std::is_reference<P>::value ? 'x' : E::kind,
                     std::is_pointer<P>::value, std::is_const<Pointee>::value,
                     size_of<typename E::scalar>(), E::lanes};
}

/* ---- the table of the kernels ---- */

struct Kernel {
    const char *name;
    int nparameters;
    const Parameter *parameters;
    gpo_status (*launch)(gpo_call *call, const char *name, dim3 grid, dim3 block,
                         size_t shared_bytes, void *const *arguments);
};

template <auto function>
struct Row;

template <typename... P, void (*function)(P...)>
struct Row<function> {
    static const int count = (int)sizeof...(P);
    /* one more, as an array has at least one element */
    static constexpr Parameter parameters[] = {parameter<P>()..., Parameter()};

    template <size_t... I>
    static gpo_status launch_with(gpo_call *call, const char *name, dim3 grid,
                                  dim3 block, size_t shared_bytes,
                                  void *const *arguments, std::index_sequence<I...>)
    {
        (void)arguments;
        return gpo_sim::launch_kernel(
            call, grid, block, shared_bytes, name, function,
            *static_cast<std::remove_cv_t<P> *>(arguments[I])...);
    }

    static gpo_status launch(gpo_call *call, const char *name, dim3 grid, dim3 block,
                             size_t shared_bytes, void *const *arguments)
    {
        return launch_with(call, name, grid, block, shared_bytes, arguments,
                           std::make_index_sequence<sizeof...(P)>());
    }
};

} // namespace gpo_lab

#define GPO_LAB_KERNEL(text, function)                                             \
    {                                                                              \
        text, gpo_lab::Row<&function>::count, gpo_lab::Row<&function>::parameters, \
            gpo_lab::Row<&function>::launch                                        \
    }

extern "C" const gpo_lab::Kernel gpo_lab_kernels[];
extern "C" const int gpo_lab_nkernels;

/* ---- the source itself follows, in the namespace gpo_user ---- */

#ifdef GPO_LAB_SOURCE
#define __syncthreads gpo_lab_syncthreads
#define memset gpo_lab_memset
#define memcpy gpo_lab_memcpy
#define memmove gpo_lab_memcpy
#ifdef assert /* the source includes assert.h */
#undef assert
#define assert(...) gpo_lab_assert(static_cast<bool>(__VA_ARGS__), #__VA_ARGS__)
#endif
#endif

#endif
