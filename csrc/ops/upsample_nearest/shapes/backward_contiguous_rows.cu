/*
 * backward_contiguous_rows.cu  Gradients at any scale, of rows of dy whose elements are
 * beside each other.  A block has a tile of dx: planes, or slices, rows or columns of
 * one.  It copies the box of dy whose sums they are into shared memory, 16 bytes at a
 * time, and meanwhile makes a table of the first output of each column, and one of the
 * rows of dy of each row of dx.  A thread keeps its column and goes from row to row.
 * Cost:  each byte once; a read of shared memory for each element of dy, in the order
 *        that every variant adds in.
 */
#include "../tiles.cuh"

struct tile_axis {
    output_axis outputs;
    int in, out, side;
    divider tiles;
};

template <typename T>
struct tile_view {
    const T *dy;
    T *dx;
    tile_axis axis[UPSAMPLE_SPATIAL];
    int planes, together;
    int pitch, slice_pitch;
    int joined; /* a copy is 2: the box, 1: a slice of it, 0: a row of it */
    dy_layout y;
    divider channels, inner;
    divider row, h, d; /* elements, rows and slices of a tile */
    int apart;         /* rows of dx of a thread */
};

/* What a block has of dx, and the box of dy that is summed up. */
struct dx_tile {
    int plane, planes;
    int from[UPSAMPLE_SPATIAL], n[UPSAMPLE_SPATIAL];      /* of dx */
    int first[UPSAMPLE_SPATIAL], count[UPSAMPLE_SPATIAL]; /* of dy */
};

/* The rows of dy of a row of dx: where they begin in the box, and their number. */
struct dy_rows {
    int at;
    uint16_t slices, rows; /* of each slice */
};

template <typename T>
__device__ __forceinline__ int
first_output(const tile_view<T> &v, int k, int s)
{
    return first_output(v.axis[k].outputs, s);
}

template <typename T>
__device__ __forceinline__ dx_tile
tile_of(const tile_view<T> &v, int block)
{
    dx_tile b;
#pragma unroll
    for (int k = UPSAMPLE_SPATIAL - 1; k >= 0; k--) {
        const tile_axis &axis = v.axis[k];
        const int above = axis.tiles.narrow(block);
        b.from[k] = (block - above * static_cast<int>(axis.tiles.by)) * axis.side;
        b.n[k] = axis.in - b.from[k] < axis.side ? axis.in - b.from[k] : axis.side;
        block = above;
    }
    b.plane = block * v.together;
    b.planes = v.planes - b.plane < v.together ? v.planes - b.plane : v.together;
    /* each lane finds an end of an axis */
    const int lane = threadIdx.x % WARP;
    const int axis = lane < 2 ? 0 : lane < 4 ? 1 : 2;
    const int from = axis == 0 ? b.from[0] : axis == 1 ? b.from[1] : b.from[2];
    const int n = axis == 0 ? b.n[0] : axis == 1 ? b.n[1] : b.n[2];
    const int end = first_output(v, axis, from + (lane % 2 ? n : 0));
#pragma unroll
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        b.first[k] = __shfl_sync(ALL_LANES, end, 2 * k);
        b.count[k] = __shfl_sync(ALL_LANES, end, 2 * k + 1) - b.first[k];
    }
    return b;
}

/*
 * 16 aligned bytes.  Of single bytes they go through registers: ptxas 13.0 gives their
 * asynchronous copy a form of address that an H100 refuses as an illegal instruction.
 */
template <typename T>
__device__ __forceinline__ void
copy_pack(T *to, const T *from)
{
    if constexpr (sizeof(T) == 1) {
        *reinterpret_cast<uint4 *>(to) = *reinterpret_cast<const uint4 *>(from);
    }
    else {
        start_copy(to, from, l2_evict_unchanged());
    }
}

/*
 * Copies the box of dy at `from`, whose first element becomes box[past]: rows `pitch`
 * apart, slices `slice_pitch`, so that 16 bytes that are aligned there are so here.
 */
template <typename T>
__device__ __forceinline__ void
copy_box(const tile_view<T> &v, const dx_tile &b, const T *from, int past, T *box)
{
    constexpr int SIZE = PACK<T>;
    const int slices = (b.planes - 1) * v.axis[0].out + b.count[0];
    const int rows = b.count[1];
    const int columns = b.count[2] * static_cast<int>(v.inner.by);
    const int per_slice = v.joined > 0 ? 1 : rows;
    const int copies = v.joined > 1 ? 1 : slices * per_slice;
    const int length = (v.joined > 1 ? (slices - 1) * v.slice_pitch : 0) +
                       (v.joined > 0 ? (rows - 1) * v.pitch : 0) + columns;
    if (slices <= 0 || rows <= 0 || columns <= 0) {
        return;
    }
    /* a block makes few copies one after the other, of many each warp its own */
    const bool by_warps = copies >= BLOCK / WARP;
    const int threads = by_warps ? WARP : BLOCK;
    const int tid = threadIdx.x, first = by_warps ? tid / WARP : 0;
    for (int copy = first; copy < copies; copy += BLOCK / threads) {
        const int l = per_slice > 1 ? copy / per_slice : copy;
        const int m = copy - l * per_slice;
        const int begin = past + l * v.slice_pitch + m * v.pitch;
        const int end = begin + length, skew = begin % SIZE;
        const T *const y = from + l * v.y.slice + m * v.y.row - begin;
        for (int at = begin - skew + tid % threads * SIZE; at < end;
             at += threads * SIZE) {
            if (at >= begin && at + SIZE <= end) {
                copy_pack(box + at, y + at);
            }
            else {
#pragma unroll
                for (int e = at; e < at + SIZE; e++) {
                    if (e >= begin && e < end) {
                        box[e] = y[e];
                    }
                }
            }
        }
    }
}

/* Makes the tables of the rows and of the columns of dx. */
template <typename T>
__device__ __forceinline__ void
make_tables(const tile_view<T> &v, const dx_tile &b, int lines, dy_rows *rows_of,
            int *column_of)
{
    const int tid = threadIdx.x;
    for (int s = tid; s <= b.n[2]; s += BLOCK) {
        column_of[s] = first_output(v, 2, b.from[2] + s) - b.first[2];
    }
    for (int line = tid; line < lines; line += BLOCK) {
        const int slice = v.h.narrow(line), plane = v.d.narrow(slice);
        const int h = b.from[1] + line - slice * static_cast<int>(v.h.by);
        const int d = b.from[0] + slice - plane * static_cast<int>(v.d.by);
        const int l = first_output(v, 0, d), m = first_output(v, 1, h);
        rows_of[line] = {(plane * v.axis[0].out + l - b.first[0]) * v.slice_pitch +
                             (m - b.first[1]) * v.pitch,
                         static_cast<uint16_t>(first_output(v, 0, d + 1) - l),
                         static_cast<uint16_t>(first_output(v, 1, h + 1) - m)};
    }
}

/*
 * The sum of `columns` of the rows of dy at y, in the order of dy.  NEAR: columns whose
 * loads are in flight together.
 */
template <int NEAR, typename T>
__device__ __forceinline__ typename sum_of<T>::type
sum_of_rows(const T *y, dy_rows of, int columns, int slice_pitch, int pitch, int across)
{
    typename sum_of<T>::type sum = {};
    const int slices = columns > 0 ? of.slices : 0, rows = of.rows;
    if (columns <= NEAR) {
#pragma unroll 1
        for (int l = 0; l < slices; l++, y += slice_pitch) {
            const T *near = y;
#pragma unroll 1
            for (int m = rows; m > 0; m -= NEAR_ROWS, near += NEAR_ROWS * pitch) {
                add_near<NEAR>(sum, near, pitch, across, m, columns);
            }
        }
        return sum;
    }
#pragma unroll 1
    for (int l = 0; l < slices; l++, y += slice_pitch) {
        const T *near = y;
#pragma unroll 1
        for (int m = 0; m < rows; m++, near += pitch) {
#pragma unroll 1
            for (int x = 0; x < columns; x += NEAR) {
                add_near<NEAR>(sum, near + x * across, pitch, across, 1, columns - x);
            }
        }
    }
    return sum;
}

template <typename T, int NEAR>
__global__ void
__launch_bounds__(BLOCK, TILE_BLOCKS)
    upsample_nearest_backward_contiguous_rows_kernel(tile_view<T> v, int box_bytes)
{
    GPO_DYN_SHARED(unsigned char, memory);
    T *const box = reinterpret_cast<T *>(memory);
    dy_rows *const rows_of = reinterpret_cast<dy_rows *>(memory + box_bytes);
    const dx_tile b = tile_of(v, blockIdx.x);
    const int inner = static_cast<int>(v.inner.by);
    const int image = v.channels.narrow(b.plane);
    const T *const from =
        v.dy + image * v.y.image +
        (b.plane - image * static_cast<int>(v.channels.by)) * v.y.plane +
        b.first[0] * v.y.slice + b.first[1] * v.y.row + b.first[2] * inner;
    const int past =
        static_cast<int>(reinterpret_cast<uintptr_t>(from) % 16 / sizeof(T));
    copy_box(v, b, from, past, box);
    const int lines = b.planes * b.n[0] * b.n[1];
    int *const column_of = reinterpret_cast<int *>(rows_of + lines);
    make_tables(v, b, lines, rows_of, column_of);
    await_copies();
    __syncthreads();

    const int row = b.n[2] * inner, length = v.axis[2].in * inner;
    const int64_t line_of_dx =
        (static_cast<int64_t>(b.plane) * v.axis[0].in + b.from[0]) * v.axis[1].in +
        b.from[1];
    T *const dx = v.dx + line_of_dx * length + b.from[2] * inner;
    for (int unit = threadIdx.x; unit < v.apart * row; unit += BLOCK) {
        const int first = v.apart > 1 ? v.row.narrow(unit) : 0;
        const int e = unit - first * row, s = inner > 1 ? v.inner.narrow(e) : e;
        const int n = column_of[s], columns = column_of[s + 1] - n;
        const T *const y = box + past + n * inner + (e - s * inner);
        T *to = dx + first * length + e;
        for (int line = first; line < lines; line += v.apart) {
            const dy_rows of = rows_of[line];
            *to = stored_as<T>(sum_of_rows<NEAR>(y + of.at, of, columns, v.slice_pitch,
                                                 v.pitch, inner));
            to += v.apart * length;
        }
    }
}

template <typename T, int NEAR>
static gpo_status
run(gpo_call *call, const dx_tiles &t)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    tile_view<T> v = {};
    v.dy = static_cast<const T *>(call->in[0].data);
    v.dx = static_cast<T *>(call->out[0].data);
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        const upsample_axis &axis = p.axis[k];
        v.axis[k] = {output_axis_of(axis), static_cast<int>(axis.in),
                     static_cast<int>(axis.out), static_cast<int>(t.side[k]),
                     divider_of(ceil_div(axis.in, t.side[k]))};
    }
    v.planes = static_cast<int>(p.images * p.channels);
    v.together = static_cast<int>(t.together);
    v.pitch = static_cast<int>(t.pitch);
    v.slice_pitch = static_cast<int>(t.slice_pitch);
    v.y = dy_layout_of(p);
    const bool has_rows = t.side[2] == p.axis[2].in && v.y.joins_rows;
    const bool has_slices = t.side[1] == p.axis[1].in && v.y.joins_slices;
    v.joined = has_rows ? 1 + has_slices : 0;
    v.channels = divider_of(p.channels);
    v.inner = divider_of(p.inner);
    v.row = divider_of(t.side[2] * p.inner);
    v.h = divider_of(t.side[1]);
    v.d = divider_of(t.side[0]);
    const int64_t lines = t.together * t.side[0] * t.side[1];
    const int64_t apart = (BLOCK + p.row / 2) / p.row; /* that fill a block, about */
    const bool is_cut = t.side[2] < p.axis[2].in || apart < 1;
    v.apart = static_cast<int>(is_cut ? 1 : apart < lines ? apart : lines);
    const size_t bytes = static_cast<size_t>(t.bytes);
    const auto kernel = upsample_nearest_backward_contiguous_rows_kernel<T, NEAR>;
    gpo_allow_shared(kernel, bytes);
    return GPO_LAUNCH(call, grid_of(t.blocks), BLOCK, bytes,
                      (upsample_nearest_backward_contiguous_rows_kernel<T, NEAR>), v,
                      static_cast<int>(t.box_bytes));
}

template <typename T>
gpo_status
upsample_nearest_backward_contiguous_rows(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    dx_tiles t;
    if (!plan_tiles(call, &t)) {
        return upsample_nearest_backward_any_rows<T>(call);
    }
    if constexpr (IS_FLOAT<T>) { /* gradients of others are rare */
        if (p.axis[2].inverse >= 0.5F) {
            return run<T, 2>(call, t);
        }
    }
    return run<T, NEAR_COLUMNS>(call, t);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_backward_contiguous_rows<T>(gpo_call * call);
UPSAMPLE_NEAREST_EVERY_SUM(INSTANTIATE)
