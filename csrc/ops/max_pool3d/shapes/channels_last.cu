/*
 * channels_last.cu  Channels lie beside each other in x; y, as always, has planes.  A
 * block has some channels of a run of outputs.  A thread reads packs of channels, 16
 * bytes where they are aligned, one for each element of its window; the results go
 * through shared memory, so that each plane's are stored beside each other.
 * Cost:  each element once per window, mostly from L1 and L2, in whole sectors; y and
 *        the indices are written once, in runs of 64 outputs of a plane, or of all of
 *        them.  The address of a load, and its place, are those of a whole pack.
 */
#include "../channels.cuh"
#include "../taps.cuh"

#include "../../../device/vec.cuh"

struct channel_axis {
    tap_axis taps;
    int place; /* positions of a plane from an element of a window to the next */
};

template <typename T>
struct channel_view {
    const T *x;
    T *y;
    int64_t *indices; /* NULL if not wanted */
    int64_t by_batch;
    channel_axis axis[POOL_AXES];
    bool has_gaps;
    int channels, outputs; /* outputs of a plane */
    int packs, lanes, rows, run, pitch;
    divider tiles, runs;         /* of a batch */
    divider per_lane;            /* threads of an output */
    divider per_run, per_last;   /* outputs of a run, and of the last of a plane */
    divider per_slice, per_line; /* outputs */
};

/* ---- packs ---- */

template <int BYTES>
struct word_type;
template <>
struct word_type<16> {
    using type = uint4;
};
template <>
struct word_type<8> {
    using type = uint2;
};
template <>
struct word_type<4> {
    using type = uint32_t;
};
template <>
struct word_type<2> {
    using type = uint16_t;
};

template <typename T, int VEC>
struct channel_pack {
    T v[VEC];
};

template <typename T, int VEC>
using pack_word = typename word_type<VEC * sizeof(T)>::type;

template <typename T, int VEC>
__device__ __forceinline__ pack_word<T, VEC>
load_word(const char *from)
{
    const auto *p = reinterpret_cast<const pack_word<T, VEC> *>(from);
    if constexpr (sizeof(*p) == 16) {
        return load_streamed(p);
    }
    else {
        return *p;
    }
}

/* The maximum of each channel, nan if one is; of 16-bit floats two at a time. */
template <typename T, int VEC>
struct channel_maxima {
    channel_pack<T, VEC> most;

    __device__ __forceinline__ void clear(int)
    {
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            most.v[k] = stored_as<T>(least_value<value_type<T>>());
        }
    }

    __device__ __forceinline__ void take(const channel_pack<T, VEC> &e, int)
    {
        if constexpr (sizeof(T) == 2 && VEC > 1) {
            using pair = typename half_pair<T>::type;
            pair a[VEC / 2], b[VEC / 2];
            memcpy(a, static_cast<const void *>(&most), sizeof a);
            memcpy(b, static_cast<const void *>(&e), sizeof b);
#pragma unroll
            for (int k = 0; k < VEC / 2; k++) {
                a[k] = __hmax2_nan(a[k], b[k]);
            }
            memcpy(static_cast<void *>(&most), a, sizeof a);
        }
        else {
#pragma unroll
            for (int k = 0; k < VEC; k++) {
                const value_type<T> value = value_of(e.v[k]), old = value_of(most.v[k]);
                if constexpr (sizeof(value) == 4) {
                    most.v[k] = stored_as<T>(largest(old, value));
                }
                else {
                    most.v[k] = value > old || value != value ? value : old;
                }
            }
        }
    }

    __device__ __forceinline__ T value(int k) const
    {
        return most.v[k];
    }
};

/* The same with places of the maxima: PyTorch's test. */
template <typename T, int VEC>
struct placed_maxima {
    value_type<T> most[VEC];
    int at[VEC];

    __device__ __forceinline__ void clear(int place)
    {
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            most[k] = least_value<value_type<T>>();
            at[k] = place;
        }
    }

    __device__ __forceinline__ void take(const channel_pack<T, VEC> &e, int place)
    {
#pragma unroll
        for (int k = 0; k < VEC; k++) {
            const value_type<T> value = value_of(e.v[k]);
            const bool better = value > most[k] || value != value;
            most[k] = better ? value : most[k];
            at[k] = better ? place : at[k];
        }
    }

    __device__ __forceinline__ T value(int k) const
    {
        return stored_as<T>(most[k]);
    }
};

/* ---- a window ---- */

template <typename T>
__device__ __forceinline__ tap_range
range_of(const channel_view<T> &v, int d, int o)
{
    const tap_axis &a = v.axis[d].taps;
    return v.has_gaps ? taps_of<true>(a, o) : taps_of<false>(a, o);
}

/* Goes through the elements of a window in C order. */
struct window_walk {
    int cols, rows;
    int col, row;
    int offset, place;            /* of the element: bytes, positions of the plane */
    int by_col, by_row, by_slice; /* to the next, from the last of a row, of a slice */
    int place_col, place_row, place_slice;

    __device__ __forceinline__ void next()
    {
        offset += by_col;
        place += place_col;
        if (++col == cols) {
            col = 0;
            offset += by_row;
            place += place_row;
            if (++row == rows) {
                row = 0;
                offset += by_slice;
                place += place_slice;
            }
        }
    }
};

template <typename T, int VEC, typename Maxima>
__device__ __forceinline__ void
pool_window(const channel_view<T> &v, const T *x, int out, Maxima *best)
{
    constexpr int FLIGHT = VEC * sizeof(T) == 16 ? PACKS_IN_FLIGHT : TAPS_IN_FLIGHT;
    const int line = v.per_line.narrow(out), slice = v.per_slice.narrow(line);
    const tap_range t = range_of(v, POOL_T, slice);
    const tap_range h =
        range_of(v, POOL_H, line - slice * static_cast<int>(v.per_slice.by));
    const tap_range w =
        range_of(v, POOL_W, out - line * static_cast<int>(v.per_line.by));
    const channel_axis *a = v.axis;
    const int taps = t.count * h.count * w.count;
    const int row = a[POOL_H].taps.in * a[POOL_W].taps.in;
    window_walk at = {};
    at.cols = w.count;
    at.rows = h.count;
    at.by_col = a[POOL_W].taps.step;
    at.by_row = a[POOL_H].taps.step - w.count * at.by_col;
    at.by_slice = a[POOL_T].taps.step - h.count * a[POOL_H].taps.step;
    at.place_col = a[POOL_W].place;
    at.place_row = a[POOL_H].place - w.count * at.place_col;
    at.place_slice = a[POOL_T].place - h.count * a[POOL_H].place;
    at.place = t.first * row + h.first * a[POOL_W].taps.in + w.first;
    const char *from = reinterpret_cast<const char *>(x) +
                       (static_cast<int64_t>(t.first) * a[POOL_T].taps.by +
                        static_cast<int64_t>(h.first) * a[POOL_H].taps.by +
                        static_cast<int64_t>(w.first) * a[POOL_W].taps.by);
    best->clear(taps > 0 ? at.place : -1);
    for (int i = 0; i < taps; i += FLIGHT) {
        pack_word<T, VEC> e[FLIGHT];
        int place[FLIGHT];
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (i + k < taps) {
                e[k] = load_word<T, VEC>(from + at.offset);
                place[k] = at.place;
                at.next();
            }
        }
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            if (i + k < taps) {
                channel_pack<T, VEC> one;
                memcpy(static_cast<void *>(&one), &e[k], sizeof one);
                best->take(one, place[k]);
            }
        }
    }
}

/* ---- the kernel ---- */

template <typename T, int VEC, bool INDICES>
__global__ void
__launch_bounds__(CHANNEL_BLOCK, INDICES || VEC * sizeof(T) == 8 ? 4 : 5)
    max_pool3d_channels_last_kernel(channel_view<T> v)
{
    constexpr int ROOM = channel_room(VEC, VEC * static_cast<int>(sizeof(T)));
    GPO_SHARED(T, values, [ROOM]);
    GPO_SHARED(int, places, [INDICES ? ROOM : 1]);
    const int tid = threadIdx.x;
    const int item = v.tiles.narrow(static_cast<int>(blockIdx.x));
    const int tile = static_cast<int>(blockIdx.x) - item * static_cast<int>(v.tiles.by);
    const int batch = v.runs.narrow(item);
    const int first = (item - batch * static_cast<int>(v.runs.by)) * v.run;
    const int n = v.outputs - first < v.run ? v.outputs - first : v.run;
    const int row = v.per_lane.narrow(tid), lane = tid - row * v.lanes;
    const int channel = tile * v.lanes * VEC;
    if (row < v.rows && tile * v.lanes + lane < v.packs) {
        const T *x = v.x + batch * v.by_batch + channel + lane * VEC;
        for (int o = row; o < n; o += v.rows) {
            std::conditional_t<INDICES, placed_maxima<T, VEC>, channel_maxima<T, VEC>>
                best;
            pool_window<T, VEC>(v, x, first + o, &best);
#pragma unroll
            for (int k = 0; k < VEC; k++) {
                const int to = (lane * VEC + k) * v.pitch + o;
                values[to] = best.value(k);
                if constexpr (INDICES) {
                    places[to] = best.at[k];
                }
            }
        }
    }
    __syncthreads();
    const int left = v.channels - channel;
    const int channels = left < v.lanes * VEC ? left : v.lanes * VEC;
    const divider &per_channel = n == v.run ? v.per_run : v.per_last;
    const int64_t begin =
        (static_cast<int64_t>(batch) * v.channels + channel) * v.outputs + first;
    for (int e = tid; e < channels * n; e += blockDim.x) {
        const int c = per_channel.narrow(e), o = e - c * n;
        const int64_t to = begin + static_cast<int64_t>(c) * v.outputs + o;
        v.y[to] = values[c * v.pitch + o];
        if constexpr (INDICES) {
            v.indices[to] = places[c * v.pitch + o];
        }
    }
}

/* ---- launch ---- */

template <typename T, int VEC, bool INDICES>
static gpo_status
run(gpo_call *call, const channel_plan &s)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const pool_axis *a = plan.axis;
    const int64_t place[POOL_AXES] = {a[POOL_H].in * a[POOL_W].in, a[POOL_W].in, 1};
    channel_view<T> v = {};
    v.x = static_cast<const T *>(call->in[0].data);
    v.y = static_cast<T *>(call->out[0].data);
    v.indices = max_pool3d_indices_of(call);
    v.by_batch = plan.by_batch;
    for (int d = 0; d < POOL_AXES; d++) {
        v.axis[d].taps = tap_axis_of(a[d], plan.by[d] * static_cast<int>(sizeof(T)));
        v.axis[d].place = static_cast<int>(place[d] * a[d].dilation);
        v.has_gaps = v.has_gaps || a[d].dilation > 1;
    }
    v.channels = static_cast<int>(plan.channels);
    v.outputs = static_cast<int>(plan.outputs);
    v.packs = v.channels / VEC;
    v.lanes = s.lanes;
    v.rows = s.rows;
    v.run = s.run;
    v.pitch = s.run | 1;
    v.tiles = divider_of(s.tiles);
    v.runs = divider_of(s.runs);
    v.per_lane = divider_of(s.lanes);
    v.per_run = divider_of(s.run);
    v.per_last = divider_of(plan.outputs - (s.runs - 1) * s.run);
    v.per_slice = divider_of(a[POOL_H].out);
    v.per_line = divider_of(a[POOL_W].out);
    const int64_t blocks = static_cast<int64_t>(s.batches) * s.runs * s.tiles;
    const int64_t warps = ceil_div(s.lanes * s.rows, WARP);
    return GPO_LAUNCH(call, grid_of(blocks), dim3(static_cast<unsigned>(warps * WARP)),
                      0, (max_pool3d_channels_last_kernel<T, VEC, INDICES>), v);
}

template <typename T, int VEC>
static gpo_status
run_packs(gpo_call *call, const channel_plan &s)
{
    return max_pool3d_plan_of(call)->with_indices ? run<T, VEC, true>(call, s)
                                                  : run<T, VEC, false>(call, s);
}

template <typename T>
gpo_status
max_pool3d_channels_last(gpo_call *call)
{
    constexpr int WIDE = 16 / sizeof(T);
    const channel_plan s =
        plan_channels(call, reinterpret_cast<uintptr_t>(call->in[0].data));
    if (s.pack == WIDE) {
        return run_packs<T, WIDE>(call, s);
    }
    if constexpr (sizeof(T) == 2) {
        if (s.pack == 2) {
            return run_packs<T, 2>(call, s);
        }
    }
    return run_packs<T, 1>(call, s);
}

#define INSTANTIATE(T) template gpo_status max_pool3d_channels_last<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
