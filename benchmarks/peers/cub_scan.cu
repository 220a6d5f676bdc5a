/*
 * cub_scan.cu  CUB's inclusive sums as plain C functions, one per dtype:
 * device_sum_<dtype>(temporary, bytes, x, out, rows, cols, stream) -> cudaError_t.
 * With temporary NULL it writes the number of bytes it needs; rows is 1.
 */
#include <cub/device/device_scan.cuh>
#include <cuda_fp16.h>
#include <stdint.h>

/* Sums in half lose too much to rounding: add in float, round once per element. */
struct plus_float {
    __host__ __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

extern "C" int
device_sum_f16(void *temporary, size_t *bytes, const void *x, void *out, int64_t,
               int64_t cols, cudaStream_t stream)
{
    return cub::DeviceScan::InclusiveScanInit(temporary, *bytes, (const __half *)x,
                                              (__half *)out, plus_float{}, 0.0f, cols,
                                              stream);
}

#define SUM(suffix, type)                                                             \
    extern "C" int device_sum_##suffix(void *temporary, size_t *bytes, const void *x, \
                                       void *out, int64_t, int64_t cols,              \
                                       cudaStream_t stream)                           \
    {                                                                                 \
        return cub::DeviceScan::InclusiveSum(temporary, *bytes, (const type *)x,      \
                                             (type *)out, cols, stream);              \
    }

SUM(f32, float)
SUM(f64, double)
