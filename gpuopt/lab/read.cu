/*
 * read.cu  The read ceiling: reads every byte once, with eight 16-byte loads in flight per
 * thread and almost no computation, just enough that the compiler cannot drop the loads.
 */
#include <cuda_runtime.h>
#include <stdint.h>

enum { BLOCK = 256, PACKS = 8, TILE = BLOCK * PACKS }; /* 32 KB per block */

__global__ void
__launch_bounds__(BLOCK) read_all(const uint4 *x, size_t packs, unsigned long long *out)
{
    const size_t first = (size_t)blockIdx.x * TILE + threadIdx.x;
    uint4 v[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const size_t i = first + (size_t)k * BLOCK;
        v[k] = i < packs ? __ldcs(x + i) : make_uint4(0, 0, 0, 0);
    }
    uint32_t seen = 0;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        seen ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    /* True for one thread in 2^32 on random data, which the compiler cannot know. */
    if (seen == 0x9e3779b9u) {
        *out = seen;
    }
}

/* Reads `bytes`, a multiple of 16, at the 16-byte aligned x on the legacy stream. */
extern "C" int
gpo_lab_read(const void *x, size_t bytes, void *out)
{
    const size_t packs = bytes / sizeof(uint4);
    if (packs == 0) {
        return cudaSuccess;
    }
    read_all<<<(unsigned)((packs + TILE - 1) / TILE), BLOCK>>>(
        (const uint4 *)x, packs, (unsigned long long *)out);
    return cudaGetLastError();
}
