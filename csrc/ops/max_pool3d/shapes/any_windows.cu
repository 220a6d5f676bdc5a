/*
 * any_windows.cu  Windows of any size, stride, padding and dilation, where 31 bits
 * count elements.  A thread has one output and no shared memory: small problems cost
 * one launch and the time of a few loads.  Windows that are large and few are shared by
 * up to a warp of lanes.
 * Cost:  each element once per window, mostly from L1: runs of 2 to 4 elements of a row,
 *        8 or 9 loads in flight; no division but by the host's divisors.
 */
#include "../taps.cuh"

#include "../../../device/warp.cuh"

constexpr int LOG_WARP = 5;
static_assert(WARP == 1 << LOG_WARP && MOST_LOG_SHARED <= LOG_WARP, "lanes of a warp");

/*
 * WHOLE_ROWS: a row of a window is one run.  LONG_ROWS: it is some.  GENERAL: so it is,
 * windows may be dilated, and lanes may share one.
 */
enum mode { WHOLE_ROWS, LONG_ROWS, GENERAL };

template <typename T>
struct tap_view {
    const T *x;
    T *y;
    int64_t *indices; /* NULL if not wanted */
    int64_t by_batch, by_channel;
    tap_axis axis[POOL_AXES];
    divider per_row, per_slice, per_plane, per_batch; /* W, H, T of y; channels */
    int outputs;
    bool takes_channels;       /* lanes have channels beside each other, not columns */
    divider of_plane;          /* outputs */
    int log_across, log_lanes; /* windows of a warp; lanes of a window */
    unsigned flip;             /* the sign bit for unsigned integers, else 0 */
};

/* ---- elements as numbers that compare as they do ---- */

/* T stands for signed integers; with the sign bit flipped, for unsigned ones. */
template <typename T>
__device__ __forceinline__ auto
number_of(T e, unsigned flip)
{
    if constexpr (IS_FLOAT<T>) {
        return value_of(e);
    }
    else if constexpr (sizeof(T) == 8) {
        return static_cast<int64_t>(e ^ static_cast<uint64_t>(flip) << 32);
    }
    else {
        constexpr int ABOVE = 32 - 8 * static_cast<int>(sizeof(T));
        return static_cast<int32_t>(static_cast<uint32_t>(e) << ABOVE ^ flip);
    }
}

template <typename T, typename V>
__device__ __forceinline__ T
element_from(V number, unsigned flip)
{
    if constexpr (IS_FLOAT<T>) {
        return stored_as<T>(number);
    }
    else if constexpr (sizeof(T) == 8) {
        return static_cast<T>(number) ^ static_cast<T>(flip) << 32;
    }
    else {
        constexpr int ABOVE = 32 - 8 * static_cast<int>(sizeof(T));
        return static_cast<T>((static_cast<uint32_t>(number) ^ flip) >> ABOVE);
    }
}

/* ---- the largest element of some runs ---- */

/* The largest element so far, and the number of its place in the order of a window. */
template <typename V>
struct numbered {
    V most;
    int number;
};

/* Joins what two lanes found: the first of equal elements, the last nan. */
template <typename V>
__device__ __forceinline__ numbered<V>
join(const numbered<V> &a, const numbered<V> &b)
{
    const bool a_nan = a.most != a.most, b_nan = b.most != b.most;
    const bool later = b.number > a.number;
    const bool better =
        b_nan ? !a_nan || later
              : !a_nan && (b.most > a.most || (b.most == a.most && !later));
    return better ? b : a;
}

/* Runs [begin, end) of a window: `rows` rows of `chunks` runs in each slice. */
struct run_range {
    int begin, end;
    int rows, chunks;
    int last; /* where the last run of a row begins, in elements of the window */
};

/* The first of such runs. */
struct run_place {
    int slice, row, chunk;
};

template <typename T, int TAPS, mode MODE, typename V>
__device__ __forceinline__ numbered<V>
scan_runs(const tap_view<T> &v, const char *x, const run_range &r, run_place at,
          const int (&col)[TAPS])
{
    constexpr int RUNS = TAPS_IN_FLIGHT / TAPS;
    numbered<V> best = {least_value<V>(), r.begin * TAPS};
    for (int run = r.begin; run < r.end; run += RUNS) {
        T e[RUNS][TAPS]; /* as x stores them: a conversion would wait */
#pragma unroll
        for (int k = 0; k < RUNS; k++) {
            if (run + k < r.end) {
                int offset =
                    at.slice * v.axis[POOL_T].step + at.row * v.axis[POOL_H].step;
                if constexpr (MODE != WHOLE_ROWS) {
                    const int begin = at.chunk * TAPS;
                    offset += (begin < r.last ? begin : r.last) * v.axis[POOL_W].step;
                    at.chunk++;
                    at.row += at.chunk == r.chunks;
                    at.chunk = at.chunk == r.chunks ? 0 : at.chunk;
                }
                else {
                    at.row++;
                }
                at.slice += at.row == r.rows;
                at.row = at.row == r.rows ? 0 : at.row;
                const char *from = x + offset;
#pragma unroll
                for (int c = 0; c < TAPS; c++) {
                    e[k][c] = *reinterpret_cast<const T *>(from + col[c]);
                }
            }
        }
        int found = -1;
#pragma unroll
        for (int k = 0; k < RUNS; k++) {
            if (run + k < r.end) {
#pragma unroll
                for (int c = 0; c < TAPS; c++) {
                    const V value = number_of(e[k][c], v.flip);
                    const bool better = value > best.most || value != value;
                    best.most = better ? value : best.most;
                    found = better ? k * TAPS + c : found;
                }
            }
        }
        best.number = found >= 0 ? run * TAPS + found : best.number;
    }
    return best;
}

/* Output `number` in the order of lanes: that of y, or channels first. */
template <typename T>
__device__ __forceinline__ int
output_of(const tap_view<T> &v, int number)
{
    if (!v.takes_channels || number >= v.outputs) {
        return number;
    }
    const int channels = static_cast<int>(v.per_batch.by);
    const int outputs = static_cast<int>(v.of_plane.by);
    const int of_batch = v.per_batch.narrow(number),
              batch = v.of_plane.narrow(of_batch);
    const int plane = batch * channels + number - of_batch * channels;
    return plane * outputs + of_batch - batch * outputs;
}

/* The window of an output, of which it has the elements in x along each axis. */
struct tap_window {
    tap_range t, h, w;
    int64_t plane; /* offset of its plane in x, in elements */
};

template <typename T, bool GENERAL>
__device__ __forceinline__ tap_window
window_of(const tap_view<T> &v, int out)
{
    const int line = v.per_row.narrow(out), slice = v.per_slice.narrow(line);
    const int plane = v.per_plane.narrow(slice), batch = v.per_batch.narrow(plane);
    const int channel = plane - batch * static_cast<int>(v.per_batch.by);
    const tap_axis *a = v.axis;
    return {
        taps_of<GENERAL>(a[POOL_T], slice - plane * static_cast<int>(v.per_plane.by)),
        taps_of<GENERAL>(a[POOL_H], line - slice * static_cast<int>(v.per_slice.by)),
        taps_of<GENERAL>(a[POOL_W], out - line * static_cast<int>(v.per_row.by)),
        batch * v.by_batch + channel * v.by_channel};
}

/* The position in its plane of the element with a number. */
template <typename T, int TAPS>
__device__ __forceinline__ int64_t
position_of(const tap_view<T> &v, const tap_window &o, const run_range &r, int number)
{
    const int run = number / TAPS, line = run / r.chunks, slice = line / r.rows;
    int begin = (run - line * r.chunks) * TAPS;
    begin = begin < r.last ? begin : r.last;
    const int c = number - run * TAPS, end = o.w.count - 1;
    const tap_axis *a = v.axis;
    const int t = o.t.first + slice * a[POOL_T].dilation;
    const int h = o.h.first + (line - slice * r.rows) * a[POOL_H].dilation;
    const int w = o.w.first + (begin + (c < end ? c : end)) * a[POOL_W].dilation;
    return (t * a[POOL_H].in + h) * a[POOL_W].in + w;
}

template <typename T, int TAPS, mode MODE>
__global__ void
__launch_bounds__(TAP_BLOCK) max_pool3d_any_windows_kernel(tap_view<T> v)
{
    using V = decltype(number_of(T(), 0u));
    constexpr bool SHARED = MODE == GENERAL;
    int out = blockIdx.x * TAP_BLOCK + threadIdx.x, share = 0;
    if constexpr (SHARED) { /* lanes beside each other have different windows */
        const int lane = out % WARP;
        share = lane >> v.log_across;
        out = (out / WARP << v.log_across) + (lane & ((1 << v.log_across) - 1));
    }
    const bool active = out < v.outputs;
    if (!SHARED && !active) {
        return;
    }
    out = output_of(v, out);
    const tap_window o = window_of<T, MODE == GENERAL>(v, out);
    const tap_axis *a = v.axis;
    const int chunks =
        MODE == WHOLE_ROWS ? o.w.count > 0 : (o.w.count + TAPS - 1) / TAPS;
    const int runs = o.t.count * o.h.count * chunks;
    run_range r = {0, runs, o.h.count, chunks, o.w.count > TAPS ? o.w.count - TAPS : 0};
    run_place at = {0, 0, 0};
    if constexpr (SHARED) {
        const int each = (runs + (1 << v.log_lanes) - 1) >> v.log_lanes;
        r.begin = share * each < runs ? share * each : runs;
        r.end = !active ? r.begin : runs - r.begin < each ? runs : r.begin + each;
        if (r.begin > 0) {
            const int line = r.begin / r.chunks;
            at.slice = line / r.rows;
            at = {at.slice, line - at.slice * r.rows, r.begin - line * r.chunks};
        }
    }
    int col[TAPS];
#pragma unroll
    for (int c = 0; c < TAPS; c++) { /* a row shorter than a run repeats its last */
        col[c] = (c < o.w.count ? c : o.w.count - 1) * a[POOL_W].step;
    }
    const int first =
        o.t.first * a[POOL_T].by + o.h.first * a[POOL_H].by + o.w.first * a[POOL_W].by;
    const char *x = reinterpret_cast<const char *>(v.x + o.plane) + first;
    numbered<V> best = scan_runs<T, TAPS, MODE, V>(v, x, r, at, col);
    if constexpr (SHARED) {
        for (int d = 1 << v.log_across; d < WARP; d *= 2) {
            const numbered<V> other = {__shfl_xor_sync(ALL_LANES, best.most, d),
                                       __shfl_xor_sync(ALL_LANES, best.number, d)};
            best = join(best, other);
        }
        if (!active || share > 0) {
            return;
        }
    }
    v.y[out] = element_from<T>(best.most, v.flip);
    if (v.indices) {
        v.indices[out] = runs > 0 ? position_of<T, TAPS>(v, o, r, best.number) : -1;
    }
}

/* ---- launch ---- */

template <typename T, int TAPS, mode MODE>
static gpo_status
run(gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    tap_view<T> v = {};
    v.x = static_cast<const T *>(call->in[0].data);
    v.y = static_cast<T *>(call->out[0].data);
    v.indices = max_pool3d_indices_of(call);
    v.by_batch = plan.by_batch;
    v.by_channel = plan.by_channel;
    for (int d = 0; d < POOL_AXES; d++) {
        v.axis[d] = tap_axis_of(plan.axis[d], plan.by[d] * static_cast<int>(sizeof(T)));
    }
    v.per_row = divider_of(plan.axis[POOL_W].out);
    v.per_slice = divider_of(plan.axis[POOL_H].out);
    v.per_plane = divider_of(plan.axis[POOL_T].out);
    v.per_batch = divider_of(plan.channels > 0 ? plan.channels : 1);
    v.outputs = static_cast<int>(plan.planes * plan.outputs);
    v.takes_channels = takes_channels(plan);
    v.of_plane = divider_of(plan.outputs);
    v.log_lanes = MODE == GENERAL ? log_lanes_of(call) : 0;
    v.log_across = LOG_WARP - v.log_lanes;
    v.flip = gpo_dtypes[call->in[0].dtype].kind == 'u' ? 1u << 31 : 0;
    const int64_t warps = ceil_div(v.outputs, WARP >> v.log_lanes);
    return GPO_LAUNCH(call, grid_of(ceil_div(warps, TAP_BLOCK / WARP)), TAP_BLOCK, 0,
                      (max_pool3d_any_windows_kernel<T, TAPS, MODE>), v);
}

template <typename T>
gpo_status
max_pool3d_any_windows(gpo_call *call)
{
    if constexpr (IS_FLOAT<T>) {
        const run_plan r = runs_of(call);
        if (r.taps == 2) {
            return run<T, 2, WHOLE_ROWS>(call);
        }
        if (r.taps == 3 && !r.is_general) {
            return r.is_long ? run<T, 3, LONG_ROWS>(call) : run<T, 3, WHOLE_ROWS>(call);
        }
        if (r.taps == 4) {
            return run<T, 4, LONG_ROWS>(call);
        }
    }
    return run<T, GENERAL_TAPS, GENERAL>(call);
}

#define INSTANTIATE(T) template gpo_status max_pool3d_any_windows<T>(gpo_call * call);
INSTANTIATE(uint8_t)
INSTANTIATE(uint16_t)
INSTANTIATE(uint32_t)
INSTANTIATE(uint64_t)
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
