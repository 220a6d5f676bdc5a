/*
 * columns.cu  Scans down columns: contiguous elements belong to neighbouring scans.
 * A thread takes a pack of neighbouring columns and DEPTH rows; a block takes a strip
 * of up to 32 packs and a chunk of rows.  A chunk looks back as a tile of v3 does:
 * COLUMN_FAN chunks form a group and, if there are few strips, COLUMN_FAN groups form a
 * supergroup.
 * Cost:  reads x once, writes out once; 8 bytes of status per 64 4-byte elements,
 *        cleared before if there are many.  A view not in the order of out is copied first.
 */
#include "../column_packs.cuh"
#include "../status.cuh"

constexpr int WARPS = THREADS / WARP;

/* The prefix of chunk t of one column; `total` is the chunk's total. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
look_up(const scan_status &status, int64_t strips, int64_t strip, int64_t chunks,
        int64_t t, int super_fan, int columns, int column, typename Op::Acc total)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int64_t g = t / COLUMN_FAN, c = g / super_fan;
    const int64_t groups = ceil_div(chunks, COLUMN_FAN);
    const int64_t supergroups = ceil_div(groups, super_fan);
    const int in_group = static_cast<int>(t % COLUMN_FAN);
    const int in_supergroup = static_cast<int>(g % super_fan);
    /* the words of a strip's columns are interleaved */
    const int64_t tile_step = static_cast<int64_t>(columns) * WORDS<Acc>;
    const int64_t part_step = static_cast<int64_t>(columns) * WORDS<Part>;
    uint64_t *tile =
        status.tile + (strip * chunks + g * COLUMN_FAN) * tile_step + column;
    uint64_t *group =
        status.group + (strip * groups + c * super_fan) * part_step + column;
    uint64_t *supergroup =
        status.supergroup + (strip * supergroups + c) * part_step + column;

    publish(tile + in_group * tile_step, columns, total);
    constexpr int AHEAD = 8 / WORDS<Acc> - 1; /* reads in flight */
    Part mine = Fold::identity();
#pragma unroll 1
    for (int begin = 0; begin < in_group; begin += AHEAD) {
        status_value<Acc> seen[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (begin + i < in_group) {
                seen[i] = peek<Acc>(tile + (begin + i) * tile_step, columns);
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (begin + i < in_group) {
                const Acc v =
                    wait_for(seen[i], tile + (begin + i) * tile_step, columns);
                mine = Fold::combine(mine, Op::widen(v));
            }
        }
    }
    const bool last_of_group = in_group == COLUMN_FAN - 1;
    const Part whole_group = Fold::combine(mine, Op::widen(total));
    if (last_of_group) {
        publish(group + in_supergroup * part_step, columns, whole_group);
    }
    Part before = c > 0 ? wait_for<Part>(supergroup, columns) : Fold::identity();
    for (int i = 0; i < in_supergroup; i++) {
        before = Fold::combine(before, wait_for<Part>(group + i * part_step, columns));
    }
    if (last_of_group && in_supergroup == super_fan - 1 && c + 1 < supergroups) {
        publish(supergroup + part_step, columns, Fold::combine(before, whole_group));
    }
    return Fold::combine(before, mine);
}

template <typename Op>
__global__ void
__launch_bounds__(THREADS, 2)
    scan_columns_kernel(Op op, scan_view<typename Op::Out> a, int64_t width, int lanes,
                        int64_t strips_across, int64_t strips, int64_t chunks,
                        int super_fan, bool packed, int64_t first, scan_status status)
{
    using Acc = typename Op::Acc;
    using Raw = typename Op::Raw;
    using Out = typename Op::Out;
    using Fold = typename Op::Fold;
    constexpr int VEC = column_pack<Op>;
    GPO_SHARED(Acc, totals, [WARPS][WARP * VEC]);
    GPO_SHARED(Acc, carried, [WARP * VEC]);
    GPO_SHARED(unsigned, ticket, [1]);
    GPO_SHARED(bool, last, [1]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int x_lane = lane % lanes;
    const int height = THREADS / lanes * DEPTH, columns = lanes * VEC;

    const int64_t id = chunks > 1 ? take_tile(status.next, ticket) : first + blockIdx.x;
    const int64_t chunk = id / strips, strip = id % strips;
    const int64_t column = (strip % strips_across * lanes + x_lane) * VEC;
    const row_offset at = offset_of(a, strip / strips_across * width);
    const int64_t k = chunk * height + threadIdx.x / lanes * DEPTH;
    const bool whole = packed && column + VEC <= width;

    /* Load. */
    Raw raw[DEPTH][VEC];
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        const bool inside = k + i < a.cols;
        load_columns<VEC>(op, a, at.x + (k + i) * a.stride, column, inside ? width : 0,
                          whole && inside, raw[i]);
    }

    /* Combine: down a thread, down a warp, down the block, the chunks above. */
    Acc sum[VEC];
#pragma unroll
    for (int v = 0; v < VEC; v++) {
        sum[v] = op.lift(raw[0][v]);
#pragma unroll
        for (int i = 1; i < DEPTH; i++) {
            sum[v] = Fold::combine(sum[v], op.lift(raw[i][v]));
        }
        sum[v] = warp_scan<Fold>(sum[v], lanes);
        if (lane >= WARP - lanes) {
            totals[warp][x_lane * VEC + v] = sum[v];
        }
        const Acc up = shuffle_up(sum[v], lanes);
        sum[v] = lane >= lanes && lanes < WARP ? up : Fold::identity();
    }
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += THREADS) {
        Acc total = Fold::identity();
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const Acc own = totals[w][c];
            totals[w][c] = total;
            total = Fold::combine(total, own);
        }
        carried[c] = op.first;
        if (chunks > 1) {
            carried[c] = Fold::combine(
                op.first, Op::narrow(look_up<Op>(status, strips, strip, chunks, chunk,
                                                 super_fan, columns, c, total)));
        }
    }
    __syncthreads();

    /* Walk down and store. */
#pragma unroll
    for (int v = 0; v < VEC; v++) {
        const Acc above =
            Fold::combine(carried[x_lane * VEC + v], totals[warp][x_lane * VEC + v]);
        sum[v] = Fold::combine(above, sum[v]);
    }
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        Out result[VEC];
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            const Acc next = Fold::combine(sum[v], op.lift(raw[i][v]));
            result[v] = op.finish(a.exclusive ? sum[v] : next);
            sum[v] = next;
        }
        if (k + i < a.cols) {
            store_columns<VEC>(a.out + at.out + (k + i) * a.step, column, width, whole,
                               result);
        }
    }
    leave_status(status, strips * chunks, last);
}

/* How columns are divided into strips and chunks. */
struct column_grid {
    int lanes;
    int64_t strips_across, strips, chunks;
    int super_fan; /* groups per supergroup */
};

/* The grid for `vec` of `width` columns per thread and `rows` scans of `cols`. */
static column_grid
column_grid_of(int64_t rows, int64_t cols, int64_t width, int vec)
{
    int lanes = 1;
    while (lanes < WARP && lanes * vec < width) {
        lanes *= 2;
    }
    const int64_t strips_across = ceil_div(width, lanes * vec);
    const int64_t strips = rows / width * strips_across;
    const int64_t chunks = ceil_div(cols, THREADS / lanes * DEPTH);
    return {lanes, strips_across, strips, chunks,
            strips < MANY_STRIPS ? COLUMN_FAN : 1};
}

/* Cleared status: `acc` words per column and chunk, `part` words per group. */
static gpo_status
make_column_status(gpo_call *call, const column_grid &g, int vec, int acc, int part,
                   scan_status *status)
{
    const int64_t groups = ceil_div(g.chunks, COLUMN_FAN);
    const int64_t all = g.strips * g.lanes * vec;
    return make_status(call, all * g.chunks * acc, all * groups * part,
                       all * ceil_div(groups, g.super_fan) * part, true, status);
}

struct columns {
    template <typename Op>
    static gpo_status launch(gpo_call *call, const scan_view<typename Op::Out> &a,
                             const Op &op)
    {
        constexpr int VEC = column_pack<Op>;
        const int64_t width = scan_plan_of(call)->inner;
        const bool packed = are_packed(a, VEC, op.bytes());
        const column_grid g = column_grid_of(a.rows, a.cols, width, VEC);
        scan_status status = {};
        gpo_status failed = GPO_OK;
        if (g.chunks > 1) {
            failed = make_column_status(call, g, VEC, WORDS<typename Op::Acc>,
                                        WORDS<typename Op::Part>, &status);
        }
        const int64_t tiles = g.strips * g.chunks;
        for (int64_t first = 0; !failed && first < tiles; first += MAX_GRID_X) {
            failed = GPO_LAUNCH(call, grid_of(tiles - first), THREADS, 0,
                                (scan_columns_kernel<Op>), op, a, width, g.lanes,
                                g.strips_across, g.strips, g.chunks, g.super_fan,
                                packed, first, status);
        }
        return failed;
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return for_each_ordered_view(
            call, op, has_columns_in_order(call),
            [&](const scan_view<typename Op::Out> &a) { return launch(call, a, op); });
    }
};

template <typename T>
gpo_status
scan_columns(gpo_call *call)
{
    return scan_with<columns, T>(call);
}

#define INSTANTIATE(T) template gpo_status scan_columns<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
