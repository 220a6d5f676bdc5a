/*
 * copy.cu  Copies between two arrays on one device, of any strides and dtypes: to pack
 * a view, fill a strided out= or convert an input.  NumPy's casting rules: the result
 * for a float outside the range of an integer target is undefined.
 * Order: axes, values, the kernel, the launcher by source dtype, arrays that lie along
 * different axes (transpose.cuh).
 */
#include "number.cuh"
#include "transpose.cuh"

/* ---- axes ---- */

/* The common axes of both arrays, merged where possible. */
struct copy_axes {
    int ndim;
    int64_t shape[GPO_MAX_DIMS];
    int64_t from[GPO_MAX_DIMS], to[GPO_MAX_DIMS]; /* strides in elements */
};

static copy_axes
axes_of(const gpo_array *from, const gpo_array *to)
{
    copy_axes axes;
    axes.ndim = 0;
    for (int d = 0; d < to->ndim; d++) {
        const int last = axes.ndim - 1;
        const int64_t length = to->shape[d];
        if (length == 1) {
            continue;
        }
        if (last >= 0 && axes.from[last] == length * from->strides[d] &&
            axes.to[last] == length * to->strides[d]) {
            axes.shape[last] *= length;
            axes.from[last] = from->strides[d];
            axes.to[last] = to->strides[d];
            continue;
        }
        axes.shape[axes.ndim] = length;
        axes.from[axes.ndim] = from->strides[d];
        axes.to[axes.ndim] = to->strides[d];
        axes.ndim++;
    }
    return axes;
}

/* ---- values ---- */

/* The real part, in the type used for arithmetic. */
template <typename T>
__device__ __forceinline__ auto
real_of(T x)
{
    if constexpr (IS_COMPLEX<T>) {
        return x.re;
    }
    else {
        return value_of(x);
    }
}

template <typename T>
__device__ __forceinline__ bool
is_true(T x)
{
    if constexpr (IS_COMPLEX<T>) {
        return x.re != 0 || x.im != 0;
    }
    else {
        return value_of(x) != 0;
    }
}

template <typename Real, typename T>
__device__ __forceinline__ complex<Real>
complex_of(T x)
{
    if constexpr (IS_COMPLEX<T>) {
        return {static_cast<Real>(x.re), static_cast<Real>(x.im)};
    }
    else {
        return {static_cast<Real>(value_of(x)), Real(0)};
    }
}

template <typename V>
__device__ __forceinline__ float
as_float(V x)
{
    if constexpr (sizeof(V) == sizeof(double) && V(0.5) != V(0)) {
        return rounded_to_odd(x);
    }
    else {
        return static_cast<float>(x);
    }
}

template <typename T>
__device__ __forceinline__ void
store_as(void *to, gpo_dtype dtype, int64_t i, T x)
{
    switch (dtype) {
        case GPO_BOOL:
            static_cast<uint8_t *>(to)[i] = is_true(x);
            break;
        case GPO_I8:
            static_cast<int8_t *>(to)[i] = static_cast<int8_t>(real_of(x));
            break;
        case GPO_U8:
            static_cast<uint8_t *>(to)[i] = static_cast<uint8_t>(real_of(x));
            break;
        case GPO_I16:
            static_cast<int16_t *>(to)[i] = static_cast<int16_t>(real_of(x));
            break;
        case GPO_U16:
            static_cast<uint16_t *>(to)[i] = static_cast<uint16_t>(real_of(x));
            break;
        case GPO_I32:
            static_cast<int32_t *>(to)[i] = static_cast<int32_t>(real_of(x));
            break;
        case GPO_U32:
            static_cast<uint32_t *>(to)[i] = static_cast<uint32_t>(real_of(x));
            break;
        case GPO_I64:
            static_cast<int64_t *>(to)[i] = static_cast<int64_t>(real_of(x));
            break;
        case GPO_U64:
            static_cast<uint64_t *>(to)[i] = static_cast<uint64_t>(real_of(x));
            break;
        case GPO_F16:
            static_cast<f16 *>(to)[i] = stored_as<f16>(as_float(real_of(x)));
            break;
        case GPO_BF16: /* through float32, as in ml_dtypes */
            static_cast<bf16 *>(to)[i] =
                stored_as<bf16>(static_cast<float>(real_of(x)));
            break;
        case GPO_F32:
            static_cast<float *>(to)[i] = static_cast<float>(real_of(x));
            break;
        case GPO_F64:
            static_cast<double *>(to)[i] = static_cast<double>(real_of(x));
            break;
        case GPO_C64:
            static_cast<c64 *>(to)[i] = complex_of<float>(x);
            break;
        case GPO_C128:
            static_cast<c128 *>(to)[i] = complex_of<double>(x);
            break;
        default:
            break;
    }
}

/* ---- the kernel ---- */

constexpr int BLOCK = 256;
constexpr int64_t MAX_GRID = 65536; /* blocks; beyond, a thread copies several */

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    copy_strided(const T *from, void *to, gpo_dtype dtype, int64_t size, copy_axes axes)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < size;
         i += step) {
        int64_t rest = i, read = 0, written = 0;
        for (int d = axes.ndim - 1; d >= 0; d--) {
            const int64_t k = d > 0 ? rest % axes.shape[d] : rest;
            rest = d > 0 ? rest / axes.shape[d] : 0;
            read += k * axes.from[d];
            written += k * axes.to[d];
        }
        store_as(to, dtype, written, from[read]);
    }
}

/* ---- the launcher, by the dtype of the source ---- */

template <typename T>
static gpo_status
copy_from(gpo_call *call, const gpo_array *from, const gpo_array *to,
          const copy_axes &axes)
{
    const int64_t blocks = (to->size + BLOCK - 1) / BLOCK;
    const dim3 grid(static_cast<unsigned>(blocks < MAX_GRID ? blocks : MAX_GRID));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (copy_strided<T>),
                      static_cast<const T *>(from->data), to->data, to->dtype, to->size,
                      axes);
}

using copy_run = gpo_status (*)(gpo_call *, const gpo_array *, const gpo_array *,
                                const copy_axes &);

static const copy_run by_dtype[GPO_NDTYPES] = {
#define GPO_DTYPE(suffix, ctype, text, bytes, kind) \
    copy_from<typename device_type<GPO_##suffix, ctype>::type>,
#include "../core/dtypes.def"
#undef GPO_DTYPE
};

/* ---- arrays that lie along different axes ---- */

/* The axis along which elements are neighbours, or -1. */
static int
axis_of_neighbours(const copy_axes &axes, const int64_t *strides)
{
    for (int d = 0; d < axes.ndim; d++) {
        if (strides[d] == 1) {
            return d;
        }
    }
    return -1;
}

/* Whether source and target lie along axes of their own; if so, what a transpose needs. */
static bool
lie_apart(const copy_axes &axes, transpose_axes *apart)
{
    const int row = axis_of_neighbours(axes, axes.from);
    const int col = axis_of_neighbours(axes, axes.to);
    if (row < 0 || col < 0 || row == col || axes.shape[row] < SHORT_SIDE ||
        axes.shape[col] < SHORT_SIDE) {
        return false;
    }
    *apart = {axes.shape[row],
              axes.shape[col],
              axes.from[col],
              axes.to[row],
              0,
              {},
              {},
              {},
              1};
    for (int d = 0; d < axes.ndim; d++) {
        if (d != row && d != col) {
            const int k = apart->ndim++;
            apart->shape[k] = axes.shape[d];
            apart->from[k] = axes.from[d];
            apart->to[k] = axes.to[d];
            apart->outer *= axes.shape[d];
        }
    }
    return true;
}

static gpo_status
transpose_by_size(gpo_call *call, const gpo_array *from, const gpo_array *to,
                  const transpose_axes &axes)
{
    const gpo_dtype_info &type = gpo_dtypes[from->dtype];
    const bool is_complex = type.kind == 'c';
    switch (type.bytes) {
        case 1:
            return transpose<uint8_t>(call, from->data, to->data, axes);
        case 2:
            return transpose<uint16_t>(call, from->data, to->data, axes);
        case 4:
            return transpose<uint32_t>(call, from->data, to->data, axes);
        case 8:
            return is_complex ? transpose<word_pair<uint32_t>>(call, from->data,
                                                               to->data, axes)
                              : transpose<uint64_t>(call, from->data, to->data, axes);
        default:
            return transpose<word_pair<uint64_t>>(call, from->data, to->data, axes);
    }
}

extern "C" gpo_status
gpo_device_copy(gpo_call *call, const gpo_array *from, const gpo_array *to)
{
    const copy_axes axes = axes_of(from, to);
    transpose_axes apart;
    return from->dtype == to->dtype && lie_apart(axes, &apart)
               ? transpose_by_size(call, from, to, apart)
               : by_dtype[from->dtype](call, from, to, axes);
}

/* ---- one value from the host as a kernel argument, which a graph can replay ---- */

#ifdef __CUDACC__

__global__ void
store_bytes(unsigned char *to, uint4 value, int bytes)
{
    unsigned char raw[16];
    memcpy(raw, &value, sizeof raw);
    for (int k = 0; k < bytes; k++) {
        to[k] = raw[k];
    }
}

extern "C" gpo_status
gpo_device_store(gpo_call *call, void *to, const void *from, size_t bytes)
{
    uint4 value = {0, 0, 0, 0};
    memcpy(&value, from, bytes);
    return GPO_LAUNCH(call, dim3(1), dim3(1), 0, store_bytes,
                      static_cast<unsigned char *>(to), value, static_cast<int>(bytes));
}

#endif
