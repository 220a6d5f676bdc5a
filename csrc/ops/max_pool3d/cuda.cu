/*
 * cuda.cu  The ladder of max_pool3d on CUDA, v0 to v7, then the table and the choice.
 * Each rung is a comment, a kernel and a launcher.  Planes, which are batches times
 * channels, never meet a limit of the grid: what a grid cannot hold its blocks walk.
 * Not here: one window (windows.cuh), the tiles of v6 (tiles.cuh), a tile of v7
 * (march.cuh), the ladder of the gradient (backward.cuh), which this file includes.
 */
#include "windows.cuh"

#include <stdio.h>

/*
 * v0  Naive, with bounds.
 * Now:   a thread per output tries every element of its window and asks of each, along
 *        each axis, whether it lies in x.
 * Cost:  kernel^3 tests and up to as many loads per output, each waiting for the test
 *        before it.
 * Left:  the bounds do not change from one element to the next -> v1.
 */
template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_v0_naive(pool_view<T> v, int64_t outputs)
{
    using V = value_type<T>;
    const pool_axis *a = v.axis;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         i < outputs; i += step) {
        const place at = place_of(v, i);
        const T *x = v.plane(at.plane);
        running<V> best = {least_value<V>(), -1};
        for (int64_t kt = 0; kt < a[POOL_T].kernel; kt++) {
            for (int64_t kh = 0; kh < a[POOL_H].kernel; kh++) {
                for (int64_t kw = 0; kw < a[POOL_W].kernel; kw++) {
                    const int64_t t = at.t * a[POOL_T].stride - a[POOL_T].padding +
                                      kt * a[POOL_T].dilation;
                    const int64_t h = at.h * a[POOL_H].stride - a[POOL_H].padding +
                                      kh * a[POOL_H].dilation;
                    const int64_t w = at.w * a[POOL_W].stride - a[POOL_W].padding +
                                      kw * a[POOL_W].dilation;
                    if (t >= 0 && t < a[POOL_T].in && h >= 0 && h < a[POOL_H].in &&
                        w >= 0 && w < a[POOL_W].in) {
                        best.take(value_of(x[t * v.by[POOL_T] + h * v.by[POOL_H] +
                                             w * v.by[POOL_W]]),
                                  (t * a[POOL_H].in + h) * a[POOL_W].in + w);
                    }
                }
            }
        }
        store_best(v, i, best);
    }
}

template <typename T>
static gpo_status
max_pool3d_v0(gpo_call *call)
{
    max_pool3d_plan plan;
    max_pool3d_make_plan(call, &plan);
    const pool_view<T> v = view_of<T>(plan);
    const int64_t outputs = v.planes * v.outputs;
    const dim3 grid(grid_of(ceil_div(outputs, BLOCK), MAX_GRID_X));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (max_pool3d_v0_naive<T>), v, outputs);
}

/*
 * v1  Loops unrolled, a cache in registers.
 * Was:   v0 tests each element and waits for each load.
 * Now:   the bounds of a window are worked out once, products become sums, and eight
 *        elements of a row are loaded before the first of them is compared; a load
 *        behind the end becomes the lowest value by selection, not by a branch.
 * Cost:  kernel^3 loads per output, eight in flight.
 * Left:  where no window leaves x the bounds are not needed at all -> v2.
 */
template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_v1_register_cache(pool_view<T> v, int64_t outputs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         i < outputs; i += step) {
        const place at = place_of(v, i);
        store_best(v, i, scan_window(v, v.plane(at.plane), at));
    }
}

template <typename T>
static gpo_status
max_pool3d_v1(gpo_call *call)
{
    max_pool3d_plan plan;
    max_pool3d_make_plan(call, &plan);
    const pool_view<T> v = view_of<T>(plan);
    const int64_t outputs = v.planes * v.outputs;
    const dim3 grid(grid_of(ceil_div(outputs, BLOCK), MAX_GRID_X));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (max_pool3d_v1_register_cache<T>), v,
                      outputs);
}

/*
 * v2  Branch-free where nothing is padded.
 * Was:   v1 works out where a window begins and ends, and selects.
 * Now:   windows of 2, 3 or 8 elements a side that never leave x have all their loads
 *        written out, at offsets that are constants times a stride; others go v1's way.
 * Cost:  kernel^3 loads per output, 8, 27 or 8 of them in flight.
 * Left:  neighbouring outputs load the same elements again -> v3.
 */
template <typename T, int CUBE>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_v2_branch_free(pool_view<T> v, int64_t outputs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         i < outputs; i += step) {
        pool_one<T, CUBE>(v, place_of(v, i));
    }
}

template <typename T>
static gpo_status
max_pool3d_v2(gpo_call *call)
{
    max_pool3d_plan plan;
    max_pool3d_make_plan(call, &plan);
    const pool_view<T> v = view_of<T>(plan);
    const int64_t outputs = v.planes * v.outputs;
    const dim3 grid(grid_of(ceil_div(outputs, BLOCK), MAX_GRID_X));
    return with_cube(v, [&](auto cube) {
        return GPO_LAUNCH(call, grid, BLOCK, 0,
                          (max_pool3d_v2_branch_free<T, decltype(cube)::value>), v,
                          outputs);
    });
}

/*
 * v3  A tile in shared memory: the lesson.
 * Was:   v2 loads an element once for each window that has it.
 * Now:   a block copies what its 4 x 8 x 8 windows span into shared memory, once, and
 *        scans them there; where that is more than 48 KB it reads global memory.
 * Cost:  one load of each element, a barrier that waits for the slowest of them, and
 *        still kernel^3 reads and comparisons per output.
 * Left:  the report measured 5 to 10 times v2's time: L1 has held the neighbours all
 *        along, and the copy is not what costs.  Better a good shape of the block -> v4.
 */
struct shared_tile {
    int64_t tiles[POOL_AXES], count;
    divider per_tile[POOL_AXES];
    int span[POOL_AXES]; /* elements along each axis; 0 where they do not fit */
};

constexpr int TILE_T = 4, TILE_H = 8, TILE_W = 8;

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_v3_shared_tile(pool_view<T> v, shared_tile s)
{
    using V = value_type<T>;
    GPO_DYN_SHARED(T, tile);
    const pool_axis *a = v.axis;
    const int tid = threadIdx.x;
    for (int64_t item = blockIdx.x; item < s.count; item += gridDim.x) {
        const int64_t row = s.per_tile[POOL_W].of(item);
        const int64_t slice = s.per_tile[POOL_H].of(row);
        const int64_t plane = s.per_tile[POOL_T].of(slice);
        const int64_t w0 = (item - row * s.tiles[POOL_W]) * TILE_W;
        const int64_t h0 = (row - slice * s.tiles[POOL_H]) * TILE_H;
        const int64_t t0 = (slice - plane * s.tiles[POOL_T]) * TILE_T;
        const place at = {plane, t0 + tid / (TILE_H * TILE_W),
                          h0 + tid / TILE_W % TILE_H, w0 + tid % TILE_W};
        const T *x = v.plane(at.plane);
        const int64_t from_t = t0 * a[POOL_T].stride - a[POOL_T].padding;
        const int64_t from_h = h0 * a[POOL_H].stride - a[POOL_H].padding;
        const int64_t from_w = w0 * a[POOL_W].stride - a[POOL_W].padding;
        const int rows = s.span[POOL_H], cols = s.span[POOL_W];
        const bool is_mine =
            at.t < a[POOL_T].out && at.h < a[POOL_H].out && at.w < a[POOL_W].out;
        if (cols == 0) {
            if (is_mine) {
                store_best(v, output_of(v, at), scan_window(v, x, at));
            }
            continue;
        }
        __syncthreads(); /* the tile before this one has been read */
        for (int e = tid; e < s.span[POOL_T] * rows * cols; e += BLOCK) {
            const int64_t t = from_t + e / (rows * cols), h = from_h + e / cols % rows;
            const int64_t w = from_w + e % cols;
            T element = stored_as<T>(least_value<V>());
            if (t >= 0 && t < a[POOL_T].in && h >= 0 && h < a[POOL_H].in && w >= 0 &&
                w < a[POOL_W].in) {
                element = x[t * v.by[POOL_T] + h * v.by[POOL_H] + w * v.by[POOL_W]];
            }
            tile[e] = element;
        }
        __syncthreads();
        if (is_mine) {
            const stretch t = stretch_of(a[POOL_T], at.t);
            const stretch h = stretch_of(a[POOL_H], at.h);
            const stretch w = stretch_of(a[POOL_W], at.w);
            running<V> best = {least_value<V>(), -1};
            for (int64_t i = t.first; i < t.end; i += a[POOL_T].dilation) {
                for (int64_t j = h.first; j < h.end; j += a[POOL_H].dilation) {
                    const T *row =
                        tile + ((i - from_t) * rows + j - from_h) * cols - from_w;
                    for (int64_t k = w.first; k < w.end; k += a[POOL_W].dilation) {
                        best.take(value_of(row[k]),
                                  (i * a[POOL_H].in + j) * a[POOL_W].in + k);
                    }
                }
            }
            store_best(v, output_of(v, at), best);
        }
    }
}

template <typename T>
static gpo_status
max_pool3d_v3(gpo_call *call)
{
    constexpr int64_t ROOM = 48 << 10;
    constexpr int64_t SIDES[POOL_AXES] = {TILE_T, TILE_H, TILE_W};
    max_pool3d_plan plan;
    max_pool3d_make_plan(call, &plan);
    const pool_view<T> v = view_of<T>(plan);
    shared_tile s = {};
    s.count = v.planes;
    double bytes = sizeof(T);
    for (int d = 0; d < POOL_AXES; d++) {
        const int64_t windows = least_of(SIDES[d], v.axis[d].out);
        const int64_t span = (windows - 1) * v.axis[d].stride + pool_extent(&v.axis[d]);
        s.tiles[d] = ceil_div(v.axis[d].out, SIDES[d]);
        s.per_tile[d] = divider_of(s.tiles[d]);
        s.count *= s.tiles[d];
        s.span[d] = static_cast<int>(least_of(span, ROOM));
        bytes *= static_cast<double>(span);
    }
    if (bytes > ROOM) {
        s.span[POOL_T] = s.span[POOL_H] = s.span[POOL_W] = 0;
        bytes = 0;
    }
    const dim3 grid(grid_of(s.count, MAX_GRID_X));
    return GPO_LAUNCH(call, grid, BLOCK, static_cast<size_t>(bytes),
                      (max_pool3d_v3_shared_tile<T>), v, s);
}

constexpr int FULL_BLOCK = 512, MOST_Z = 64; /* threads; along z */

/*
 * v4  Threads over (w, h), the rest shared.
 * Was:   v2 finds each output's place by three divisions; v3 spends its time copying.
 * Now:   x and y of a block are w and h of the output; z of the block and of the grid
 *        share planes times slices, so that a block is full where planes are small.
 * Cost:  as v2 with one division; at most 64 threads along z, 65,535 blocks along y and
 *        z, and rows wider than a block walk, all of which the published version omits.
 * Left:  the slices of one block may lie far apart -> v5.
 */
template <typename T, int CUBE>
__global__ void
__launch_bounds__(FULL_BLOCK) max_pool3d_v4_rows(pool_view<T> v, divider slices)
{
    const int64_t w0 = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t h0 = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t z0 = static_cast<int64_t>(blockIdx.z) * blockDim.z + threadIdx.z;
    const int64_t step_w = static_cast<int64_t>(gridDim.x) * blockDim.x;
    const int64_t step_h = static_cast<int64_t>(gridDim.y) * blockDim.y;
    const int64_t step_z = static_cast<int64_t>(gridDim.z) * blockDim.z;
    for (int64_t z = z0; z < v.planes * slices.by; z += step_z) {
        const int64_t plane = slices.of(z);
        for (int64_t h = h0; h < v.axis[POOL_H].out; h += step_h) {
            for (int64_t w = w0; w < v.axis[POOL_W].out; w += step_w) {
                pool_one<T, CUBE>(v, {plane, z - plane * slices.by, h, w});
            }
        }
    }
}

template <typename T>
static gpo_status
max_pool3d_v4(gpo_call *call)
{
    max_pool3d_plan plan;
    max_pool3d_make_plan(call, &plan);
    const pool_view<T> v = view_of<T>(plan);
    const int64_t slices = v.axis[POOL_T].out;
    const int64_t tx = least_of(FULL_BLOCK, v.axis[POOL_W].out);
    const int64_t ty = least_of(FULL_BLOCK / tx, v.axis[POOL_H].out);
    const int64_t tz = least_of(MOST_Z, FULL_BLOCK / tx / ty);
    const dim3 block(static_cast<unsigned>(tx), static_cast<unsigned>(ty),
                     static_cast<unsigned>(tz));
    const dim3 grid(grid_of(ceil_div(v.axis[POOL_W].out, tx), MAX_GRID_X),
                    grid_of(ceil_div(v.axis[POOL_H].out, ty), MAX_GRID_YZ),
                    grid_of(ceil_div(v.planes * slices, tz), MAX_GRID_YZ));
    const divider by_slices = divider_of(slices);
    return with_cube(v, [&](auto cube) {
        return GPO_LAUNCH(call, grid, block, 0,
                          (max_pool3d_v4_rows<T, decltype(cube)::value>), v, by_slices);
    });
}

/*
 * v5  Threads over (w, h, t).
 * Was:   v4's blocks take slices of whatever plane comes next.
 * Now:   a block is a box of one plane, whose windows share most of what they load.
 * Cost:  as v4 without a division; blocks are small where planes are: 64 outputs of a
 *        4 x 4 x 4 plane are two warps.
 * Left:  kernel^3 loads and comparisons per output, however they are laid out -> v6.
 */
template <typename T, int CUBE>
__global__ void
__launch_bounds__(FULL_BLOCK) max_pool3d_v5_boxes(pool_view<T> v)
{
    const int64_t h0 = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t boxes = (v.axis[POOL_T].out + blockDim.z - 1) / blockDim.z;
    const int64_t step_h = static_cast<int64_t>(gridDim.y) * blockDim.y;
    for (int64_t plane = blockIdx.x; plane < v.planes; plane += gridDim.x) {
        for (int64_t box = blockIdx.z; box < boxes; box += gridDim.z) {
            const int64_t t = box * blockDim.z + threadIdx.z;
            for (int64_t h = h0; t < v.axis[POOL_T].out && h < v.axis[POOL_H].out;
                 h += step_h) {
                for (int64_t w = threadIdx.x; w < v.axis[POOL_W].out; w += blockDim.x) {
                    pool_one<T, CUBE>(v, {plane, t, h, w});
                }
            }
        }
    }
}

template <typename T>
static gpo_status
max_pool3d_v5(gpo_call *call)
{
    max_pool3d_plan plan;
    max_pool3d_make_plan(call, &plan);
    const pool_view<T> v = view_of<T>(plan);
    const int64_t tx = least_of(FULL_BLOCK, v.axis[POOL_W].out);
    const int64_t ty = least_of(FULL_BLOCK / tx, v.axis[POOL_H].out);
    const int64_t tz =
        least_of(least_of(MOST_Z, FULL_BLOCK / tx / ty), v.axis[POOL_T].out);
    const dim3 block(static_cast<unsigned>(tx), static_cast<unsigned>(ty),
                     static_cast<unsigned>(tz));
    const dim3 grid(grid_of(v.planes, MAX_GRID_X),
                    grid_of(ceil_div(v.axis[POOL_H].out, ty), MAX_GRID_YZ),
                    grid_of(ceil_div(v.axis[POOL_T].out, tz), MAX_GRID_YZ));
    return with_cube(v, [&](auto cube) {
        return GPO_LAUNCH(call, grid, block, 0,
                          (max_pool3d_v5_boxes<T, decltype(cube)::value>), v);
    });
}

/*
 * v6  Separable running maximum.
 * Was:   v5 compares kernel^3 elements per output.
 * Now:   the maximum of a cube is that of its planes' maxima, theirs that of their
 *        rows'.  A thread holds a column along T in registers and pools it there; the
 *        block turns the tile in shared memory; a thread holds a column along H and
 *        pools it; lanes pool along W by shuffles.  A window of k is two overlapping
 *        windows of a power of two, made by doubling.
 * Cost:  each element is loaded once, but for the halo of tiles: 8 to 32 loads in flight
 *        per thread; log2(k) + 1 maxima per element and axis, one write and one read of
 *        shared memory before the windows are thinned out by the stride, one after.
 *        With indices a key carries its position in the low half of 64 bits.
 * Left:  one block of 32 x 32 columns at a time per processor, whose loads rest while it
 *        computes -> v7.
 */
#include "tiles.cuh"

template <typename K, int N, int ROWS>
__global__ void
__launch_bounds__(ROWS *WARP)
    max_pool3d_v6_separable(key_source x, key_target y, tile_plan s)
{
    pool_tiles<K, N, ROWS>(x, y, s);
}

/* Windows that span more than a tile: one axis at a time through global memory. */
template <typename K>
__global__ void
__launch_bounds__(BLOCK)
    max_pool3d_v6_keys(key_source x, K *keys, int64_t first, int64_t count)
{
    load_keys(x, keys, first, count);
}

template <typename K>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_v6_line(const K *from, K *to, pool_axis a,
                                            int64_t inner, int64_t count, K least)
{
    pool_lines(from, to, a, inner, count, least);
}

template <typename K>
__global__ void
__launch_bounds__(BLOCK)
    max_pool3d_v6_elements(const K *keys, key_source x, key_target y, int64_t first,
                           int64_t count)
{
    store_keys(keys, x, y, first, count);
}

/* As many planes at a time as the scratch memory takes; at least one. */
template <typename K>
static gpo_status
run_lines(gpo_call *call, const max_pool3d_plan &plan, const key_source &x,
          const key_target &y)
{
    constexpr double ROOM = 1 << 28; /* bytes of each of the two arrays */
    const pool_axis *a = plan.axis;
    const int64_t in = a[POOL_T].in * a[POOL_H].in * a[POOL_W].in;
    const int64_t first = a[POOL_T].out * a[POOL_H].in * a[POOL_W].in;
    const int64_t second = a[POOL_T].out * a[POOL_H].out * a[POOL_W].in;
    const int64_t planes = plan.batches * plan.channels;
    int64_t most = in > first ? in : first;
    most = most > second ? most : second;
    most = most > plan.outputs ? most : plan.outputs;
    double fit = ROOM / (static_cast<double>(most) * sizeof(K));
    fit = fit < 1 ? 1 : fit;
    const int64_t step =
        fit < static_cast<double>(planes) ? static_cast<int64_t>(fit) : planes;
    void *one = nullptr, *two = nullptr;
    const size_t bytes = static_cast<size_t>(step * most) * sizeof(K);
    gpo_status status = planes > 0 ? gpo_scratch(call, bytes, &one) : GPO_OK;
    if (!status && planes > 0) {
        status = gpo_scratch(call, bytes, &two);
    }
    K *const p = static_cast<K *>(one), *const q = static_cast<K *>(two);
    const K least = least_key_of<K>(plan, call->in[0].dtype);
    const auto grid = [](int64_t n) {
        return dim3(grid_of(ceil_div(n, BLOCK), MAX_GRID_X));
    };
    for (int64_t at = 0; at < planes && !status; at += step) {
        const int64_t n = least_of(step, planes - at);
        status = GPO_LAUNCH(call, grid(n * in), BLOCK, 0, (max_pool3d_v6_keys<K>), x, p,
                            at * in, n * in);
        status = status ? status
                        : GPO_LAUNCH(call, grid(n * first), BLOCK, 0,
                                     (max_pool3d_v6_line<K>), p, q, a[POOL_T],
                                     a[POOL_H].in * a[POOL_W].in, n * first, least);
        status = status ? status
                        : GPO_LAUNCH(call, grid(n * second), BLOCK, 0,
                                     (max_pool3d_v6_line<K>), q, p, a[POOL_H],
                                     a[POOL_W].in, n * second, least);
        status = status ? status
                        : GPO_LAUNCH(call, grid(n * plan.outputs), BLOCK, 0,
                                     (max_pool3d_v6_line<K>), p, q, a[POOL_W],
                                     int64_t{1}, n * plan.outputs, least);
        status = status ? status
                        : GPO_LAUNCH(call, grid(n * plan.outputs), BLOCK, 0,
                                     (max_pool3d_v6_elements<K>), q, x, y,
                                     at * plan.outputs, n * plan.outputs);
    }
    return status;
}

template <typename K, int N, int ROWS>
static gpo_status
run_tiles(gpo_call *call, const max_pool3d_plan &plan, const key_source &x,
          const key_target &y)
{
    tile_plan s;
    if (!plan_tiles<K>(call, plan, N, ROWS, &s)) {
        return run_lines<K>(call, plan, x, y);
    }
    const size_t bytes =
        static_cast<size_t>(s.planes * s.windows[0] * s.span[1] * s.lanes) * sizeof(K);
    gpo_allow_shared(max_pool3d_v6_separable<K, N, ROWS>, bytes);
    return GPO_LAUNCH(call, dim3(grid_of(s.count, MAX_GRID_X)), dim3(ROWS * WARP),
                      bytes, (max_pool3d_v6_separable<K, N, ROWS>), x, y, s);
}

static gpo_status
max_pool3d_v6(gpo_call *call)
{
    max_pool3d_plan plan;
    max_pool3d_make_plan(call, &plan);
    turn_axes(&plan);
    const gpo_dtype dtype = call->in[0].dtype;
    const key_source x = source_of(plan, dtype);
    const key_target y = target_of(plan, dtype);
    const bool wide = gpo_dtypes[dtype].bytes == 8;
    const int64_t plane = x.in[0] * x.in[1] * x.in[2];
    if (plan.indices && (wide || plane >= INT32_MAX)) {
        return run_tiles<coded, 16, 16>(call, plan, x, y);
    }
    if (plan.indices || wide) {
        return run_tiles<int64_t, 16, 16>(call, plan, x, y);
    }
    if (plan.axis[POOL_T].in <= 8 && plan.axis[POOL_H].in <= 8) {
        return run_tiles<int32_t, 8, 8>(call, plan, x, y);
    }
    return run_tiles<int32_t, 32, 32>(call, plan, x, y);
}

/*
 * v7  Marching along T.
 * Was:   v6 loads a whole tile, turns it, and computes while nothing is loaded.
 * Now:   a warp has 8 rows of 32 columns and walks from slice to slice, with two or
 *        four on their way.  Along T it keeps what it has seen, by doubling; along H a
 *        block of few warps hands on the rows that the next one lacks; along W lanes
 *        shuffle.  The kernel and the stride are known when it is compiled.
 * Cost:  each element is loaded once where a plane has up to 64 rows of 32 columns; 16
 *        or 32 loads in flight per thread; one barrier of four warps per slice of y, none where
 *        a plane has 8 rows.  Indices, dilation, other windows and dtypes go v6's way.
 * Left:  windows of two slices of y share their maxima along H and W, too.
 */
#include "march.cuh"

template <typename T, int K, int S>
__global__ void
__launch_bounds__(MOST_ROWS / ROWS * WARP, 2)
    max_pool3d_v7_march(pool_view<T> v, march_plan s)
{
    march<T, K, S>(v, s);
}

template <typename T, int K, int S>
static gpo_status
run_march(gpo_call *call, const pool_view<T> &v)
{
    const march_plan s = plan_march(call, v);
    const int64_t items = s.warps == 1 ? ALONE : 1;
    const int warps = s.warps == 1 ? ALONE : s.warps;
    return GPO_LAUNCH(call, dim3(grid_of(ceil_div(s.count, items), MAX_GRID_X)),
                      dim3(static_cast<unsigned>(warps * WARP)), 0,
                      (max_pool3d_v7_march<T, K, S>), v, s);
}

template <typename T>
using marcher = gpo_status (*)(gpo_call *call, const pool_view<T> &v);

/*
 * The march that serves windows of one kernel and stride (a digit each) along all axes;
 * NULL where v6 does.  Where there is one window no stride is taken, and the march that
 * keeps nothing behind will do.
 */
template <typename T>
static marcher<T>
march_of(const max_pool3d_plan &plan)
{
    const pool_axis *a = plan.axis;
    for (int d = 0; d < POOL_AXES; d++) {
        if (plan.indices || a[d].dilation != 1 || a[d].kernel != a[0].kernel ||
            a[d].stride != a[0].stride || a[d].stride > 15 || a[d].in > INT32_MAX / 2) {
            return nullptr;
        }
    }
    const bool is_alone = plan.outputs == 1 && a[0].kernel != 3;
    switch (a[0].kernel << 4 | (is_alone ? a[0].kernel : a[0].stride)) {
        case 0x21:
            return run_march<T, 2, 1>;
        case 0x22:
            return run_march<T, 2, 2>;
        case 0x31:
            return run_march<T, 3, 1>;
        case 0x32:
            return run_march<T, 3, 2>;
        case 0x81:
            return run_march<T, 8, 1>;
        case 0x88:
            return run_march<T, 8, 8>;
        default:
            return nullptr;
    }
}

template <typename T>
static gpo_status
max_pool3d_v7(gpo_call *call)
{
    max_pool3d_plan plan;
    max_pool3d_make_plan(call, &plan);
    const marcher<T> run = march_of<T>(plan);
    return run ? run(call, view_of<T>(plan)) : max_pool3d_v6(call);
}

/* ---- the table ---- */

/* f16, bf16, f32, f64, i32 */
#define FIVE(f)                                                                    \
    {                                                                              \
        nullptr, nullptr, nullptr, nullptr, nullptr, f<int32_t>, nullptr, nullptr, \
            nullptr, f<f16>, f<bf16>, f<float>, f<double>, nullptr, nullptr        \
    }

#define EVERY_REAL(f)                                                 \
    {                                                                 \
        nullptr, f, f, f, f, f, f, f, f, f, f, f, f, nullptr, nullptr \
    }

/* g for f16, bf16, f32; f for other real dtypes */
#define REAL_OR_THREE(f, g)                                                     \
    {                                                                           \
        nullptr, f, f, f, f, f, f, f, f, g<f16>, g<bf16>, g<float>, f, nullptr, \
            nullptr                                                             \
    }

static const gpo_variant variants[] = {
    {"v0", "naive: each element of a window tested against the bounds", "",
     "run-to-run", FIVE(max_pool3d_v0)},
    {"v1", "loops unrolled, eight elements of a row cached in registers", "",
     "run-to-run", FIVE(max_pool3d_v1)},
    {"v2", "branch-free where nothing is padded", "", "run-to-run",
     FIVE(max_pool3d_v2)},
    {"v3", "a tile in shared memory, which does not pay", "", "run-to-run",
     FIVE(max_pool3d_v3)},
    {"v4", "threads over (w, h), planes and slices shared", "", "run-to-run",
     FIVE(max_pool3d_v4)},
    {"v5", "threads over (w, h, t) of one plane", "", "run-to-run",
     FIVE(max_pool3d_v5)},
    {"v6", "separable: T in registers, H through shared memory, W by shuffles", "",
     "run-to-run", EVERY_REAL(max_pool3d_v6)},
    {"v7", "separable, marching along T with slices on their way", "", "run-to-run",
     REAL_OR_THREE(max_pool3d_v6, max_pool3d_v7)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choose ---- */

/* The report's rule for its two versions, by kernel, stride and size. */
static bool
report_takes_v4(const max_pool3d_plan &plan)
{
    const pool_axis &w = plan.axis[POOL_W];
    return w.kernel == 8 &&
           (w.stride == 1 || w.in == 8 || (plan.channels == 64 && w.in == 32));
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    constexpr double FEW = 8; /* comparisons per output that need not be saved */
    max_pool3d_plan plan;
    max_pool3d_make_plan(call, &plan);
    double elements = 1, apart = 1;
    for (int d = 0; d < POOL_AXES; d++) {
        elements *= static_cast<double>(plan.axis[d].kernel);
        apart *= static_cast<double>(plan.axis[d].stride);
    }
    const gpo_dtype dtype = call->in[0].dtype;
    const bool listed = variants[0].run[dtype] != nullptr;
    const bool small_planes = plan.outputs < 512;
    const int by_report = report_takes_v4(plan) ? 4 : 5;
    int pick = 6;
    const char *because = "windows overlap or are large: one maximum per element and "
                          "doubling, whatever the kernel";
    if (!listed) {
        because = "the only rung for this dtype";
    }
    else if (variants[7].run[dtype] != max_pool3d_v6 && march_of<float>(plan)) {
        pick = 7;
        because =
            "cubes of 2, 3 or 8 elements: marched through, each element loaded once";
    }
    else if (plan.axis[POOL_T].in * plan.axis[POOL_H].in == 1 && elements <= 4 * FEW) {
        pick = 4;
        because =
            "rows alone, and windows are short: v6 would have one load per thread";
    }
    else if (elements <= FEW && elements <= apart) {
        pick = small_planes ? 4 : 5;
        because = small_planes
                      ? "windows are small and do not overlap, planes are small"
                      : "windows are small and do not overlap";
    }
    snprintf(
        why, GPO_MESSAGE,
        "%s; of v4 and v5 the report's rule (v4 for a kernel of 8 with stride 1, an "
        "input of 8, or 64 channels of 32) takes v%d",
        because, by_report);
    return &variants[pick];
}

extern "C" const gpo_table max_pool3d_cuda;
const gpo_table max_pool3d_cuda = {variants, choose};

#include "backward.cuh"
