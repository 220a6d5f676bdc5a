/*
 * cub_dot.cu  CUB's reduction of products as plain C functions, one per dtype:
 * device_sum_<dtype>(temporary, bytes, x, out, y, n, stream) -> cudaError_t.  With
 * temporary NULL it writes the number of bytes it needs; y is an address as a number.
 */
#include <cub/device/device_reduce.cuh>
#include <cuda_fp16.h>
#include <stdint.h>
#include <thrust/iterator/counting_iterator.h>

/* Element i of x times element i of y, in the type of the sum. */
template <typename T, typename Sum>
struct product {
    const T *x, *y;
    __host__ __device__ Sum operator()(int64_t i) const
    {
        return static_cast<Sum>(x[i]) * static_cast<Sum>(y[i]);
    }
};

#define SUM(suffix, type, sum)                                                         \
    extern "C" int device_sum_##suffix(void *temporary, size_t *bytes, const void *x,  \
                                       void *out, int64_t y, int64_t n,                \
                                       cudaStream_t stream)                            \
    {                                                                                  \
        const product<type, sum> f = {(const type *)x, (const type *)y};               \
        return cub::DeviceReduce::TransformReduce(                                     \
            temporary, *bytes, thrust::make_counting_iterator((int64_t)0), (sum *)out, \
            n, cuda::std::plus<>{}, f, (sum)0, stream);                                \
    }

SUM(f16, __half, float)
SUM(f32, float, float)
SUM(f64, double, double)
SUM(i32, int32_t, int32_t)
