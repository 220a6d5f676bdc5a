/*
 * cuda.cu  The ladder of scan on CUDA, v0 to v5, then the table and the choice.
 * Each rung is a comment, its kernels and a launcher.
 * Not here: what a scan is (scans.cuh), what rungs share (tiles.cuh), the tiles of a
 * single pass (rows.cuh), those in shared memory (parked.cuh) and how tiles wait for
 * each other (lookback.cuh), the contract (op.c).
 */
#include "parked.cuh"

#include <stdio.h>

/*
 * v0  Hillis and Steele.
 * Was:   nothing; the first parallel scan one would write.
 * Now:   every thread adds what lies 1, 2, 4, ... before it, in shared memory; three
 *        kernels: tiles, their totals, and the addition of what comes before a tile.
 * Cost:  reads x, writes and reads a local scan as wide as the accumulator, writes out:
 *        16 bytes per element of 4; n log2(BLOCK) additions instead of n.
 * Left:  seven of eight additions are superfluous -> v1.
 */
template <typename Op>
__global__ void
scan_v0_hillis_steele(Op op, scan_view<typename Op::Out> a, typename Op::Acc *local,
                      typename Op::Part *part, int64_t tiles, int64_t first)
{
    using Fold = typename Op::Fold;
    GPO_SHARED(typename Op::Acc, s, [2][BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t id = first + blockIdx.x;
    const int64_t row = id / tiles, k = id % tiles * BLOCK + tid;

    s[0][tid] = k < a.cols ? op.lift(op.read(a.x, offset_of(a, row).x + k * a.stride))
                           : Fold::identity();
    __syncthreads();
    int from = 0;
    for (unsigned d = 1; d < BLOCK; d *= 2) {
        const typename Op::Acc v = s[from][tid];
        s[1 - from][tid] = tid >= d ? Fold::combine(s[from][tid - d], v) : v;
        from = 1 - from;
        __syncthreads();
    }
    if (k < a.cols) {
        local[row * a.cols + k] = s[from][tid];
    }
    if (tid == BLOCK - 1) {
        part[id] = Op::widen(s[from][tid]);
    }
}

struct rung_v0 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const scan_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const scan_view<typename Op::Out> &a,
                                typename Op::Acc *local, typename Op::Part *part,
                                int64_t tiles, int64_t first) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (scan_v0_hillis_steele<Op>), op, a,
                              local, part, tiles, first);
        };
        return scan_in_three(call, plan, op, BLOCK, launch);
    }
};

/*
 * v1  Blelloch's two sweeps over padded banks.
 * Was:   v0 adds n log2(BLOCK) times.
 * Now:   a tree of totals upward, what comes before downward: 2 n additions.  Lanes are
 *        2 * d elements apart, which would meet in one bank: one element of padding
 *        after every 32.
 * Cost:  memory as v0; two elements per thread, twice the barriers.
 * Left:  the local scan goes to memory and back, and each step is a barrier -> v2.
 */
__device__ __forceinline__ unsigned
padded(unsigned i)
{
    return i + i / 32;
}

template <typename Op>
__global__ void
scan_v1_blelloch(Op op, scan_view<typename Op::Out> a, typename Op::Acc *local,
                 typename Op::Part *part, int64_t tiles, int64_t first)
{
    using Acc = typename Op::Acc;
    using Fold = typename Op::Fold;
    constexpr unsigned TILE = 2 * BLOCK;
    GPO_SHARED(Acc, s, [TILE + TILE / 32]);
    const unsigned tid = threadIdx.x;
    const int64_t id = first + blockIdx.x;
    const int64_t row = id / tiles, begin = id % tiles * TILE;
    const int64_t x = offset_of(a, row).x;

    Acc own[2];
#pragma unroll
    for (unsigned h = 0; h < 2; h++) {
        const int64_t k = begin + h * BLOCK + tid;
        own[h] =
            k < a.cols ? op.lift(op.read(a.x, x + k * a.stride)) : Fold::identity();
        s[padded(h * BLOCK + tid)] = own[h];
    }
    unsigned width = 1;
    for (unsigned d = BLOCK; d > 0; d /= 2) {
        __syncthreads();
        if (tid < d) {
            Acc &right = s[padded(width * (2 * tid + 2) - 1)];
            right = Fold::combine(s[padded(width * (2 * tid + 1) - 1)], right);
        }
        width *= 2;
    }
    __syncthreads();
    if (tid == 0) {
        part[id] = Op::widen(s[padded(TILE - 1)]);
        s[padded(TILE - 1)] = Fold::identity();
    }
    for (unsigned d = 1; d <= BLOCK; d *= 2) {
        width /= 2;
        __syncthreads();
        if (tid < d) {
            Acc &left = s[padded(width * (2 * tid + 1) - 1)];
            Acc &right = s[padded(width * (2 * tid + 2) - 1)];
            const Acc before = right;
            right = Fold::combine(before, left);
            left = before;
        }
    }
    __syncthreads();
#pragma unroll
    for (unsigned h = 0; h < 2; h++) {
        const int64_t k = begin + h * BLOCK + tid;
        if (k < a.cols) {
            local[row * a.cols + k] = Fold::combine(s[padded(h * BLOCK + tid)], own[h]);
        }
    }
}

struct rung_v1 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const scan_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const scan_view<typename Op::Out> &a,
                                typename Op::Acc *local, typename Op::Part *part,
                                int64_t tiles, int64_t first) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (scan_v1_blelloch<Op>), op, a,
                              local, part, tiles, first);
        };
        return scan_in_three(call, plan, op, 2 * BLOCK, launch);
    }
};

/*
 * v2  Warp shuffles, reduce then scan.
 * Was:   v1 writes a local scan and reads it again, and meets at every step.
 * Now:   the first kernel leaves totals alone, the third reads x again and knows what
 *        comes before.  Warps scan 32 elements in five shuffles; one barrier is left.
 * Cost:  reads x twice, writes out: 12 bytes per element of 4.
 * Left:  x is read twice, in three launches; a row is walked along its stride, so that
 *        columns are not read together -> v3.
 */
constexpr int ITEMS = 4, REDUCED = ITEMS * BLOCK;

/* Lane `lane` of warp `warp` holds elements (warp * ITEMS + j) * 32 + lane of a tile. */
template <typename Op>
__device__ __forceinline__ void
read_striped(const Op &op, const scan_view<typename Op::Out> &a, int64_t row, int64_t k,
             typename Op::Acc (&v)[ITEMS])
{
    const int64_t x = offset_of(a, row).x;
#pragma unroll
    for (int j = 0; j < ITEMS; j++, k += WARP) {
        v[j] =
            k < a.cols ? op.lift(op.read(a.x, x + k * a.stride)) : Op::Fold::identity();
    }
}

__device__ __forceinline__ int64_t
first_striped(int64_t tile)
{
    const unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    return tile * REDUCED + warp * (ITEMS * WARP) + lane;
}

template <typename Op>
__global__ void
scan_v2_reduce(Op op, scan_view<typename Op::Out> a, typename Op::Part *part,
               int64_t tiles, int64_t first)
{
    using Acc = typename Op::Acc;
    using Fold = typename Op::Fold;
    GPO_SHARED(Acc, slots, [BLOCK / WARP]);
    const int64_t id = first + blockIdx.x;

    Acc v[ITEMS];
    read_striped(op, a, id / tiles, first_striped(id % tiles), v);
    Acc total = warp_scan<Fold>(v[0]);
#pragma unroll
    for (int j = 1; j < ITEMS; j++) {
        total = Fold::combine(total, warp_scan<Fold>(v[j]));
    }
    if (threadIdx.x % WARP == WARP - 1) {
        slots[threadIdx.x / WARP] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < BLOCK / WARP; w++) {
            slots[0] = Fold::combine(slots[0], slots[w]);
        }
        part[id] = Op::widen(slots[0]);
    }
}

template <typename Op>
__global__ void
scan_v2_scan(Op op, scan_view<typename Op::Out> a, const typename Op::Part *part,
             int64_t tiles, int64_t first)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::Fold;
    GPO_SHARED(Acc, slots, [BLOCK / WARP]);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t id = first + blockIdx.x;
    const int64_t row = id / tiles, k = first_striped(id % tiles);

    Acc v[ITEMS], before[ITEMS], total = Fold::identity();
    read_striped(op, a, row, k, v);
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const Acc scanned = warp_scan<Fold>(v[j]);
        const Acc up = shuffle_up(scanned, 1);
        before[j] = lane > 0 ? Fold::combine(total, up) : total;
        v[j] = Fold::combine(total, scanned);
        total = shuffle_from(v[j], WARP - 1);
    }
    if (lane == 0) {
        slots[warp] = total;
    }
    __syncthreads();
    Acc prefix = Fold::identity();
    for (int w = 0; w < warp; w++) {
        prefix = Fold::combine(prefix, slots[w]);
    }
    const Part base = Op::PartFold::combine(part[id], Op::widen(prefix));
    const int64_t out = offset_of(a, row).out;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        if (k + j * WARP < a.cols) {
            const Acc own = a.exclusive ? before[j] : v[j];
            a.out[out + (k + j * WARP) * a.step] =
                op.finish(Op::narrow(Op::PartFold::combine(base, Op::widen(own))));
        }
    }
}

struct rung_v2 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const scan_plan &plan, const Op &op)
    {
        using Part = typename Op::Part;
        return for_each_view(plan, op, [&](const scan_view<typename Op::Out> &a) {
            const int64_t tiles = ceil_div(a.cols, REDUCED), all = a.rows * tiles;
            void *memory = nullptr;
            gpo_status status = gpo_scratch(call, all * sizeof(Part), &memory);
            Part *part = static_cast<Part *>(memory);
            for (int64_t first = 0; !status && first < all; first += MAX_GRID_X) {
                const dim3 grid(all - first < MAX_GRID_X ? all - first : MAX_GRID_X);
                status = GPO_LAUNCH(call, grid, BLOCK, 0, (scan_v2_reduce<Op>), op, a,
                                    part, tiles, first);
            }
            if (!status) {
                status =
                    scan_all_totals<typename Op::PartFold>(call, part, a.rows, tiles);
            }
            for (int64_t first = 0; !status && first < all; first += MAX_GRID_X) {
                const dim3 grid(all - first < MAX_GRID_X ? all - first : MAX_GRID_X);
                status = GPO_LAUNCH(call, grid, BLOCK, 0, (scan_v2_scan<Op>), op, a,
                                    static_cast<const Part *>(part), tiles, first);
            }
            return status;
        });
    }
};

/*
 * v3  Single pass: tiles look back.
 * Was:   v2 reads x twice, in three launches, and walks columns one by one.
 * Now:   a tile stays in registers while it learns what comes before it from the tiles
 *        before it (rows.cuh), regrouped so that the association is fixed.  16-byte
 *        loads and stores; short rows share a tile, in a segmented scan; columns are
 *        read across, a pack of neighbours per thread.  A row of one tile waits for
 *        nothing.
 * Cost:  reads x once, writes out once: 8 bytes per element of 4; 8 bytes of status per
 *        tile (rows), per 64 elements (columns of 4 bytes), cleared before.  A view
 *        that lies otherwise than out is copied first.
 * Left:  a block that waits holds its tile in registers, so few tiles are on their way
 *        at a time -> v4.
 */

/* Blocks a processor is to hold: as many as leave every value a register. */
template <typename Op>
constexpr int row_blocks = sizeof(typename Op::Acc) == 16  ? 2
                           : IS_COMPLEX<typename Op::Raw>  ? 2
                           : sizeof(typename Op::Raw) == 1 ? 2
                           : sizeof(typename Op::Raw) == 4 ? 4
                                                           : 3;

/* Rows: a block has one tile. */
template <typename Op, bool SEGMENTED>
__global__ void
__launch_bounds__(THREADS, row_blocks<Op>)
    scan_v3_rows(Op op, scan_view<typename Op::Out> a, int64_t across, int together,
                 int64_t first, scan_board board)
{
    using Acc = typename Op::Acc;
    using Fold = typename Op::Fold;
    using Run = stretch<Fold, Acc, SEGMENTED>;
    GPO_SHARED(Run, slots, [WARPS]);
    GPO_SHARED(Acc, carried, [1]);
    GPO_SHARED(unsigned, ticket, [1]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const bool waits = !SEGMENTED && across > 1;
    const int64_t id = waits ? take_tile(board.next, ticket) : first + blockIdx.x;
    const tile_place p = place_of<Op, SEGMENTED, PACKS>(op, a, across, together, id);

    pack<typename Op::Raw> raw[PACKS];
    load_packs(op, a, p, raw);
    const auto read = [&](int j) -> const pack<typename Op::Raw> & { return raw[j]; };
    Run before[PACKS];
    const Run sum = scan_packs<Op, SEGMENTED>(op, a, p, read, before);
    if (lane == 0) {
        slots[warp] = sum;
    }
    __syncthreads();
    Run total;
    Run prefix = sum_before_warp(slots, &total);
    if (waits) {
        if (warp == 0) {
            const tile_seat<Op> seat(board, p.row, across, p.t);
            publish_tile(seat, total.v);
            const typename Op::Part all = look_back(seat, look_around(seat));
            if (lane == 0) {
                carried[0] = Op::narrow(all);
            }
        }
        __syncthreads();
        prefix.v = Fold::combine(carried[0], prefix.v);
    }
    store_packs<Op, SEGMENTED>(op, a, p, read, before, prefix);
}

/*
 * Columns: `width` neighbouring rows are neighbours in memory.  Each thread takes VEC
 * of them and DEPTH elements of each; `lanes` threads lie side by side, the others of
 * the block below each other.  Tile `id` is chunk id / strips of strip id % strips.
 * Groups have `fan` chunks and clans `fan_of_groups` groups.
 */
constexpr int DEPTH = 8, COLUMN_FAN = 8;

/* Small types take 4 columns, not 16 bytes of them: each costs registers. */
template <typename Op>
constexpr int column_pack = Op::VEC < 4 ? Op::VEC : 4;

/* What comes before chunk t of one column; `total` is that of the chunk. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
look_up(const scan_board &board, int64_t strips, int64_t strip, int64_t chunks,
        int64_t t, int clan_fan, int columns, int column, typename Op::Acc total)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int64_t g = t / COLUMN_FAN, c = g / clan_fan;
    const int64_t groups = ceil_div(chunks, COLUMN_FAN);
    const int64_t clans = ceil_div(groups, clan_fan);
    const int in_group = static_cast<int>(t % COLUMN_FAN);
    const int in_clan = static_cast<int>(g % clan_fan);
    /* the words of a strip's columns lie side by side */
    const int64_t tile_step = static_cast<int64_t>(columns) * WORDS<Acc>;
    const int64_t part_step = static_cast<int64_t>(columns) * WORDS<Part>;
    uint64_t *tile =
        board.tile + (strip * chunks + g * COLUMN_FAN) * tile_step + column;
    uint64_t *group =
        board.group + (strip * groups + c * clan_fan) * part_step + column;
    uint64_t *clan = board.clan + (strip * clans + c) * part_step + column;

    publish(tile + in_group * tile_step, columns, total);
    constexpr int AHEAD = 8 / WORDS<Acc> - 1; /* reads in flight */
    Part mine = Fold::identity();
#pragma unroll 1
    for (int begin = 0; begin < in_group; begin += AHEAD) {
        sighting<Acc> seen[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (begin + i < in_group) {
                seen[i] = look<Acc>(tile + (begin + i) * tile_step, columns);
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
        publish(group + in_clan * part_step, columns, whole_group);
    }
    Part before = c > 0 ? wait_for<Part>(clan, columns) : Fold::identity();
    for (int i = 0; i < in_clan; i++) {
        before = Fold::combine(before, wait_for<Part>(group + i * part_step, columns));
    }
    if (last_of_group && in_clan == clan_fan - 1 && c + 1 < clans) {
        publish(clan + part_step, columns, Fold::combine(before, whole_group));
    }
    return Fold::combine(before, mine);
}

template <typename Op>
__global__ void
__launch_bounds__(THREADS, 2)
    scan_v3_columns(Op op, scan_view<typename Op::Out> a, int64_t width, int lanes,
                    int64_t strips_across, int64_t strips, int64_t chunks, int clan_fan,
                    bool packed, int64_t first, scan_board board)
{
    using Acc = typename Op::Acc;
    using Raw = typename Op::Raw;
    using Out = typename Op::Out;
    using Fold = typename Op::Fold;
    constexpr int VEC = column_pack<Op>;
    GPO_SHARED(Acc, totals, [WARPS][WARP * VEC]);
    GPO_SHARED(Acc, carried, [WARP * VEC]);
    GPO_SHARED(unsigned, ticket, [1]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int x_lane = lane % lanes;
    const int height = THREADS / lanes * DEPTH, columns = lanes * VEC;

    const int64_t id = chunks > 1 ? take_tile(board.next, ticket) : first + blockIdx.x;
    const int64_t chunk = id / strips, strip = id % strips;
    const int64_t column = (strip % strips_across * lanes + x_lane) * VEC;
    const row_offset at = offset_of(a, strip / strips_across * width);
    const int64_t k = chunk * height + threadIdx.x / lanes * DEPTH;
    const bool whole = packed && column + VEC <= width;

    /* Load. */
    Raw raw[DEPTH][VEC];
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        const int64_t x = at.x + (k + i) * a.stride + column;
        if (whole && k + i < a.cols) {
            op.read_pack(a.x, x, raw[i]);
        }
        else {
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                const bool inside = k + i < a.cols && column + v < width;
                raw[i][v] = inside ? op.read(a.x, x + v) : op.nothing();
            }
        }
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
        carried[c] = Fold::identity();
        if (chunks > 1) {
            carried[c] = Op::narrow(look_up<Op>(board, strips, strip, chunks, chunk,
                                                clan_fan, columns, c, total));
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
        Out *out = a.out + at.out + (k + i) * a.step + column;
        if (whole && k + i < a.cols) {
            store_together(out, result);
        }
        else {
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                if (k + i < a.cols && column + v < width) {
                    out[v] = result[v];
                }
            }
        }
    }
}

/*
 * x in the order of out, for a view whose neighbours along the axis and across it are
 * none in memory.
 */
template <typename T>
__global__ void
scan_v3_pack(scan_view<T> a)
{
    const int64_t all = a.rows * a.cols, step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < all;
         i += step) {
        const row_offset at = offset_of(a, i / a.cols);
        const int64_t k = i % a.cols;
        a.out[at.out + k * a.step] = static_cast<const T *>(a.x)[at.x + k * a.stride];
    }
}

template <typename T>
struct packing {
    using Out = T;

    static int bytes()
    {
        return sizeof(T);
    }
};

/*
 * v4  Tiles wait in shared memory.
 * Was:   a row of many tiles runs at half the speed of rows of one: a tile of v3 waits
 *        for 6 us of its 9, and what waits fills the registers.
 * Now:   tiles are copied into shared memory through no register and wait there: three
 *        times as many bytes are on their way.  A thread reads its packs twice, once
 *        for the tile's total and once for the results.  The groups right before a tile
 *        are added up by its own warps, so it waits for tiles alone.
 * Cost:  as v3 with half or a fourth of the words of status; 16 bytes of shared memory
 *        written once and read twice for 16 of x.
 * Left:  integer sums, whose elements are not as wide as their results, and all that
 *        does not wait: as in v3.
 */

/* Blocks a processor is to hold: six have room for their tiles. */
template <typename Op>
constexpr int parked_blocks = IS_COMPLEX<typename Op::Raw> ? 4 : 6;

template <typename Op>
__global__ void
__launch_bounds__(THREADS, parked_blocks<Op>)
    scan_v4_parked(Op op, scan_view<typename Op::Out> a, int64_t across,
                   scan_board board)
{
    using Tile = parked_tile<Op>;
    using Run = stretch<typename Op::Fold, typename Op::Acc, false>;
    GPO_DYN_SHARED(pack<typename Op::Raw>, parked);
    GPO_SHARED(Run, slots, [WARPS]);
    GPO_SHARED(typename Op::Part, groups, [WARPS]);
    GPO_SHARED(typename Op::Acc, carried, [1]);
    GPO_SHARED(unsigned, ticket, [1]);
    GPO_SHARED(uint64_t, arrival, [1]);
    if (threadIdx.x == 0) {
        start_arrival(arrival);
    }
    const int64_t id = take_tile(board.next, ticket);
    Tile tile;
    tile.start(op, a, across, id, parked, arrival, l2_evict_first());
    await_arrival(arrival);

    Run before[PARKED];
    const Run sum = scan_packs<Op, false>(op, a, tile.place, tile, before);
    if (threadIdx.x % WARP == 0) {
        slots[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    Run total;
    Run prefix = sum_before_warp(slots, &total);
    const tile_seat<Op> seat(board, tile.place.row, across, tile.place.t);
    const typename Op::Part all = meet_tiles(seat, total.v, groups);
    if (threadIdx.x == 0) {
        carried[0] = Op::narrow(all);
    }
    __syncthreads();
    prefix.v = Op::Fold::combine(carried[0], prefix.v);
    store_packs<Op, false>(op, a, tile.place, tile, before, prefix);
}

/*
 * v5  Totals are taken ahead of the tiles.
 * Was:   a tile's total is known when the tile has come, so every tile waits for the
 *        slowest copy before it: 0.13 of 0.73 ms (2^28 float32 on an H200).
 * Now:   a block adds up the tile that lies a quarter of L2 ahead, and scans its own,
 *        whose total, and all those before it, other blocks have told long ago.  It
 *        reads its own tile a second time, out of L2: the first read marks the lines to
 *        stay, the second lets them go.  Nobody waits, so four tiles on a processor are
 *        enough.
 * Cost:  8 bytes of memory and 4 of L2 per element of 4; a grid longer by what lies
 *        ahead, at whose ends blocks have half the work.
 * Left:  short rows and small arrays, where v4 is faster; integer sums: as in v3.
 */
/* Blocks a processor is to hold. */
template <typename Op>
constexpr int ahead_blocks = IS_COMPLEX<typename Op::Raw> ? 3 : 4;

template <typename Op>
__global__ void
__launch_bounds__(THREADS, ahead_blocks<Op>)
    scan_v5_ahead(Op op, scan_view<typename Op::Out> a, int64_t across, int64_t tiles,
                  int64_t ahead, scan_board board)
{
    using Tile = parked_tile<Op>;
    using Run = stretch<typename Op::Fold, typename Op::Acc, false>;
    GPO_DYN_SHARED(pack<typename Op::Raw>, parked);
    GPO_SHARED(Run, slots, [WARPS]);
    GPO_SHARED(Run, totals, [WARPS]);
    GPO_SHARED(typename Op::Acc, carried, [1]);
    GPO_SHARED(unsigned, ticket, [1]);
    GPO_SHARED(uint64_t, arrival, [1]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if (threadIdx.x == 0) {
        start_arrival(arrival);
    }
    const int64_t next = take_tile(board.next, ticket), id = next - ahead;
    Tile tile = {};
    if (id >= 0) {
        tile.start(op, a, across, id, parked, arrival, l2_evict_first());
    }

    if (next < tiles) {
        const tile_place p = place_of<Op, false, PARKED>(op, a, across, 1, next);
        const Run sum = warp_scan<Run>(Run{sum_of_packs(op, a, p, l2_evict_last())});
        if (lane == WARP - 1) {
            totals[warp] = sum;
        }
        __syncthreads();
        if (warp == 0) {
            Run total;
            sum_before_warp(totals, &total);
            publish_tile(tile_seat<Op>(board, p.row, across, p.t), total.v);
        }
    }
    if (id < 0) {
        return;
    }

    if (warp == WARPS - 1) {
        const tile_seat<Op> seat(board, tile.place.row, across, tile.place.t);
        const typename Op::Part all = look_back(seat, look_around(seat));
        if (lane == 0) {
            carried[0] = Op::narrow(all);
        }
    }
    await_arrival(arrival);
    Run before[PARKED];
    const Run sum = scan_packs<Op, false>(op, a, tile.place, tile, before);
    if (lane == 0) {
        slots[warp] = sum;
    }
    __syncthreads();
    Run total;
    Run prefix = sum_before_warp(slots, &total);
    prefix.v = Op::Fold::combine(carried[0], prefix.v);
    store_packs<Op, false>(op, a, tile.place, tile, before, prefix);
}

/* v3, v4 and v5 differ in how a tile of a long row learns what comes before it. */
enum class waits { IN_REGISTERS, IN_SHARED, NEVER };

template <waits WAITS>
struct single_pass {
    template <typename Op>
    static gpo_status run(gpo_call *call, const scan_plan &plan, const Op &op)
    {
        scan_plan p = plan;
        const gpo_status status = is_in_order<Op>(plan) ? GPO_OK : pack(call, op, &p);
        if (status) {
            return status;
        }
        return for_each_view(p, op, [&](const scan_view<typename Op::Out> &a) {
            return p.inner > 1 ? columns(call, a, op, p.inner) : rows(call, a, op);
        });
    }

  private:
    template <typename Op>
    static constexpr int64_t TILE = THREADS *PACKS *Op::VEC;

    /* Short rows share a tile, if they follow each other. */
    template <typename Op>
    static bool are_short(int64_t rows, int64_t cols)
    {
        return rows > 1 && 2 * cols <= TILE<Op> - (Op::VEC - 1);
    }

    template <typename Op>
    static bool is_in_order(const scan_plan &plan)
    {
        const scan_axes &kept = plan.kept;
        if (plan.inner > 1) {
            return plan.inner_ndim == 1 && kept.strides[kept.ndim - 1] == 1;
        }
        if (are_short<Op>(plan.rows, plan.cols)) {
            return plan.stride == plan.step && kept.ndim == 1 &&
                   kept.strides[0] == plan.cols;
        }
        return plan.stride == 1 || plan.stride == -1;
    }

    template <typename T>
    static gpo_status pack_as(gpo_call *call, const scan_plan &from)
    {
        return for_each_view(from, packing<T>(), [&](const scan_view<T> &a) {
            const int64_t most = static_cast<int64_t>(gpo_processors(call)) * 16;
            const int64_t blocks = ceil_div(a.rows * a.cols, BLOCK);
            const dim3 grid(blocks < most ? blocks : most);
            return GPO_LAUNCH(call, grid, BLOCK, 0, (scan_v3_pack<T>), a);
        });
    }

    /* Makes the plan that of a copy of x which lies as out does. */
    template <typename Op>
    static gpo_status pack(gpo_call *call, const Op &op, scan_plan *plan)
    {
        void *memory = nullptr;
        gpo_status status =
            gpo_scratch(call, plan->rows * plan->cols * op.bytes(), &memory);
        if (status) {
            return status;
        }
        scan_plan from = *plan;
        const int64_t last = plan->reverse ? (plan->cols - 1) * plan->inner : 0;
        from.out = static_cast<char *>(memory) + last * op.bytes();
        switch (op.bytes()) {
            case 1:
                status = pack_as<uint8_t>(call, from);
                break;
            case 2:
                status = pack_as<uint16_t>(call, from);
                break;
            case 4:
                status = pack_as<uint32_t>(call, from);
                break;
            case 8:
                status = pack_as<uint64_t>(call, from);
                break;
            default:
                status = pack_as<uint4>(call, from);
                break;
        }
        const int64_t outer = plan->rows / plan->inner;
        scan_axes &kept = plan->kept;
        kept.ndim = 0;
        if (outer > 1) {
            kept.shape[kept.ndim] = outer;
            kept.strides[kept.ndim++] = plan->cols * plan->inner;
        }
        if (plan->inner > 1) {
            kept.shape[kept.ndim] = plan->inner;
            kept.strides[kept.ndim++] = 1;
        }
        plan->inner_ndim = plan->inner > 1;
        plan->stride = plan->step;
        plan->x = from.out;
        return status;
    }

    template <typename Op>
    static gpo_status rows(gpo_call *call, scan_view<typename Op::Out> a, const Op &op)
    {
        constexpr int64_t SPARE =
            Op::VEC - 1; /* of a tile, before the first boundary */
        if (are_short<Op>(a.rows, a.cols)) {
            if (a.step < 0) { /* the walk begins with the last row */
                const int64_t last = (a.rows - 1) * a.cols;
                a.x = static_cast<const char *>(a.x) + last * op.bytes();
                a.out += last;
                a.x_strides[0] = -a.cols;
                a.out_strides[0] = -a.cols;
            }
            const int64_t together = (TILE<Op> - SPARE) / a.cols;
            return launch_rows<Op, true>(call, a, op, ceil_div(a.rows, together), 1,
                                         static_cast<int>(together));
        }
        bool aligned = reinterpret_cast<uintptr_t>(a.out + (a.step < 0)) % 16 == 0;
        for (int d = 0; d < a.ndim; d++) {
            aligned = aligned && a.out_strides[d] % Op::VEC == 0;
        }
        const int64_t n = a.cols + (aligned ? 0 : SPARE);
        if (n > TILE<Op>) {
            if constexpr (WAITS != waits::IN_REGISTERS && Op::AS_READ) {
                return launch_parked(call, a, op,
                                     ceil_div(n, TILE<Op> / PACKS * PARKED));
            }
        }
        const int64_t across = ceil_div(n, TILE<Op>);
        return launch_rows<Op, false>(call, a, op, a.rows * across, across, 1);
    }

    template <typename Op>
    static gpo_status make_row_board(gpo_call *call, int64_t rows, int64_t across,
                                     scan_board *board)
    {
        const int64_t groups = ceil_div(across, FAN), clans = ceil_div(groups, FAN);
        return make_board<Op>(call, rows * across, rows * groups, rows * clans, board);
    }

    /* So many blocks, which take their tiles by tickets. */
    template <typename Launch>
    static gpo_status in_grids(int64_t blocks, const Launch &launch)
    {
        gpo_status status = GPO_OK;
        for (int64_t left = blocks; !status && left > 0; left -= MAX_GRID_X) {
            status = launch(dim3(left < MAX_GRID_X ? left : MAX_GRID_X));
        }
        return status;
    }

    template <typename Op>
    static gpo_status launch_parked(gpo_call *call,
                                    const scan_view<typename Op::Out> &a, const Op &op,
                                    int64_t across)
    {
        const int64_t tiles = a.rows * across;
        scan_board board = {};
        const gpo_status status = make_row_board<Op>(call, a.rows, across, &board);
        if (status) {
            return status;
        }
        if constexpr (WAITS == waits::NEVER) {
            const int64_t share = gpo_l2_bytes(call) / 4 / PARKED_BYTES;
            const int64_t ahead = share < tiles ? share : tiles;
            gpo_allow_shared(scan_v5_ahead<Op>, PARKED_BYTES);
            return in_grids(tiles + ahead, [&](dim3 grid) {
                return GPO_LAUNCH(call, grid, THREADS, PARKED_BYTES,
                                  (scan_v5_ahead<Op>), op, a, across, tiles, ahead,
                                  board);
            });
        }
        else {
            gpo_allow_shared(scan_v4_parked<Op>, PARKED_BYTES);
            return in_grids(tiles, [&](dim3 grid) {
                return GPO_LAUNCH(call, grid, THREADS, PARKED_BYTES,
                                  (scan_v4_parked<Op>), op, a, across, board);
            });
        }
    }

    template <typename Op, bool SEGMENTED>
    static gpo_status launch_rows(gpo_call *call, const scan_view<typename Op::Out> &a,
                                  const Op &op, int64_t tiles, int64_t across,
                                  int together)
    {
        scan_board board = {};
        gpo_status status =
            across > 1 ? make_row_board<Op>(call, a.rows, across, &board) : GPO_OK;
        for (int64_t first = 0; !status && first < tiles; first += MAX_GRID_X) {
            const dim3 grid(tiles - first < MAX_GRID_X ? tiles - first : MAX_GRID_X);
            status = GPO_LAUNCH(call, grid, THREADS, 0, (scan_v3_rows<Op, SEGMENTED>),
                                op, a, across, together, first, board);
        }
        return status;
    }

    template <typename Op>
    static gpo_status columns(gpo_call *call, const scan_view<typename Op::Out> &a,
                              const Op &op, int64_t width)
    {
        constexpr int VEC = column_pack<Op>;
        constexpr int64_t MANY_STRIPS = 16; /* whose chains run side by side */
        const int64_t x_bytes = static_cast<int64_t>(VEC) * op.bytes();
        bool packed =
            reinterpret_cast<uintptr_t>(a.x) % x_bytes == 0 &&
            reinterpret_cast<uintptr_t>(a.out) % (VEC * sizeof(typename Op::Out)) ==
                0 &&
            a.stride % VEC == 0 && a.step % VEC == 0;
        for (int d = 0; d < a.ndim - 1; d++) {
            packed = packed && a.x_strides[d] % VEC == 0 && a.out_strides[d] % VEC == 0;
        }
        int lanes = 1;
        while (lanes < WARP && lanes * VEC < width) {
            lanes *= 2;
        }
        const int64_t strips_across = ceil_div(width, lanes * VEC);
        const int64_t strips = a.rows / width * strips_across;
        const int64_t chunks = ceil_div(a.cols, THREADS / lanes * DEPTH);
        const int clan_fan = strips < MANY_STRIPS ? COLUMN_FAN : 1;
        scan_board board = {};
        gpo_status status = GPO_OK;
        if (chunks > 1) {
            const int64_t groups = ceil_div(chunks, COLUMN_FAN);
            const int64_t all = strips * lanes * VEC;
            status = make_board<Op>(call, all * chunks, all * groups,
                                    all * ceil_div(groups, clan_fan), &board);
        }
        const int64_t tiles = strips * chunks;
        for (int64_t first = 0; !status && first < tiles; first += MAX_GRID_X) {
            const dim3 grid(tiles - first < MAX_GRID_X ? tiles - first : MAX_GRID_X);
            status = GPO_LAUNCH(call, grid, THREADS, 0, (scan_v3_columns<Op>), op, a,
                                width, lanes, strips_across, strips, chunks, clan_fan,
                                packed, first, board);
        }
        return status;
    }
};

using rung_v3 = single_pass<waits::IN_REGISTERS>;
using rung_v4 = single_pass<waits::IN_SHARED>;
using rung_v5 = single_pass<waits::NEVER>;

/* ---- table and choice ---- */

#define RUNG(v)                                \
    template <typename T>                      \
    static gpo_status scan_##v(gpo_call *call) \
    {                                          \
        return scan_with<rung_##v, T>(call);   \
    }
RUNG(v0)
RUNG(v1)
RUNG(v2)
RUNG(v3)
RUNG(v4)
RUNG(v5)

static const gpo_variant variants[] = {
    {"v0", "Hillis and Steele, three kernels", "", "run-to-run", GPO_ALL(scan_v0)},
    {"v1", "Blelloch's two sweeps, padded banks", "", "run-to-run", GPO_ALL(scan_v1)},
    {"v2", "warp shuffles, reduce then scan", "", "run-to-run", GPO_ALL(scan_v2)},
    {"v3", "single pass, look-back in a fixed order", "", "run-to-run",
     GPO_ALL(scan_v3)},
    {"v4", "tiles wait in shared memory", "", "run-to-run", GPO_ALL(scan_v4)},
    {"v5", "totals taken a quarter of L2 ahead: nobody waits", "", "run-to-run",
     GPO_ALL(scan_v5)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* Measured on an H200: rows of 256 KB and arrays of 16 MB on are faster in v5. */
static bool
is_worth_a_second_read(const gpo_call *call)
{
    const gpo_dtype_info &type = gpo_dtypes[call->in[0].dtype];
    scan_plan p;
    scan_make_plan(call, &p);
    const bool is_kept = type.kind == 'f' || type.kind == 'c' ||
                         (type.bytes > 1 && (p.op == SCAN_MIN || p.op == SCAN_MAX));
    return is_kept && p.inner == 1 && p.cols * type.bytes > 256 << 10 &&
           p.rows * p.cols * type.bytes > 16 << 20;
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    if (is_worth_a_second_read(call)) {
        snprintf(why, GPO_MESSAGE,
                 "v5 waits for no tile of a long row, and reads x again out of L2");
        return &variants[5];
    }
    snprintf(why, GPO_MESSAGE,
             "v4 reads and writes every element once, most bytes on their way");
    return &variants[4];
}

extern "C" const gpo_table scan_cuda = {variants, choose};
