/*
 * index_add.cuh  What all rungs of index_add share: the types they add in, a position
 * out of the index, atomics of 16 bytes, and the frame around a rung: the copy of x,
 * the check of the index, the wait for it.
 */
#ifndef GPO_INDEX_ADD_CUH
#define GPO_INDEX_ADD_CUH

#include "../../device/atomic.cuh"
#include "../../device/divide.cuh"
#include "../../device/vec.cuh"
#include "../../device/warp.cuh"

#include "index_add.h"

/* device/copy.cu: a copy of any strides. */
extern "C" gpo_status gpo_device_copy(gpo_call *call, const gpo_array *from,
                                      const gpo_array *to);

constexpr int BLOCK = 256;
constexpr int64_t MAX_GRID = 1 << 30; /* blocks; beyond, a thread does several */

inline int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* The grid for n threads in blocks of BLOCK. */
inline dim3
grid_for(int64_t n)
{
    const int64_t blocks = ceil_div(n, BLOCK);
    return dim3(static_cast<unsigned>(blocks < MAX_GRID ? blocks : MAX_GRID));
}

/* ---- types: sums of T are made in Acc, alpha is an Alpha ---- */

template <typename T>
struct wide {
    using Acc = T;
    using Alpha = T;
};

template <>
struct wide<f16> {
    using Acc = float;
    using Alpha = float;
};

template <>
struct wide<bf16> {
    using Acc = float;
    using Alpha = float;
};

template <>
struct wide<uint8_t> {
    using Acc = uint32_t;
    using Alpha = uint32_t;
};

template <>
struct wide<uint16_t> {
    using Acc = uint32_t;
    using Alpha = uint32_t;
};

template <>
struct wide<b8> {
    using Acc = uint32_t;
    using Alpha = uint32_t;
};

template <typename T>
using acc_of = typename wide<T>::Acc;

template <typename T>
using alpha_of = typename wide<T>::Alpha;

template <typename A, typename B>
constexpr bool is_same = false;
template <typename A>
constexpr bool is_same<A, A> = true;

template <typename T>
constexpr bool is_bool = is_same<T, b8>;

/* alpha * v, and the sum of two such: for bool, 1 if both are true, and or. */
template <typename T>
__device__ __forceinline__ acc_of<T>
scaled(T v, alpha_of<T> alpha)
{
    if constexpr (is_bool<T>) {
        return v.bits != 0 && alpha != 0;
    }
    else {
        return static_cast<acc_of<T>>(value_of(v)) * alpha;
    }
}

template <typename T>
__device__ __forceinline__ acc_of<T>
sum_of(acc_of<T> a, acc_of<T> b)
{
    if constexpr (is_bool<T>) {
        return a | b;
    }
    else {
        return a + b;
    }
}

template <typename T>
__device__ __forceinline__ T
sum_stored(T old, acc_of<T> sum)
{
    if constexpr (is_bool<T>) {
        return {static_cast<uint8_t>(old.bits != 0 || sum != 0)};
    }
    else {
        return stored_as<T>(static_cast<acc_of<T>>(value_of(old)) + sum);
    }
}

/* ---- a position out of the index ---- */

constexpr unsigned long long NONE_BAD = ~0ull;

struct index_reader {
    const void *at;
    int64_t step, length;
    index_add_mode mode;
    bool is_wide;
    unsigned long long *bad; /* RAISE: the lowest bad place of the index so far */
    divider lengths;         /* WRAP */
};

/* The destination of source row s; -1 if there is none. */
__device__ __forceinline__ int64_t
position_of(const index_reader &index, int64_t s)
{
    const int64_t i = s * index.step;
    int64_t k = index.is_wide ? static_cast<const int64_t *>(index.at)[i]
                              : static_cast<const int32_t *>(index.at)[i];
    if (k >= 0 && k < index.length) {
        return k;
    }
    switch (index.mode) {
        case INDEX_ADD_RAISE:
            if (k < 0 && k >= -index.length) {
                return k + index.length;
            }
            if (index.bad != nullptr) {
                atomicMin(index.bad, static_cast<unsigned long long>(s));
            }
            return -1;
        case INDEX_ADD_WRAP: {
            const int64_t past = k < 0 ? ~k : k;
            const int64_t rest = past - index.lengths.of(past) * index.length;
            return k < 0 ? index.length - 1 - rest : rest;
        }
        default:
            return k < 0 ? 0 : index.length - 1;
    }
}

/* ---- the call as a kernel argument ---- */

template <typename T>
struct index_add_view {
    T *out;
    const T *base; /* x, or out if that has x's elements already */
    const T *source;
    int64_t outer, length, count, inner;
    int64_t by_outer, by_row, by_inner;
    index_reader index;
    divider counts, inners; /* source rows by slices, elements by rows */
    alpha_of<T> alpha;
    double wide_alpha; /* of floats, not rounded */
};

/* ---- atomics of 16 bytes: sm_90 adds them at once, others word by word ---- */

template <typename T, int V>
struct alignas(V * sizeof(T)) values {
    T v[V];
};

template <typename T, int V>
__device__ __forceinline__ values<T, V>
load_values(const T *p)
{
    values<T, V> out;
    if constexpr (V * sizeof(T) == 16) {
        const uint4 bits = load_streamed(reinterpret_cast<const uint4 *>(p));
        memcpy(out.v, &bits, 16);
    }
    else {
        static_assert(V == 1, "16 bytes or one element");
        out.v[0] = *p;
    }
    return out;
}

/* to[0..V) += v, where `to` points into an array of n elements, to - base before it. */
template <typename T, int V>
__device__ __forceinline__ void
atomic_add_values(T *base, int64_t i, int64_t n, const values<T, V> &v)
{
    if constexpr (sizeof(T) == 2 && V > 1) {
        using Pair = typename half_pair<T>::type;
        static_assert(V == 8, "16 bytes or one element");
        uint4 *const at = reinterpret_cast<uint4 *>(base + i);
        unsigned w[4];
        memcpy(w, v.v, sizeof w);
        const uint4 bits = make_uint4(w[0], w[1], w[2], w[3]);
        if (is_same<T, f16> ? add_float16_pairs(at, bits)
                            : add_bfloat16_pairs(at, bits)) {
            return;
        }
#pragma unroll
        for (int c = 0; c < V; c += 2) {
            Pair pair;
            pair.x = v.v[c];
            pair.y = v.v[c + 1];
            atomicAdd(reinterpret_cast<Pair *>(base + i + c), pair);
        }
    }
    else if constexpr (sizeof(T) == 2) {
        fast_atomic_add(base, i, n, v.v[0]);
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    else if constexpr (V == 4 && is_same<T, float>) {
        atomicAdd(reinterpret_cast<float4 *>(base + i),
                  make_float4(v.v[0], v.v[1], v.v[2], v.v[3]));
    }
#endif
    else {
#pragma unroll
        for (int c = 0; c < V; c++) {
            atomic_add(base + i + c, v.v[c]);
        }
    }
}

/* alpha * the V elements at p, rounded to T. */
template <typename T, int V>
__device__ __forceinline__ values<T, V>
load_scaled(const T *p, alpha_of<T> alpha)
{
    values<T, V> v = load_values<T, V>(p);
#pragma unroll
    for (int c = 0; c < V; c++) {
        v.v[c] = stored_as<T>(scaled(v.v[c], alpha));
    }
    return v;
}

/* Whether rows of the source and of out split into aligned packs of 16 bytes. */
template <typename T>
static bool
is_packed(const index_add_view<T> &a)
{
    constexpr int64_t SIZE = pack<T>::SIZE;
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(a.out) |
                                reinterpret_cast<uintptr_t>(a.base) |
                                reinterpret_cast<uintptr_t>(a.source);
    return SIZE > 1 && a.by_inner == 1 && addresses % 16 == 0 && a.inner % SIZE == 0 &&
           (a.outer == 1 || a.by_outer % SIZE == 0) &&
           (a.count == 1 || a.by_row % SIZE == 0);
}

/* ---- the frame: copy, check ---- */

/* out = x in packs of 16 bytes, four in flight, and the rest; nothing is bad yet. */
static __global__ void
__launch_bounds__(BLOCK) index_add_copy(const uint4 *x, uint4 *out, int64_t packs,
                                        int rest, unsigned long long *bad)
{
    constexpr int ITEMS = 4;
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * (BLOCK * ITEMS) + threadIdx.x;
    uint4 v[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (first + k * BLOCK < packs) {
            v[k] = load_streamed(x + first + k * BLOCK);
        }
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (first + k * BLOCK < packs) {
            out[first + k * BLOCK] = v[k];
        }
    }
    if (blockIdx.x == 0) {
        const unsigned char *from = reinterpret_cast<const unsigned char *>(x + packs);
        unsigned char *to = reinterpret_cast<unsigned char *>(out + packs);
        if (static_cast<int>(threadIdx.x) < rest) {
            to[threadIdx.x] = from[threadIdx.x];
        }
        if (threadIdx.x == 0 && bad != nullptr) {
            *bad = NONE_BAD;
        }
    }
}

static __global__ void
__launch_bounds__(BLOCK) index_add_check(index_reader index, int64_t count)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t s = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; s < count;
         s += step) {
        position_of(index, s);
    }
}

/* out = x unless they are one, and *bad = NONE_BAD unless it is NULL. */
static gpo_status
start_out(gpo_call *call, unsigned long long *bad, bool copy)
{
    const gpo_array *x = &call->in[0];
    const gpo_array *out = &call->out[0];
    const int64_t bytes = copy ? out->size * gpo_dtypes[x->dtype].bytes : 0;
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(x->data) | reinterpret_cast<uintptr_t>(out->data);
    const bool plain = gpo_array_is_contiguous(x) && addresses % 16 == 0;
    if (bytes > 0 && !plain) {
        const gpo_status status = gpo_device_copy(call, x, out);
        if (status) {
            return status;
        }
    }
    const int64_t packs = plain ? bytes / 16 : 0;
    const int64_t blocks = ceil_div(packs, 4 * BLOCK);
    if (bad == nullptr && (!plain || bytes == 0)) {
        return GPO_OK;
    }
    return GPO_LAUNCH(call, dim3(static_cast<unsigned>(blocks > 0 ? blocks : 1)), BLOCK,
                      0, index_add_copy, static_cast<const uint4 *>(x->data),
                      static_cast<uint4 *>(out->data), packs,
                      plain ? static_cast<int>(bytes % 16) : 0, bad);
}

/* Waits for what the kernels found; IndexError if that is a bad index. */
static gpo_status
judge(gpo_call *call, const index_add_plan &plan, const unsigned long long *bad)
{
    unsigned long long place = NONE_BAD;
    gpo_status status = gpo_fetch(call, &place, bad, sizeof place);
    if (status || place == NONE_BAD) {
        return status;
    }
    const int64_t at = static_cast<int64_t>(place) * plan.step;
    int64_t value = 0;
    if (plan.is_wide) {
        status = gpo_fetch(call, &value, static_cast<const int64_t *>(plan.index) + at,
                           sizeof value);
    }
    else {
        int32_t narrow = 0;
        status = gpo_fetch(call, &narrow, static_cast<const int32_t *>(plan.index) + at,
                           sizeof narrow);
        value = narrow;
    }
    return status ? status
                  : index_add_out_of_range(call, &plan, value,
                                           static_cast<int64_t>(place));
}

/*
 * The frame of every rung: Rung::run<T>(call, view) queues the kernels that add, to out,
 * which has x's elements, or from x to out, if Rung::reads_x(plan).  With a fresh output
 * they find bad indices on the way; with the caller's they may not.
 */
template <typename Rung, typename T>
static gpo_status
index_add_with(gpo_call *call)
{
    index_add_plan plan;
    index_add_make_plan(call, &plan);
    if (index_add_is_deterministic(call) && !Rung::IS_DETERMINISTIC) {
        return gpo_fail(call, GPO_EVARIANT,
                        "variant '%s' adds by atomics in any order; "
                        "deterministic=True takes 'v4'",
                        call->variant->name);
    }
    const bool raises = plan.mode == INDEX_ADD_RAISE && plan.count > 0;
    const bool nothing = plan.outer * plan.inner * plan.count == 0;
    const bool check_first = raises && (plan.is_first || nothing);
    void *memory = nullptr;
    gpo_status status = GPO_OK;
    if (raises) {
        status = gpo_may_wait(call);
        if (!status) {
            status = gpo_scratch(call, sizeof(unsigned long long), &memory);
        }
    }
    unsigned long long *const bad = static_cast<unsigned long long *>(memory);
    index_reader index = {plan.index,
                          plan.step,
                          plan.length,
                          plan.mode,
                          plan.is_wide,
                          bad,
                          divider_of(plan.length > 0 ? plan.length : 1)};
    if (!status && check_first) {
        status = start_out(call, bad, false);
        if (!status) {
            status = GPO_LAUNCH(call, grid_for(plan.count), BLOCK, 0, index_add_check,
                                index, plan.count);
        }
        if (!status) {
            status = judge(call, plan, bad);
        }
        index.bad = nullptr;
    }
    const gpo_array *x = &call->in[0], *out = &call->out[0];
    const bool reads_x = !nothing && Rung::reads_x(plan) && gpo_array_is_contiguous(x);
    if (!status) {
        status = start_out(call, check_first ? nullptr : bad,
                           x->data != out->data && !reads_x);
    }
    if (!status && !nothing) {
        index_add_view<T> view = {static_cast<T *>(out->data),
                                  static_cast<const T *>(reads_x ? x->data : out->data),
                                  static_cast<const T *>(plan.source),
                                  plan.outer,
                                  plan.length,
                                  plan.count,
                                  plan.inner,
                                  plan.by_outer,
                                  plan.by_row,
                                  plan.by_inner,
                                  index,
                                  divider_of(plan.count),
                                  divider_of(plan.inner),
                                  {},
                                  plan.alpha};
        if constexpr (is_same<alpha_of<T>, float> || is_same<alpha_of<T>, double>) {
            view.alpha = static_cast<alpha_of<T>>(plan.alpha);
        }
        else {
            view.alpha = is_bool<T> ? static_cast<alpha_of<T>>(plan.whole != 0)
                                    : static_cast<alpha_of<T>>(plan.whole);
        }
        status = Rung::template run<T>(call, view);
    }
    if (!status && raises && !check_first) {
        status = judge(call, plan, bad);
    }
    return status;
}

#endif
