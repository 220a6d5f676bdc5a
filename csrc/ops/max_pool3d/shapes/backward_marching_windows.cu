/*
 * backward_marching_windows.cu  The gradient where few windows of each axis have an
 * element, dilated or not.  A thread has a column of elements and marches along T (H
 * where planes have one slice, planes where they are rows).  Elements of a cell have the
 * same windows, and those of the cells before stay in registers: a step loads the next
 * windows alone.
 * Cost:  an index and a gradient of each window for each element of a row of its cell,
 *        from L1; dx is written once, row by row, without zeros before, atomics or
 *        barriers.
 */
#include "../gather.cuh"
#include "../marching.cuh"

/* An axis in cells (marching.cuh). */
struct march_axis {
    gather_axis a;
    int gap, turns, step, first, cells; /* gap: 1 or, of cells with gaps, more */
    int before; /* windows from the last one before an element, by step: see row_windows */
    divider by_gap, by_step;
};

template <typename T>
struct march_view : gradient_arrays<T> {
    int plane, outputs; /* elements to the next plane of dx, of dy */
    march_axis along, across, row;
    int along_in, along_out,
        along_index;   /* to the next element along: dx, dy, indices */
    int length, units; /* cells of a march; threads */
    divider per_row, per_slice, per_plane; /* elements, cells, marches */
};

/* The windows of a thread at one place along its march. */
template <typename V, int ACROSS, int ROW>
struct march_windows {
    int named[ACROSS][ROW]; /* -1: none */
    V gradient[ACROSS][ROW];
};

/*
 * The windows of a row that have its element w.  With `past` elements from the last one's
 * begin, a multiple of the gap, it is so many windows before that the dilation divides
 * past + windows * stride.
 */
template <int ROW>
__device__ __forceinline__ void
row_windows(const march_axis &m, int w, int (&row)[ROW])
{
    const gather_axis &a = m.a;
    const int last = a.by_stride.narrow(w + a.padding);
    const int past = w + a.padding - last * a.stride, gaps = m.by_gap.narrow(past);
    const int back = gaps * m.before;
    int o = last - (back - m.by_step.narrow(back) * m.step);
#pragma unroll
    for (int k = 0; k < ROW; k++) {
        const int from = w + a.padding - o * a.stride;
        const bool has = gaps * m.gap == past && o >= 0 && o < a.out &&
                         from <= (a.kernel - 1) * a.dilation;
        row[k] = has ? o : -1;
        o -= m.step;
    }
}

/* `column`: offsets of the windows of place 0 along; -1 where there is none. */
template <typename T, int ACROSS, int ROW>
__device__ __forceinline__ void
load_windows(const march_view<T> &v, const int (&column)[ACROSS][ROW], int o,
             bool exists, march_windows<value_type<T>, ACROSS, ROW> *to)
{
    const bool is_place = exists && o >= 0 && o < v.along.a.out;
    const int past = o * v.along_out;
#pragma unroll
    for (int j = 0; j < ACROSS; j++) {
#pragma unroll
        for (int k = 0; k < ROW; k++) {
            const bool has = is_place && column[j][k] >= 0;
            const unsigned at = static_cast<unsigned>(column[j][k] + past);
            const int64_t found = v.indices[has ? at : 0]; /* without a branch */
            to->named[j][k] = has && found >> 32 == 0 ? static_cast<int>(found) : -1;
            to->gradient[j][k] = value_of(v.dy[has ? at : 0]);
        }
    }
}

/* Element number `place` of cell o: where it is, and its turn; -1 if no window has it. */
struct cell_place {
    int at, turn;
};

template <march_cells CELLS>
__device__ __forceinline__ cell_place
place_in_cell(const march_axis &m, int o, int place)
{
    const int begin = o * m.a.stride - m.a.padding;
    if (CELLS == CELLS_OF_ONE) {
        return {begin, 0};
    }
    const int turn = CELLS == CELLS_WITH_GAPS ? m.by_gap.narrow(place) : place;
    const int past = CELLS == CELLS_WITH_GAPS ? place - turn * m.gap : 0;
    return {begin + turn * m.a.dilation + past, past > 0 ? -1 : turn};
}

/* Whether the i-th window before a cell's own has its elements of a turn. */
__device__ __forceinline__ bool
has_turn(const march_axis &m, int i, int turn)
{
    return turn + i * m.turns < m.a.kernel;
}

/* The sum of an element, in the order of dy: own[-i] are its i-th windows along before. */
template <int ALONG, typename V, int ACROSS, int ROW>
__device__ __forceinline__ V
sum_of_place(const march_axis &m, int turn_m, const march_axis &h, int turn_h,
             const march_windows<V, ACROSS, ROW> *own, int index)
{
    V sum = 0;
#pragma unroll
    for (int i = ALONG - 1; i >= 0; i--) {
#pragma unroll
        for (int j = ACROSS - 1; j >= 0; j--) {
            if ((turn_m | turn_h) >= 0 && has_turn(m, i, turn_m) &&
                has_turn(h, j, turn_h)) {
#pragma unroll
                for (int k = ROW - 1; k >= 0; k--) {
                    if (own[-i].named[j][k] == index) {
                        sum += own[-i].gradient[j][k];
                    }
                }
            }
        }
    }
    return sum;
}

/* Where the windows of a thread lie in dy, those of place 0 along. */
template <typename T, int ACROSS, int ROW>
__device__ __forceinline__ void
set_column(const march_view<T> &v, int plane, int cell, int w,
           int (&column)[ACROSS][ROW])
{
    int row[ROW];
    row_windows(v.row, w, row);
#pragma unroll
    for (int j = 0; j < ACROSS; j++) {
        const int at = cell - j * v.across.step;
#pragma unroll
        for (int k = 0; k < ROW; k++) {
            const bool has = at >= 0 && at < v.across.a.out && row[k] >= 0;
            column[j][k] = has ? plane * v.outputs + at * v.row.a.out + row[k] : -1;
        }
    }
}

template <typename T, int ALONG, int ACROSS, int ROW, int STEPS, march_cells CELLS>
__global__ void
__launch_bounds__(MARCH_BLOCK, MARCH_THREADS / MARCH_BLOCK)
    max_pool3d_backward_marching_windows_kernel(march_view<T> v)
{
    using V = value_type<T>;
    const int unit = blockIdx.x * MARCH_BLOCK + threadIdx.x;
    if (unit >= v.units) {
        return;
    }
    const march_axis &m = v.along, &h = v.across;
    const int width = v.row.a.in;
    const int slice = v.per_row.narrow(unit), w = unit - slice * width;
    const int piece = v.per_slice.narrow(slice);
    const int cell = slice - piece * h.cells + h.first;
    const int plane = v.per_plane.narrow(piece);
    const int march = piece - plane * static_cast<int>(v.per_plane.by);
    const int turn = m.by_step.narrow(march);
    int o = m.first + march - turn * m.step + turn * v.length * m.step;
    const int end = m.first + m.cells;
    const int along = CELLS == CELLS_OF_ONE ? 1 : m.a.stride;
    const int across = CELLS == CELLS_OF_ONE ? 1 : h.a.stride;
    const int to = plane * v.plane + w;
    int column[ACROSS][ROW];
    set_column(v, plane, cell, w, column);

    /* windows[ALONG - 1 + k] are those of step k, after those before the first step. */
    march_windows<V, ACROSS, ROW> windows[ALONG - 1 + STEPS];
#pragma unroll
    for (int k = 0; k + 1 < ALONG; k++) {
        load_windows(v, column, o - (ALONG - 1 - k) * m.step, true, &windows[k]);
    }
    for (int n = 0; n < v.length && o < end; n += STEPS) {
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            load_windows(v, column, o + s * m.step, n + s < v.length,
                         &windows[ALONG - 1 + s]);
        }
#pragma unroll
        for (int s = 0; s < STEPS; s++) {
            for (int a = 0; n + s < v.length && a < along; a++) {
                const cell_place pm = place_in_cell<CELLS>(m, o, a);
                for (int b = 0; b < across; b++) {
                    const cell_place ph = place_in_cell<CELLS>(h, cell, b);
                    const int index = pm.at * v.along_index + ph.at * width + w;
                    const V sum = sum_of_place<ALONG>(m, pm.turn, h, ph.turn,
                                                      &windows[ALONG - 1 + s], index);
                    if (static_cast<unsigned>(pm.at) < static_cast<unsigned>(m.a.in) &&
                        static_cast<unsigned>(ph.at) < static_cast<unsigned>(h.a.in)) {
                        const int at = to + pm.at * v.along_in + ph.at * width;
                        v.dx[static_cast<unsigned>(at)] = stored_as<T>(sum);
                    }
                }
            }
            o += m.step;
        }
#pragma unroll
        for (int k = 0; k + 1 < ALONG; k++) {
            windows[k] = windows[k + STEPS];
        }
    }
}

/* ---- launch ---- */

/* The inverse of a modulo b, which have no common divisor; 0 of b = 1. */
static int64_t
inverse_of(int64_t a, int64_t b)
{
    int64_t r = b, next = a % b, s = 0, other = 1;
    while (next > 0) {
        const int64_t q = r / next, rest = r - q * next, t = s - q * other;
        r = next;
        next = rest;
        s = other;
        other = t;
    }
    return b > 1 ? (s % b + b) % b : 0;
}

static march_axis
march_axis_of(const pool_axis &a)
{
    const cell_axis c = cells_of(a);
    march_axis m = {};
    m.a = gather_axis_of(a);
    m.gap = static_cast<int>(c.gap);
    m.turns = static_cast<int>(c.turns);
    m.step = static_cast<int>(c.step);
    m.first = static_cast<int>(c.first);
    m.cells = static_cast<int>(c.cells);
    m.before = static_cast<int>((c.step - inverse_of(c.turns, c.step)) % c.step);
    m.by_gap = divider_of(c.gap);
    m.by_step = divider_of(c.step);
    return m;
}

template <march_kind KIND, march_cells CELLS, typename T>
static gpo_status
march(gpo_call *call, const march_view<T> &v)
{
    constexpr march_size SIZE = MARCH_SIZES[KIND];
    constexpr int STEPS =
        sizeof(T) == 8 && SIZE.along > 1 ? (SIZE.steps + 1) / 2 : SIZE.steps;
    return GPO_LAUNCH(
        call, grid_of(ceil_div(v.units, MARCH_BLOCK)), MARCH_BLOCK, 0,
        (max_pool3d_backward_marching_windows_kernel<T, SIZE.along, SIZE.across,
                                                     SIZE.row, STEPS, CELLS>),
        v);
}

template <typename T>
gpo_status
max_pool3d_backward_marching_windows(gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    march_plan s;
    if (!plan_march(call, &s)) {
        return GPO_OK; /* dx is empty: its row of the table takes no other */
    }
    march_view<T> v = {};
    set_arrays<T>(call, &v);
    v.plane = static_cast<int>(plan.plane);
    v.outputs = static_cast<int>(plan.outputs);
    v.along = march_axis_of(s.along);
    v.across = march_axis_of(s.across);
    v.row = march_axis_of(plan.axis[POOL_W]);
    v.along_in = static_cast<int>(s.along_in);
    v.along_out = static_cast<int>(s.along_out);
    v.along_index = s.over_planes ? 0 : v.along_in;
    v.length = static_cast<int>(s.length);
    v.units = static_cast<int>(s.units);
    v.per_row = divider_of(plan.axis[POOL_W].in);
    v.per_slice = divider_of(v.across.cells);
    v.per_plane = divider_of(s.pieces);
    switch (s.kind) {
        case MARCH_APART:
            return march<MARCH_APART, CELLS_OF_MORE>(call, v);
        case MARCH_PLANES:
            return march<MARCH_PLANES, CELLS_OF_ONE>(call, v);
        case MARCH_SHORT:
            return march<MARCH_SHORT, CELLS_OF_MORE>(call, v);
        case MARCH_LONG:
            return s.cells == CELLS_OF_ONE ? march<MARCH_LONG, CELLS_OF_ONE>(call, v)
                                           : march<MARCH_LONG, CELLS_OF_MORE>(call, v);
        default:
            return s.cells == CELLS_OF_ONE ? march<MARCH_DEEP, CELLS_OF_ONE>(call, v)
                   : s.cells == CELLS_OF_MORE
                       ? march<MARCH_DEEP, CELLS_OF_MORE>(call, v)
                       : march<MARCH_DEEP, CELLS_WITH_GAPS>(call, v);
    }
}

#define INSTANTIATE(T) \
    template gpo_status max_pool3d_backward_marching_windows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
