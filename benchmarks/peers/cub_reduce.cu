/*
 * cub_reduce.cu  CUB's reductions as plain C functions, one per kind and dtype:
 * <kind>_<op>_<dtype>(temporary, bytes, x, out, rows, cols, stream) -> cudaError_t.
 * With temporary NULL it writes the number of bytes it needs.  The device_ functions
 * take one row.
 */
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>
#include <cuda_fp16.h>
#include <stdint.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

/*
 * CUB picks its tuned policies by the operator's type, so its own plus serves wherever
 * it compiles.  It does not add a half to a float, and half sums drown in rounding.
 */
using plus = cuda::std::plus<>;

struct plus_float {
    __host__ __device__ float operator()(float a, float b) const
    {
        return a + b;
    }
};

/* Where row i begins. */
struct row_begin {
    int64_t cols;
    __host__ __device__ int64_t operator()(int64_t i) const
    {
        return i * cols;
    }
};

static auto
row_offsets(int64_t first, int64_t cols)
{
    return thrust::make_transform_iterator(thrust::make_counting_iterator(first),
                                           row_begin{cols});
}

/* acc is the type of the initial value, of the running sum and of the result. */
#define SUM(suffix, type, acc, op)                                                    \
    extern "C" int device_sum_##suffix(void *temporary, size_t *bytes, const void *x, \
                                       void *out, int64_t, int64_t cols,              \
                                       cudaStream_t stream)                           \
    {                                                                                 \
        return cub::DeviceReduce::Reduce(temporary, *bytes, (const type *)x,          \
                                         (acc *)out, cols, op{}, (acc)0, stream);     \
    }                                                                                 \
    extern "C" int segmented_sum_##suffix(void *temporary, size_t *bytes,             \
                                          const void *x, void *out, int64_t rows,     \
                                          int64_t cols, cudaStream_t stream)          \
    {                                                                                 \
        return cub::DeviceSegmentedReduce::Reduce(                                    \
            temporary, *bytes, (const type *)x, (acc *)out, rows,                     \
            row_offsets(0, cols), row_offsets(1, cols), op{}, (acc)0, stream);        \
    }

SUM(f16, __half, float, plus_float)
SUM(f32, float, float, plus)
SUM(f64, double, double, plus)
SUM(i32, int32_t, int64_t, plus)

extern "C" int
segmented_argmax_f32(void *temporary, size_t *bytes, const void *x, void *out,
                     int64_t rows, int64_t cols, cudaStream_t stream)
{
    return cub::DeviceSegmentedReduce::ArgMax(
        temporary, *bytes, (const float *)x, (cub::KeyValuePair<int, float> *)out, rows,
        row_offsets(0, cols), row_offsets(1, cols), stream);
}
