/*
 * backward_aligned_rows.cu  Gradients whose rows move in words of 16 bytes: contiguous
 * channels, rows of dy as long as those of dx, or twice as long.  Rows are found with
 * carries instead of divisions, or where contiguous rows are twice as long and not more
 * in number are none: all pairs lie on end.
 * Cost:  each byte once; up to four loads of 16 bytes are in flight before the first is
 *        added.
 */
#include "../walks.cuh"

/* sum[k] += y[k], or y[2 k] and y[2 k + 1], for the 16 bytes y of a row of dy. */
template <typename T, row_mode MODE>
__device__ __forceinline__ void
add_pack(typename sum_of<T>::type *sum, uint4 bits)
{
    constexpr int SIZE = PACK<T>;
    const pack<T> y = pack_of<T>(bits);
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        add_to(sum[MODE == PAIRS ? k / 2 : k], y.v[k]);
    }
}

/*
 * PAIRS: 16 bytes of each row of dy give 8 bytes of dx.  WHOLE: 16 bytes of each pixel
 * give 16 bytes.  Up to four loads are in flight before the first is added.
 */
template <typename T, row_mode MODE>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_aligned_rows_kernel(upsample_plan p, row_walk walk)
{
    using V = typename sum_of<T>::type;
    constexpr int SIZE = PACK<T>, SUMS = MODE == PAIRS ? SIZE / 2 : SIZE,
                  FLIGHT = DY_PACKS;
    const walker w = start_walk(walk, 1);
    if (w.unit >= walk.units || w.number >= walk.rows) {
        return;
    }
    /* The unit's first pack in a row of dy, the distance to the next, their number. */
    int at = static_cast<int>(w.unit) * SIZE, across = 0;
    column_range n = {0, 1};
    if (MODE == WHOLE && p.inner > 1) {
        const int inner = static_cast<int>(p.inner), s = at / inner;
        across = static_cast<int>(p.stride[UPSAMPLE_W]);
        n = columns_of(p.axis[2], s);
        at += n.first * across - s * inner;
    }
    const column_range d = columns_of(p.axis[0], static_cast<int>(w.at.d));
    const column_range h = columns_of(p.axis[1], static_cast<int>(w.at.h));
    const int high = h.end - h.first, wide = n.end - n.first;
    const int terms = (d.end - d.first) * high * wide;
    const T *plane =
        static_cast<const T *>(p.from) + at + row_offset(p, w.at, d.first, h.first);
    const T *y = plane;
    int m = 0, x = 0; /* of the next term, carried from axis to axis */
    V sum[SUMS] = {};
    for (int t = 0; t < terms; t += FLIGHT) {
        uint4 bits[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            if (t + f < terms) {
                bits[f] =
                    load_streamed(reinterpret_cast<const uint4 *>(y + x * across));
                x++;
                if (x == wide) {
                    x = 0;
                    m++;
                    y += p.stride[UPSAMPLE_H];
                }
                if (m == high) {
                    m = 0;
                    plane += p.stride[UPSAMPLE_D];
                    y = plane;
                }
            }
        }
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            if (t + f < terms) {
                add_pack<T, MODE>(sum, bits[f]);
            }
        }
    }
    const int64_t row = p.axis[2].in * p.inner;
    store_sums<T, SUMS>(static_cast<T *>(p.to) + w.number * row + w.unit * SUMS, sum);
}

/* ---- pairs on end ---- */

/* Whether all of dx are sums of pairs of neighbours, as dy is, in words of 16 bytes. */
template <typename T>
static bool
has_pairs_on_end(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    bool good = p.inner == 1 && p.axis[2].log == 1 &&
                p.axis[2].out == 2 * p.axis[2].in && p.size * 2 % PACK<T> == 0 &&
                lies_on(call->in[0].data, 16) && lies_on(call->out[0].data, 8);
    for (int k = 0; k < 2; k++) {
        good = good && p.axis[k].log == 0 && p.axis[k].in == p.axis[k].out;
    }
    int64_t apart = 1;
    for (int k = UPSAMPLE_W; k >= UPSAMPLE_A; k--) {
        good = good && (p.length[k] == 1 || p.stride[k] == apart);
        apart *= p.length[k];
    }
    return good;
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_pairs_on_end_kernel(const T *dy, T *dx, int64_t packs)
{
    using V = typename sum_of<T>::type;
    constexpr int SIZE = PACK<T>, SUMS = SIZE / 2;
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * (BLOCK * DY_PACKS) + threadIdx.x;
    uint4 bits[DY_PACKS];
#pragma unroll
    for (int k = 0; k < DY_PACKS; k++) {
        const int64_t at = first + k * BLOCK;
        if (at < packs) {
            bits[k] = load_streamed(reinterpret_cast<const uint4 *>(dy) + at);
        }
    }
#pragma unroll
    for (int k = 0; k < DY_PACKS; k++) {
        const int64_t at = first + k * BLOCK;
        if (at < packs) {
            V sum[SUMS] = {};
            add_pack<T, PAIRS>(sum, bits[k]);
            store_sums<T, SUMS>(dx + at * SUMS, sum);
        }
    }
}

template <typename T>
static gpo_status
run_on_end(gpo_call *call)
{
    const int64_t packs = upsample_nearest_plan_of(call)->size * 2 / PACK<T>;
    const dim3 grid(static_cast<unsigned>(ceil_div(packs, BLOCK * DY_PACKS)));
    return GPO_LAUNCH(call, grid, BLOCK, 0,
                      (upsample_nearest_backward_pairs_on_end_kernel<T>),
                      static_cast<const T *>(call->in[0].data),
                      static_cast<T *>(call->out[0].data), packs);
}

/* ---- launch ---- */

template <typename T, row_mode MODE>
static gpo_status
run(gpo_call *call, int64_t units)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    dim3 grid;
    const row_walk walk = walk_of(p, p.axis[0].in, p.axis[1].in, units, 1, &grid);
    return GPO_LAUNCH(call, grid, BLOCK, 0,
                      (upsample_nearest_backward_aligned_rows_kernel<T, MODE>),
                      argument_of(call), walk);
}

template <typename T>
gpo_status
upsample_nearest_backward_aligned_rows(gpo_call *call)
{
    constexpr int SIZE = PACK<T>;
    const int64_t row = upsample_nearest_plan_of(call)->row;
    if (!takes_aligned_rows_of_dy(call)) {
        return upsample_nearest_backward_any_rows<T>(call);
    }
    if constexpr (SIZE > 1) {
        if (has_pairs_on_end<T>(call)) {
            return run_on_end<T>(call);
        }
        if (!has_whole_packs(call)) {
            return run<T, PAIRS>(call, row * 2 / SIZE);
        }
    }
    return run<T, WHOLE>(call, row / SIZE);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_backward_aligned_rows<T>(gpo_call * call);
UPSAMPLE_NEAREST_EVERY_SUM(INSTANTIATE)
