/*
 * any_rows.cu  Results whose rows are not aligned to 16 bytes, or that have fewer rows
 * than x.  A thread has 16 aligned bytes of the result, whatever rows they are of; it
 * finds the row of the first element by multiplications, and the next rows by counting.
 * Cost:  each byte of the result once, in stores of 16 bytes except at the ends of the
 *        array; elements are loaded one by one, mostly from L1.
 */
#include "../walks.cuh"

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

template <typename T>
gpo_status
upsample_nearest_any_rows(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
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
