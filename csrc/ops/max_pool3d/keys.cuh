/*
 * keys.cuh  Elements of max_pool3d as keys on the device, for v6 and wide_windows, and
 * where keys are loaded from and stored to.  See keys.h for keys on the CPU.
 *
 * A key is an integer ordered as its element, nan above all.  With indices it carries a
 * code: ~position, so that the first of equal elements is the largest, or for a nan the
 * position itself, so that the last one is.  Keys are totally ordered, so neither the
 * order of the axes nor overlapping partial windows change a result.
 */
#ifndef GPO_MAX_POOL3D_KEYS_CUH
#define GPO_MAX_POOL3D_KEYS_CUH

#include "../../device/warp.cuh"
#include "windows.cuh"

#include <type_traits>

/* ---- elements as keys ---- */

/* A 64-bit key and its code, where one word cannot hold both. */
struct coded {
    int64_t key, code;
};

template <typename K>
__device__ __forceinline__ K
larger(K a, K b)
{
    return b > a ? b : a;
}

__device__ __forceinline__ coded
larger(const coded &a, const coded &b)
{
    const bool better = b.key > a.key || (b.key == a.key && b.code > a.code);
    return better ? b : a;
}

__host__ __device__ __forceinline__ int32_t
ordered(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? INT32_MAX : bits ^ (bits >> 31 & INT32_MAX);
}

__host__ __device__ __forceinline__ int64_t
ordered(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? INT64_MAX : bits ^ (bits >> 63 & INT64_MAX);
}

__host__ __device__ __forceinline__ int32_t
ordered(int32_t x)
{
    return x;
}

__host__ __device__ __forceinline__ int32_t
ordered(uint32_t x)
{
    return static_cast<int32_t>(x ^ 0x80000000u);
}

__host__ __device__ __forceinline__ int64_t
ordered(int64_t x)
{
    return x;
}

__host__ __device__ __forceinline__ int64_t
ordered(uint64_t x)
{
    return static_cast<int64_t>(x ^ 0x8000000000000000u);
}

/* The value that a key is made from, of 32 or 64 bits. */
template <typename T>
__device__ __forceinline__ auto
comparable(T e)
{
    const auto value = value_of(e);
    if constexpr (std::is_integral_v<decltype(value_of(e))> && sizeof(T) < 4) {
        return static_cast<int32_t>(value);
    }
    else {
        return value;
    }
}

template <typename K, typename T>
__device__ __forceinline__ K
key_of(T e, bool with_code, int64_t position)
{
    const auto value = comparable(e);
    if constexpr (std::is_same_v<K, int32_t>) {
        return ordered(value);
    }
    else {
        const int64_t code = value != value ? position : ~position;
        if constexpr (std::is_same_v<K, coded>) {
            return {ordered(value + 0), code};
        }
        else if constexpr (sizeof(value) == 8) {
            return ordered(value);
        }
        else { /* + 0: both zeros become equal, so the first of them counts */
            const uint64_t high = static_cast<uint32_t>(ordered(value + 0));
            const uint32_t low = static_cast<uint32_t>(code) ^ 0x80000000u;
            return static_cast<int64_t>(high << 32 | low);
        }
    }
}

template <typename T>
__device__ __forceinline__ T
element_of(int64_t key)
{
    using V = decltype(comparable(T()));
    if constexpr (std::is_same_v<V, float>) {
        const int32_t narrow = static_cast<int32_t>(key);
        const int32_t bits = narrow ^ (narrow >> 31 & INT32_MAX);
        float x;
        memcpy(&x, &bits, sizeof x);
        return stored_as<T>(x);
    }
    else if constexpr (std::is_same_v<V, double>) {
        const int64_t bits = key ^ (key >> 63 & INT64_MAX);
        double x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    else if constexpr (std::is_same_v<V, uint32_t>) {
        return static_cast<T>(key) ^ T(0x80000000u);
    }
    else if constexpr (std::is_same_v<V, uint64_t>) {
        return static_cast<T>(key) ^ T(0x8000000000000000u);
    }
    else {
        return static_cast<T>(key);
    }
}

/* The key of the element alone, and the position; -1 if no element made the key. */
struct found {
    int64_t key, position;
};

template <typename K>
__device__ __forceinline__ found
found_in(K k, bool with_code)
{
    if constexpr (std::is_same_v<K, coded>) {
        return {k.key, k.code == INT64_MIN ? -1 : k.code < 0 ? ~k.code : k.code};
    }
    else if constexpr (std::is_same_v<K, int64_t>) {
        if (!with_code) {
            return {k, 0};
        }
        const int32_t code =
            static_cast<int32_t>(static_cast<uint32_t>(k) ^ 0x80000000u);
        return {k >> 32, code == INT32_MIN ? -1 : code < 0 ? ~code : code};
    }
    else {
        return {k, 0};
    }
}

/* f(T()) for the element type of a dtype; an int32_t key orders at most 4 bytes. */
template <typename K, typename F>
__device__ __forceinline__ void
by_dtype(gpo_dtype dtype, F f)
{
    switch (dtype) {
        case GPO_I8:
            f(int8_t());
            return;
        case GPO_U8:
            f(uint8_t());
            return;
        case GPO_I16:
            f(int16_t());
            return;
        case GPO_U16:
            f(uint16_t());
            return;
        case GPO_I32:
            f(int32_t());
            return;
        case GPO_U32:
            f(uint32_t());
            return;
        case GPO_F16:
            f(f16());
            return;
        case GPO_BF16:
            f(bf16());
            return;
        case GPO_F32:
            f(float());
            return;
        default:
            break;
    }
    if constexpr (sizeof(K) > 4) {
        switch (dtype) {
            case GPO_I64:
                f(int64_t());
                return;
            case GPO_U64:
                f(uint64_t());
                return;
            case GPO_F64:
                f(double());
                return;
            default:
                break;
        }
    }
}

/* f(bits) for an unsigned integer of `bytes` bytes. */
template <typename K, typename F>
__device__ __forceinline__ void
by_width(int bytes, F f)
{
    if (bytes == 1) {
        f(uint8_t());
    }
    else if (bytes == 2) {
        f(uint16_t());
    }
    else if (bytes == 4) {
        f(uint32_t());
    }
    else if constexpr (sizeof(K) > 4) {
        f(uint64_t());
    }
}

/* ---- where keys are loaded from and stored to ---- */

struct key_source {
    const void *x;
    gpo_dtype dtype;
    int bytes; /* of an element */
    bool with_code;
    int64_t planes, channels, by_batch, by_channel;
    divider per_batch;
    int64_t by[POOL_AXES]; /* strides */
    int64_t in[POOL_AXES];
    int64_t position[POOL_AXES]; /* of a step along an axis, in a plane in C order */

    __device__ __forceinline__ int64_t plane(int64_t p) const
    {
        const int64_t n = per_batch.of(p);
        return n * by_batch + (p - n * channels) * by_channel;
    }
};

struct key_target {
    void *y;
    int64_t *indices;
    gpo_dtype dtype;
    int64_t outputs;       /* of a plane */
    int64_t by[POOL_AXES]; /* strides of y in a plane */
};

/* Which axis of x is a tile's T, H and W. */
struct axis_order {
    int of[POOL_AXES];
};

/*
 * T and H are swapped where T is short, so that the longer axis is in registers.  Keys
 * carry their position, so nothing else changes: source_of says where an element is in
 * x, target_of where an output goes.
 */
inline axis_order
order_of(const max_pool3d_plan &plan)
{
    const int64_t t = plan.axis[POOL_T].in, h = plan.axis[POOL_H].in;
    return t < 8 && t < h ? axis_order{{POOL_H, POOL_T, POOL_W}}
                          : axis_order{{POOL_T, POOL_H, POOL_W}};
}

inline key_source
source_of(const gpo_call *call, const axis_order &order)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const pool_axis &h = plan.axis[POOL_H], &w = plan.axis[POOL_W];
    const int64_t position[POOL_AXES] = {h.in * w.in, w.in, 1};
    key_source s = {};
    s.x = call->in[0].data;
    s.dtype = call->in[0].dtype;
    s.bytes = gpo_dtypes[s.dtype].bytes;
    s.with_code = plan.with_indices;
    s.planes = plan.planes;
    s.channels = plan.channels;
    s.per_batch = divider_of(plan.channels > 0 ? plan.channels : 1);
    s.by_batch = plan.by_batch;
    s.by_channel = plan.by_channel;
    for (int d = 0; d < POOL_AXES; d++) {
        s.by[d] = plan.by[order.of[d]];
        s.in[d] = plan.axis[order.of[d]].in;
        s.position[d] = position[order.of[d]];
    }
    return s;
}

inline key_target
target_of(const gpo_call *call, const axis_order &order)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const pool_axis &h = plan.axis[POOL_H], &w = plan.axis[POOL_W];
    const int64_t by[POOL_AXES] = {h.out * w.out, w.out, 1};
    key_target t = {};
    t.y = call->out[0].data;
    t.indices = max_pool3d_indices_of(call);
    t.dtype = call->in[0].dtype;
    t.outputs = plan.outputs;
    for (int d = 0; d < POOL_AXES; d++) {
        t.by[d] = by[order.of[d]];
    }
    return t;
}

/* At most the key of any element; as a value the least element. */
template <typename K>
K
least_key_of(const gpo_call *call)
{
    const gpo_dtype_info &info = gpo_dtypes[call->in[0].dtype];
    const bool wide = info.bytes == 8;
    int64_t least = wide ? INT64_MIN : INT32_MIN;
    if (info.kind == 'f') {
        least = wide ? ordered(-static_cast<double>(INFINITY)) : ordered(-INFINITY);
    }
    else if (info.bytes < 4) {
        least = info.kind == 'u' ? 0 : -(int64_t{1} << (8 * info.bytes - 1));
    }
    if constexpr (std::is_same_v<K, coded>) {
        return {least, INT64_MIN};
    }
    else if constexpr (std::is_same_v<K, int64_t>) {
        const bool with_code = max_pool3d_plan_of(call)->with_indices && !wide;
        return with_code ? least * (int64_t{1} << 32) : least;
    }
    else {
        return static_cast<K>(least);
    }
}

/* f(K(), n) with v6's type of key for a call and n, the side of its tiles. */
template <typename F>
gpo_status
with_keys(const gpo_call *call, F f)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const bool wide = gpo_dtypes[call->in[0].dtype].bytes == 8;
    if (plan.with_indices && (wide || plan.plane >= INT32_MAX)) {
        return f(coded(), std::integral_constant<int, 16>());
    }
    if (plan.with_indices || wide) {
        return f(int64_t(), std::integral_constant<int, 16>());
    }
    if (plan.axis[POOL_T].in <= 8 && plan.axis[POOL_H].in <= 8) {
        return f(int32_t(), std::integral_constant<int, 8>());
    }
    return f(int32_t(), std::integral_constant<int, 32>());
}

#endif
