/*
 * any_rows.cu  Results whose rows are not aligned to 16 bytes, or that have fewer rows
 * than x.  A thread has 16 aligned bytes of the result, whatever rows they are of; it
 * finds the row of the first element by multiplications, and the next rows by counting.
 * Where several long rows copy a row of x, a warp stores its elements to all of them.
 * Cost:  each byte of the result once, in stores of 16 bytes except at the ends of the
 *        array, or of elements side by side; elements are loaded one by one, mostly from L1.
 * Order: packs of the result, copies of rows, the launch.
 */
#include "../walks.cuh"

/* ---- packs of the result ---- */

/* The result as packs, of which the first begins `past` elements before the array. */
struct pack_walk {
    int64_t size; /* elements of the result */
    int past;
    divider row;            /* elements of a row of the result */
    divider h, d, channels; /* lengths of the result */
};

/* The row of x that row `number` of the result copies, which is row h of a plane. */
template <typename T>
struct source_row {
    int number, h;
    const T *plane, *x;

    __device__ __forceinline__ void find(const upsample_plan &p, const pack_walk &walk)
    {
        const int slice = walk.h.narrow(number), image = walk.d.narrow(slice);
        const int a = walk.channels.narrow(image);
        const int b = image - a * static_cast<int>(walk.channels.by);
        const int d = slice - image * static_cast<int>(walk.d.by);
        h = number - slice * static_cast<int>(walk.h.by);
        plane = static_cast<const T *>(p.from) + a * p.stride[UPSAMPLE_A] +
                b * p.stride[UPSAMPLE_B] +
                source_column(p.axis[0], d) * p.stride[UPSAMPLE_D];
        x = plane + source_column(p.axis[1], h) * p.stride[UPSAMPLE_H];
    }

    __device__ __forceinline__ void next(const upsample_plan &p, const pack_walk &walk)
    {
        number++;
        h++;
        if (h == static_cast<int>(walk.h.by)) {
            find(p, walk);
        }
        else {
            x = plane + source_column(p.axis[1], h) * p.stride[UPSAMPLE_H];
        }
    }
};

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_any_rows_kernel(upsample_plan p, pack_walk walk)
{
    constexpr int SIZE = PACK<T>;
    const int64_t begin =
        (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) * SIZE - walk.past;
    if (begin >= walk.size) {
        return;
    }
    const int64_t first = begin > 0 ? begin : 0;
    const int inner = static_cast<int>(p.inner),
              width = static_cast<int>(p.axis[2].out);
    source_row<T> row;
    row.number = static_cast<int>(walk.row.of(first));
    row.find(p, walk);
    const int column = static_cast<int>(first - row.number * walk.row.by);
    int w = inner > 1 ? column / inner : column, c = column - w * inner;
    T v[SIZE] = {};
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        const int64_t i = begin + k;
        if (i >= 0 && i < walk.size) {
            if (w == width) {
                w = 0;
                row.next(p, walk);
            }
            v[k] = row.x[source_column(p.axis[2], w) * p.stride[UPSAMPLE_W] +
                         c * p.stride[UPSAMPLE_I]];
            c++;
            w += c == inner;
            c = c == inner ? 0 : c;
        }
    }
    T *const to = static_cast<T *>(p.to) + begin;
    if (begin >= 0 && begin + SIZE <= walk.size) {
        uint4 bits;
        memcpy(static_cast<void *>(&bits), v, sizeof bits);
        store_streamed(reinterpret_cast<uint4 *>(to), bits);
        return;
    }
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        const int64_t i = begin + k;
        if (i >= 0 && i < walk.size) {
            to[k] = v[k];
        }
    }
}

/* ---- copies of rows ---- */

/* The rows of x, of which a warp takes COPIED columns of the result. */
struct copy_walk {
    int64_t units;          /* warps */
    divider tiles;          /* warps of a row */
    divider h, d, channels; /* lengths of x */
    int64_t row;            /* elements of a row of the result */
};

constexpr int COPIED_AT_ONCE = 4, COPIED = COPIED_AT_ONCE * WARP;

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_copied_rows_kernel(upsample_plan p, copy_walk walk)
{
    const int lane = threadIdx.x % WARP;
    const int64_t unit =
        static_cast<int64_t>(blockIdx.x) * (BLOCK / WARP) + threadIdx.x / WARP;
    if (unit >= walk.units) {
        return;
    }
    const int64_t number = walk.tiles.of(unit), slice = walk.h.of(number);
    const int64_t image = walk.d.of(slice), a = walk.channels.of(image);
    const int64_t d = slice - image * walk.d.by, h = number - slice * walk.h.by;
    const range depths = outputs_of(p.axis[0], d), heights = outputs_of(p.axis[1], h);
    const T *const x = static_cast<const T *>(p.from) + a * p.stride[UPSAMPLE_A] +
                       (image - a * walk.channels.by) * p.stride[UPSAMPLE_B] +
                       d * p.stride[UPSAMPLE_D] + h * p.stride[UPSAMPLE_H];
    const int64_t first = (unit - number * walk.tiles.by) * COPIED + lane;
    T v[COPIED_AT_ONCE];
#pragma unroll
    for (int u = 0; u < COPIED_AT_ONCE; u++) {
        const int64_t column = first + u * WARP;
        if (column < walk.row) {
            v[u] = x[source_column(p.axis[2], static_cast<int>(column)) *
                     p.stride[UPSAMPLE_W]];
        }
    }
    T *const plane =
        static_cast<T *>(p.to) + image * p.axis[0].out * p.axis[1].out * walk.row;
    for (int64_t k = depths.first; k < depths.end; k++) {
        for (int64_t j = heights.first; j < heights.end; j++) {
            T *const to = plane + (k * p.axis[1].out + j) * walk.row;
#pragma unroll
            for (int u = 0; u < COPIED_AT_ONCE; u++) {
                const int64_t column = first + u * WARP;
                if (column < walk.row) {
                    to[column] = v[u];
                }
            }
        }
    }
}

/* Whether two rows and more of a result that is not small, of a warp and more, copy a row. */
static bool
copies_rows(const upsample_nearest_plan &p)
{
    constexpr int64_t LONG = 2 * WARP, MANY = 1 << 18;
    const int64_t rows = p.axis[0].in * p.axis[1].in;
    return p.inner == 1 && p.row >= LONG && p.size >= MANY &&
           p.axis[0].out >= p.axis[0].in && p.axis[1].out >= p.axis[1].in &&
           p.axis[0].out * p.axis[1].out >= 2 * rows;
}

template <typename T>
static gpo_status
copy_rows(gpo_call *call, const upsample_nearest_plan &p)
{
    copy_walk walk = {};
    const int64_t tiles = ceil_div(p.row, COPIED);
    walk.units = p.images * p.channels * p.axis[0].in * p.axis[1].in * tiles;
    walk.tiles = divider_of(tiles);
    walk.h = divider_of(p.axis[1].in);
    walk.d = divider_of(p.axis[0].in);
    walk.channels = divider_of(p.channels);
    walk.row = p.row;
    return GPO_LAUNCH(call, grid_of(ceil_div(walk.units, BLOCK / WARP)), BLOCK, 0,
                      (upsample_nearest_copied_rows_kernel<T>), argument_of(call),
                      walk);
}

/* ---- the launch ---- */

template <typename T>
gpo_status
upsample_nearest_any_rows(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    if constexpr (sizeof(T) > 1) { /* a store of a warp would be of 32 bytes */
        if (copies_rows(p)) {
            return copy_rows<T>(call, p);
        }
    }
    pack_walk walk = {};
    walk.size = p.size;
    walk.past = static_cast<int>(reinterpret_cast<uintptr_t>(call->out[0].data) % 16 /
                                 sizeof(T));
    walk.row = divider_of(p.row);
    walk.h = divider_of(p.axis[1].out);
    walk.d = divider_of(p.axis[0].out);
    walk.channels = divider_of(p.channels);
    return GPO_LAUNCH(call, grid_of_threads(ceil_div(p.size + walk.past, PACK<T>)),
                      BLOCK, 0, (upsample_nearest_any_rows_kernel<T>),
                      argument_of(call), walk);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_any_rows<T>(gpo_call * call);
UPSAMPLE_NEAREST_EVERY_WIDTH(INSTANTIATE)
