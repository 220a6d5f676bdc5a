/*
 * each_isa.h  Compiles a file of inner loops once for each instruction set:
 *
 *     #define GPO_LOOPS "../ops/dot/loops.inc"
 *     #include "../../core/each_isa.h"
 *
 * The path is relative to this folder; a file may do this repeatedly.  The loops use
 *     ISA(name)     the name for this instruction set: it ends in _base, _v3 or _v4
 *     VECTOR_BYTES  the width of its vectors: 16, 32 or 64
 * and GPO_EACH_ISA(table) is then the initialiser of an array indexed by gpo_isa.  With
 * GPO_NARROW_V4 defined, v4 has its registers and instructions but vectors of 32 bytes,
 * for loops that the compiler makes slower with 64.
 *
 * A loop that is the same for several dtypes is an ordinary function in a separate
 * file, which the loops include once per dtype.  That file lists its parameters, DTYPE
 * first, and undefines them at its end.  GPO_PASTE(leaf, DTYPE) is leaf_F32, say.
 */
#ifndef GPO_EACH_ISA_H
#define GPO_EACH_ISA_H

#define GPO_PASTE(a, b) GPO_PASTE_AS_IS(a, b)
#define GPO_PASTE_AS_IS(a, b) a##_##b

#if defined(__x86_64__) && !defined(__clang__)
#define GPO_HAS_ISAS
#define GPO_EACH_ISA(name)                \
    {                                     \
        name##_base, name##_v3, name##_v4 \
    }
#else
#define GPO_EACH_ISA(name)                    \
    {                                         \
        name##_base, name##_base, name##_base \
    }
#endif

#endif

#define ISA(name) GPO_PASTE(name, base)
#define VECTOR_BYTES 16
#include GPO_LOOPS
#undef ISA
#undef VECTOR_BYTES

#ifdef GPO_HAS_ISAS
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define ISA(name) GPO_PASTE(name, v3)
#define VECTOR_BYTES 32
#include GPO_LOOPS
#undef ISA
#undef VECTOR_BYTES
#pragma GCC pop_options

#pragma GCC push_options
#ifdef GPO_NARROW_V4
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=256")
#define VECTOR_BYTES 32
#else
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define VECTOR_BYTES 64
#endif
#define ISA(name) GPO_PASTE(name, v4)
#include GPO_LOOPS
#undef ISA
#undef VECTOR_BYTES
#pragma GCC pop_options
#endif

#undef GPO_LOOPS
