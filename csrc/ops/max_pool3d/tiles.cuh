/*
 * tiles.cuh  Separable pooling of max_pool3d, v6: elements as keys, tiles and how they
 * are chosen, a column in registers, one tile; then the same one axis at a time through
 * global memory, for windows that span more than a tile.
 * Not here: kernels and launchers (cuda.cu).
 *
 * A key is an integer ordered as its element, nan above all.  With indices it carries a
 * code: ~position, so that the first of equal elements is the largest, or for a nan the
 * position itself, so that the last one is.  Keys are totally ordered: no order of the
 * axes, and no overlap of two windows that make one, changes a result.
 */
#ifndef GPO_MAX_POOL3D_TILES_CUH
#define GPO_MAX_POOL3D_TILES_CUH

#include "../../device/warp.cuh"
#include "windows.cuh"

#include <type_traits>

/* ---- elements as keys ---- */

/* A key of 64 bits and its code, where one word does not hold both. */
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

/* The value a key is made of: 32 bits, or 64. */
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
        else { /* + 0: the two zeros are one, and the first of them counts */
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

/* f(T()) for the element type of a dtype; an int32_t key has at most 4 bytes to order. */
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

/* f(bits) for an unsigned integer of so many bytes. */
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

/* ---- where keys come from and go to ---- */

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

/*
 * T and H change places where T is short: registers and shared memory then hold the
 * longer axis.  Keys know their position, so nothing else changes; the plan's outputs
 * are told where they go by source_of and target_of.
 */
static void
turn_axes(max_pool3d_plan *plan)
{
    if (plan->axis[POOL_T].in >= 8 || plan->axis[POOL_T].in >= plan->axis[POOL_H].in) {
        return;
    }
    const pool_axis t = plan->axis[POOL_T];
    const int64_t by = plan->by[POOL_T];
    plan->axis[POOL_T] = plan->axis[POOL_H];
    plan->by[POOL_T] = plan->by[POOL_H];
    plan->axis[POOL_H] = t;
    plan->by[POOL_H] = by;
    plan->is_turned = true;
}

static key_source
source_of(const max_pool3d_plan &plan, gpo_dtype dtype)
{
    key_source s = {};
    s.x = plan.x;
    s.dtype = dtype;
    s.bytes = gpo_dtypes[dtype].bytes;
    s.with_code = plan.indices != nullptr;
    s.planes = plan.batches * plan.channels;
    s.channels = plan.channels;
    s.per_batch = divider_of(plan.channels > 0 ? plan.channels : 1);
    s.by_batch = plan.by_batch;
    s.by_channel = plan.by_channel;
    for (int d = 0; d < POOL_AXES; d++) {
        s.by[d] = plan.by[d];
        s.in[d] = plan.axis[d].in;
    }
    const int first = plan.is_turned ? POOL_H : POOL_T, second = POOL_H - first;
    s.position[POOL_W] = 1;
    s.position[second] = s.in[POOL_W];
    s.position[first] = s.in[POOL_W] * s.in[second];
    return s;
}

static key_target
target_of(const max_pool3d_plan &plan, gpo_dtype dtype)
{
    key_target t = {};
    t.y = plan.y;
    t.indices = plan.indices;
    t.dtype = dtype;
    t.outputs = plan.outputs;
    const int first = plan.is_turned ? POOL_H : POOL_T, second = POOL_H - first;
    t.by[POOL_W] = 1;
    t.by[second] = plan.axis[POOL_W].out;
    t.by[first] = plan.axis[POOL_W].out * plan.axis[second].out;
    return t;
}

/* Less than the key of any element, but as a value the least of them. */
template <typename K>
static K
least_key_of(const max_pool3d_plan &plan, gpo_dtype dtype)
{
    const gpo_dtype_info &info = gpo_dtypes[dtype];
    const bool wide = info.bytes == 8;
    int64_t least = wide ? INT64_MIN : INT32_MIN;
    if (info.kind == 'f') {
        least = wide ? ordered(-static_cast<double>(INFINITY)) : ordered(-INFINITY);
    }
    else if (info.bytes < 4) {
        least = info.kind == 'u' ? 0 : -(int64_t{1} << (8 * info.bytes - 1));
    }
    if constexpr (std::is_same_v<K, coded>) {
        (void)plan;
        return {least, INT64_MIN};
    }
    else if constexpr (std::is_same_v<K, int64_t>) {
        return plan.indices && !wide ? least * (int64_t{1} << 32) : least;
    }
    else {
        return static_cast<K>(least);
    }
}

/* ---- tiles ---- */

struct tile_plan : tiling {
    pool_axis axis[POOL_AXES];
    int64_t planes; /* of a tile */
    int64_t count;  /* tiles of all planes */
    int lanes;      /* for a row */
    int64_t least, least_code;
};

/* Tiles of at most n x n x 32 elements; false if a window spans more. */
template <typename K>
static bool
plan_tiles(const gpo_call *call, const max_pool3d_plan &plan, int n, int rows,
           tile_plan *s)
{
    const int64_t most[POOL_AXES] = {n, n, WARP};
    for (int d = 0; d < POOL_AXES; d++) {
        s->axis[d] = plan.axis[d];
        if (pool_extent(&s->axis[d]) > most[d]) {
            return false;
        }
        cut_axis(s, s->axis[d], d, windows_in(s->axis[d], most[d]));
    }
    s->lanes = lanes_for(s->span[POOL_W]);
    const int64_t all = plan.batches * plan.channels;
    const int64_t fit = rows * WARP / s->lanes / s->span[POOL_H];
    s->planes = fit < all ? fit : all;
    s->planes = s->planes > 0 ? s->planes : 1;
    const int64_t row = s->span[POOL_H] * s->lanes * static_cast<int64_t>(sizeof(K));
    const int64_t room = shared_room(call);
    while (s->windows[POOL_T] > 1 && s->planes * s->windows[POOL_T] * row > room) {
        cut_axis(s, s->axis[POOL_T], POOL_T, ceil_div(s->windows[POOL_T], 2));
    }
    s->count = ceil_div(all, s->planes) * count_tiles(s);
    const K least = least_key_of<K>(plan, call->in[0].dtype);
    if constexpr (std::is_same_v<K, coded>) {
        s->least = least.key;
        s->least_code = least.code;
    }
    else {
        s->least = least;
    }
    return true;
}

/* ---- a column in registers ---- */

/* a[i] = larger(a[i], a[i + ahead]) for the `ahead` that comes; S is tried first. */
template <int S, typename K, int N>
__device__ __forceinline__ void
take_ahead(K (&a)[N], int ahead)
{
    if constexpr (S < N) {
        if (ahead == S) {
#pragma unroll
            for (int i = 0; i + S < N; i++) {
                a[i] = larger(a[i], a[i + S]);
            }
            return;
        }
        take_ahead<S + 1>(a, ahead);
    }
}

/* a[i] becomes the maximum of the window that begins at i. */
template <typename K, int N>
__device__ __forceinline__ void
pool_column(K (&a)[N], const pool_axis &axis)
{
    const int kernel = static_cast<int>(axis.kernel);
    const int dilation = static_cast<int>(axis.dilation);
    for (int made = 1; made < kernel;) {
        const int more = more_of(kernel, made);
        take_ahead<1>(a, more * dilation);
        made += more;
    }
}

/* Lane w gets the maximum of the window that begins at lane w. */
template <typename K>
__device__ __forceinline__ K
pool_lanes(K v, const pool_axis &axis, int lanes)
{
    const int kernel = static_cast<int>(axis.kernel);
    const int dilation = static_cast<int>(axis.dilation);
    for (int made = 1; made < kernel;) {
        const int more = more_of(kernel, made);
        v = larger(v, shuffle_down(v, more * dilation, lanes));
        made += more;
    }
    return v;
}

/* ---- one tile ---- */

/* The elements `inside` of a column of N; all loads before the first key, in its place. */
template <typename K, int N>
__device__ __forceinline__ void
load_column(K (&a)[N], const key_source &x, int64_t offset, int64_t position,
            unsigned inside)
{
    by_width<K>(x.bytes, [&](auto bits) {
        const auto *p = static_cast<const decltype(bits) *>(x.x) + offset;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (inside >> i & 1) {
                bits = *p;
                memcpy(&a[i], &bits, sizeof bits);
            }
            p += x.by[POOL_T];
        }
    });
    by_dtype<K>(x.dtype, [&](auto e) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (inside >> i & 1) {
                memcpy(&e, &a[i], sizeof e);
                a[i] = key_of<K>(e, x.with_code, position);
            }
            position += x.position[POOL_T];
        }
    });
}

template <typename K>
__device__ __forceinline__ K
least_of_tile(const tile_plan &s)
{
    if constexpr (std::is_same_v<K, coded>) {
        return {s.least, s.least_code};
    }
    else {
        return static_cast<K>(s.least);
    }
}

/* Writes every `stride`th of a column, n of them, `pitch` apart. */
template <typename K, int N>
__device__ __forceinline__ void
thin_out(const K (&a)[N], int stride, int n, K *to, int pitch)
{
    int next = 0, made = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i == next && made < n) {
            to[made * pitch] = a[i];
            next += stride;
            made++;
        }
    }
}

/* What the threads of a block need of a tile's place. */
struct tile_start {
    int64_t plane, from[POOL_AXES];
    int64_t out; /* of its first window, in a plane of y */
    int n[POOL_AXES];
};

__device__ __forceinline__ tile_start
start_of_tile(const tile_plan &s, const key_target &y, int64_t item)
{
    const tile_place at = place_of_tile(s, s.axis, item);
    tile_start start;
    start.plane = at.group * s.planes;
    start.out = 0;
#pragma unroll
    for (int d = 0; d < POOL_AXES; d++) {
        start.from[d] = at.from[d];
        start.n[d] = at.n[d];
        start.out += at.begin[d] * y.by[d];
    }
    return start;
}

template <typename K, int N, int ROWS>
__device__ __forceinline__ void
pool_tiles(const key_source &x, const key_target &y, const tile_plan &s)
{
    GPO_DYN_SHARED(K, tile);
    GPO_SHARED(tile_start, where, [1]);
    const int lanes = s.lanes, w = threadIdx.x & (lanes - 1);
    const int rows = ROWS * WARP / lanes, r = threadIdx.x / lanes;
    const int span_t = static_cast<int>(s.span[POOL_T]);
    const int span_h = static_cast<int>(s.span[POOL_H]);
    const int slices = static_cast<int>(s.windows[POOL_T]);
    const int stride_w = static_cast<int>(s.axis[POOL_W].stride);
    const K least = least_of_tile<K>(s);
    const bool is_kept = w % stride_w == 0;

    for (int64_t item = blockIdx.x; item < s.count; item += gridDim.x) {
        __syncthreads(); /* the tile before this one has been read */
        if (threadIdx.x == 0) {
            where[0] = start_of_tile(s, y, item);
        }
        __syncthreads();

        /* T: a thread holds a column */
        const int p = r / span_h, h = r - p * span_h;
        K a[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            a[i] = least;
        }
        {
            const int64_t t0 = where[0].from[POOL_T];
            const int64_t at_h = where[0].from[POOL_H] + h;
            const int64_t at_w = where[0].from[POOL_W] + w;
            const int64_t plane = where[0].plane + p;
            if (p < s.planes && plane < x.planes && at_h >= 0 && at_h < x.in[POOL_H] &&
                at_w >= 0 && at_w < x.in[POOL_W] && w < s.span[POOL_W]) {
                const int lo = t0 < 0 ? static_cast<int>(-t0) : 0;
                const int hi = static_cast<int>(least_of(span_t, x.in[POOL_T] - t0));
                const int64_t offset = x.plane(plane) + t0 * x.by[POOL_T] +
                                       at_h * x.by[POOL_H] + at_w * x.by[POOL_W];
                const int64_t position =
                    t0 * x.position[POOL_T] + at_h * x.position[POOL_H] + at_w;
                const unsigned below = ~0u >> (WARP - hi);
                load_column(a, x, offset, position, below >> lo << lo);
            }
        }
        pool_column(a, s.axis[POOL_T]);
        if (p < s.planes) {
            thin_out(a, static_cast<int>(s.axis[POOL_T].stride), where[0].n[POOL_T],
                     tile + (p * slices * span_h + h) * lanes + w, span_h * lanes);
        }
        __syncthreads();

        /* H, then W: a thread holds a column of a slice, lanes hold a row */
        const int all = static_cast<int>(s.planes) * slices;
        for (int q0 = 0; q0 < all; q0 += rows) {
            const int q = q0 + r, plane = q / slices, t = q - plane * slices;
            const bool is_mine =
                q < all && t < where[0].n[POOL_T] && where[0].plane + plane < x.planes;
            K *column = tile + (is_mine ? q : 0) * span_h * lanes + w;
#pragma unroll
            for (int i = 0; i < N; i++) {
                a[i] = is_mine && i < span_h ? column[i * lanes] : least;
            }
            pool_column(a, s.axis[POOL_H]);
            const int n = where[0].n[POOL_H];
            if (is_mine) {
                thin_out(a, static_cast<int>(s.axis[POOL_H].stride), n, column, lanes);
            }
            const int64_t out = (where[0].plane + plane) * y.outputs + where[0].out +
                                t * y.by[POOL_T] + w / stride_w;
            const bool is_stored =
                is_mine && is_kept && w / stride_w < where[0].n[POOL_W];
            by_dtype<K>(y.dtype, [&](auto type) {
                using T = decltype(type);
                T *to = static_cast<T *>(y.y) + out;
                int64_t *index = y.indices ? y.indices + out : nullptr;
#pragma unroll 4
                for (int o = 0; o < n; o++) {
                    K v = is_mine ? column[o * lanes] : least;
                    v = pool_lanes(v, s.axis[POOL_W], lanes);
                    if (is_stored) {
                        const found best = found_in(v, x.with_code);
                        *to = element_of<T>(best.key);
                        if (y.indices) {
                            *index = best.position;
                        }
                    }
                    to += y.by[POOL_H];
                    index += y.indices ? y.by[POOL_H] : 0;
                }
            });
        }
    }
}

/* ---- one axis at a time, through global memory ---- */

/* Elements [first, first + count) of all planes in C order, as keys. */
template <typename K>
__device__ __forceinline__ void
load_keys(const key_source &x, K *keys, int64_t first, int64_t count)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < count;
         k += step) {
        int64_t rest = first + k;
        int64_t offset = 0, position = 0;
#pragma unroll
        for (int d = POOL_W; d >= POOL_T; d--) {
            const int64_t at = rest % x.in[d];
            rest /= x.in[d];
            offset += at * x.by[d];
            position += at * x.position[d];
        }
        offset += x.plane(rest);
        by_dtype<K>(x.dtype, [&](auto type) {
            using T = decltype(type);
            const T e = static_cast<const T *>(x.x)[offset];
            keys[k] = key_of<K>(e, x.with_code, position);
        });
    }
}

/* Windows along one axis whose neighbours lie `inner` keys apart. */
template <typename K>
__device__ __forceinline__ void
pool_lines(const K *from, K *to, const pool_axis &a, int64_t inner, int64_t count,
           K least)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < count;
         i += step) {
        const int64_t line = i / inner, outer = line / a.out;
        const K *p = from + outer * a.in * inner + (i - line * inner);
        const stretch w = stretch_of(a, line - outer * a.out);
        K best = least;
        for (int64_t k = w.first; k < w.end; k += a.dilation) {
            best = larger(best, p[k * inner]);
        }
        to[i] = best;
    }
}

template <typename K>
__device__ __forceinline__ void
store_keys(const K *keys, const key_source &x, const key_target &y, int64_t first,
           int64_t count)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    const bool turned = y.by[POOL_T] < y.by[POOL_H];
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < count;
         k += step) {
        int64_t i = first + k;
        if (turned) { /* keys lie in the order (H, T, W) of y's axes */
            const int64_t plane = i / y.outputs, rest = i - plane * y.outputs;
            const int64_t line = rest / y.by[POOL_T], w = rest - line * y.by[POOL_T];
            const int64_t lines = y.outputs / y.by[POOL_H]; /* along H */
            i = plane * y.outputs + line / lines * y.by[POOL_T] +
                line % lines * y.by[POOL_H] + w;
        }
        const found best = found_in(keys[k], x.with_code);
        by_dtype<K>(y.dtype, [&](auto type) {
            using T = decltype(type);
            static_cast<T *>(y.y)[i] = element_of<T>(best.key);
        });
        if (y.indices) {
            y.indices[i] = best.position;
        }
    }
}

#endif
