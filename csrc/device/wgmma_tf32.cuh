/*
 * wgmma_tf32.cuh  Products of floats by the matrix instructions of sm_90a, in the style
 * of wgmma.cuh; the equivalent in C++ is in sim/wgmma_tf32_sim.h.  Floats in two parts of
 * 11 bits are in tf32.cuh.
 */
#ifndef GPO_WGMMA_TF32_CUH
#define GPO_WGMMA_TF32_CUH

#include "wgmma.cuh"

#ifdef __CUDACC__

#define GPO_D32_FROM(d, i)                                                      \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), \
        "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]),         \
        "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]),      \
        "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15]), "+f"(d[i + 16]),     \
        "+f"(d[i + 17]), "+f"(d[i + 18]), "+f"(d[i + 19]), "+f"(d[i + 20]),     \
        "+f"(d[i + 21]), "+f"(d[i + 22]), "+f"(d[i + 23]), "+f"(d[i + 24]),     \
        "+f"(d[i + 25]), "+f"(d[i + 26]), "+f"(d[i + 27]), "+f"(d[i + 28]),     \
        "+f"(d[i + 29]), "+f"(d[i + 30]), "+f"(d[i + 31])

/*
 * Warpgroup: d = a b, plus d if `add`, with a 64 x 8 in registers and b 8 x 128 in
 * shared memory, k contiguous; 8 values in a row are 2 steps of the operand.  Bits of
 * a and b after the 11th are ignored.  Lane 4 g + t of warp w holds
 *     of a  rows 16 w + g and + 8, in columns t (a[0], a[1]) and t + 4 (a[2], a[3])
 *     of d  the same rows (+ 8 in the upper half of each four values), columns
 *           8 j + 2 t, 8 j + 2 t + 1
 */
__device__ __forceinline__ void
wgmma_tf32(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool add)
{
    GPO_HOPPER_ASM("{.reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
                   "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" GPO_R32
                   ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
                   ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                   "}, {%64,%65,%66,%67}, %68, p, 1, 1;}"
                   : GPO_D32_FROM(d, 0), GPO_D32_FROM(d, 32)
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                     "r"(static_cast<int>(add)));
}

/* The same with b 8 x 64. */
__device__ __forceinline__ void
wgmma_tf32(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add)
{
    GPO_HOPPER_ASM("{.reg .pred p;\n setp.ne.b32 p, %37, 0;\n"
                   "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" GPO_R32
                   "}, {%32,%33,%34,%35}, %36, p, 1, 1;}"
                   : GPO_D32_FROM(d, 0)
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
                     "r"(static_cast<int>(add)));
}

#undef GPO_D32_FROM

#else

#include "../sim/wgmma_tf32_sim.h"

#endif
#endif
