/*
 * rows.cuh  Tiles of rows whose elements and results are neighbours in memory, for the
 * rungs of scan that read x once: where a tile lies, its packs, what comes before it.
 * Order: sums between beginnings of rows, places, packs, the tiles before.
 * Not here: how tiles tell each other (lookback.cuh), the kernels (cuda.cu).
 */
#ifndef GPO_SCAN_ROWS_CUH
#define GPO_SCAN_ROWS_CUH

#include "lookback.cuh"

constexpr int THREADS = 256, WARPS = THREADS / WARP;
constexpr int PACKS = 4; /* per thread of a short row: 16 KB of x or out per tile */
constexpr int FAN = 32;  /* tiles of a group, groups of a clan: a warp looks at each */

/* ---- sums between beginnings of rows ---- */

/* Elements since the last beginning of a row; in a tile of one row there is none. */
template <typename Fold, typename Acc, bool SEGMENTED>
struct stretch {
    Acc v;

    static __device__ __forceinline__ stretch identity()
    {
        return {Fold::identity()};
    }

    static __device__ __forceinline__ stretch combine(stretch a, stretch b)
    {
        return {Fold::combine(a.v, b.v)};
    }
};

template <typename Fold, typename Acc>
struct stretch<Fold, Acc, true> {
    Acc v;
    unsigned begins; /* 1: a row begins in it */

    static __device__ __forceinline__ stretch identity()
    {
        return {Fold::identity(), 0};
    }

    static __device__ __forceinline__ stretch combine(stretch a, stretch b)
    {
        return {b.begins ? b.v : Fold::combine(a.v, b.v), a.begins | b.begins};
    }
};

/* ---- where a tile lies ---- */

/* Elements that a tile puts before a run, so that its packs lie on 16-byte boundaries. */
template <int VEC, typename Out>
__device__ __forceinline__ int
lead_of(const Out *first, int64_t step)
{
    const int past =
        static_cast<int>(reinterpret_cast<uintptr_t>(first) / sizeof(Out) % VEC);
    return step == 1 ? past : step == -1 ? VEC - 1 - past : 0;
}

/*
 * Elements [0, n) from `at` on; the thread's packs begin at element `begin`.  A pack of
 * x is read whole where x is `packed`.
 */
struct tile_place {
    int64_t row,
        t; /* tile t of this row, or of all rows from it on that share a tile */
    int64_t n, begin;
    row_offset at;
    bool packed;
};

/*
 * SEGMENTED: tile `id` is `together` whole rows that follow each other.  Else it is tile
 * id % across of row id / across.
 */
template <typename Op, bool SEGMENTED, int N>
__device__ __forceinline__ tile_place
place_of(const Op &op, const scan_view<typename Op::Out> &a, int64_t across,
         int together, int64_t id)
{
    constexpr int VEC = Op::VEC;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    tile_place p;
    p.row = SEGMENTED ? id * together : id / across;
    p.t = SEGMENTED ? 0 : id - p.row * across;
    const int64_t rows = a.rows - p.row < together ? a.rows - p.row : together;
    p.n = SEGMENTED ? rows * a.cols : a.cols;
    p.at = offset_of(a, p.row);
    const int lead = lead_of<VEC>(a.out + p.at.out, a.step);
    p.begin = p.t * (THREADS * N * VEC) - lead + (warp * (N * WARP) + lane) * VEC;
    const uintptr_t lowest = reinterpret_cast<uintptr_t>(a.x) +
                             (p.at.x + (a.stride < 0 ? lead - (VEC - 1) : -lead)) *
                                 static_cast<int64_t>(op.bytes());
    p.packed = lowest % (VEC * op.bytes()) == 0;
    return p;
}

/* ---- packs ---- */

template <typename T, int N>
__device__ __forceinline__ void
turn_round(T (&v)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const T t = v[i];
        v[i] = v[N - 1 - i];
        v[N - 1 - i] = t;
    }
}

/* A pack's elements one by one, where it crosses an end of the row or a boundary. */
template <typename Op>
__device__ __forceinline__ void
load_elements(const Op &op, const scan_view<typename Op::Out> &a, const tile_place &p,
              int64_t f, typename Op::Raw (&raw)[Op::VEC])
{
    const bool back = a.stride < 0;
#pragma unroll
    for (int i = 0; i < Op::VEC; i++) {
        const bool inside = f + i >= 0 && f + i < p.n;
        raw[i] = inside ? op.read(a.x, p.at.x + (back ? -f - i : f + i)) : op.nothing();
    }
}

template <typename Op, int N>
__device__ __forceinline__ void
load_packs(const Op &op, const scan_view<typename Op::Out> &a, const tile_place &p,
           pack<typename Op::Raw> (&raw)[N])
{
    constexpr int VEC = Op::VEC;
    const bool back = a.stride < 0;
#pragma unroll
    for (int j = 0; j < N; j++) {
        const int64_t f = p.begin + j * (WARP * VEC);
        if (p.packed && f >= 0 && f + VEC <= p.n) {
            op.read_pack(a.x, p.at.x + (back ? -f - (VEC - 1) : f), raw[j].v);
            if (back) {
                turn_round(raw[j].v);
            }
        }
        else {
            load_elements(op, a, p, f, raw[j].v);
        }
    }
}

/* The place in its row of a pack's first element. */
template <int VEC>
__device__ __forceinline__ unsigned
place_in_row(int64_t f, unsigned cols)
{
    return static_cast<unsigned>(f + static_cast<int64_t>(VEC) * cols) % cols;
}

/* What the warp has before the thread's pack, which begins at f; `total` takes it in. */
template <typename Op, bool SEGMENTED, typename Run>
__device__ __forceinline__ Run
scan_pack(const Op &op, const scan_view<typename Op::Out> &a, int64_t f,
          const typename Op::Raw (&raw)[Op::VEC], Run *total)
{
    constexpr int VEC = Op::VEC;
    const unsigned cols = static_cast<unsigned>(SEGMENTED ? a.cols : 1);
    unsigned place = SEGMENTED ? place_in_row<VEC>(f, cols) : 0;
    Run v = Run::identity();
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        if constexpr (SEGMENTED) {
            v = Run::combine(v, {op.lift(raw[i]), place == 0});
            place = place + 1 == cols ? 0 : place + 1;
        }
        else {
            v = Run::combine(v, {op.lift(raw[i])});
        }
    }
    v = warp_scan<Run>(v);
    const Run up = shuffle_up(v, 1);
    const Run before = threadIdx.x % WARP > 0 ? Run::combine(*total, up) : *total;
    *total = Run::combine(*total, shuffle_from(v, WARP - 1));
    return before;
}

/* before[j]: the sum of the warp's packs before the thread's, read(j); the warp's sum. */
template <typename Op, bool SEGMENTED, typename Read, typename Run, int N>
__device__ __forceinline__ Run
scan_packs(const Op &op, const scan_view<typename Op::Out> &a, const tile_place &p,
           const Read &read, Run (&before)[N])
{
    Run total = Run::identity();
#pragma unroll
    for (int j = 0; j < N; j++) {
        const auto &raw = read(j);
        before[j] = scan_pack<Op, SEGMENTED>(op, a, p.begin + j * (WARP * Op::VEC),
                                             raw.v, &total);
    }
    return total;
}

/* The sum of the warps before this one, out of all warps' sums; `total` is the tile's. */
template <typename Run>
__device__ __forceinline__ Run
sum_before_warp(const Run (&slots)[WARPS], Run *total)
{
    const int warp = threadIdx.x / WARP;
    Run prefix = Run::identity();
    *total = Run::identity();
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        prefix = w == warp ? *total : prefix;
        *total = Run::combine(*total, slots[w]);
    }
    return prefix;
}

/* Walks through the pack that begins at f; v is all that comes before it in its row. */
template <typename Op, bool SEGMENTED>
__device__ __forceinline__ void
store_pack(const Op &op, const scan_view<typename Op::Out> &a, const tile_place &p,
           int64_t f, const typename Op::Raw (&raw)[Op::VEC], typename Op::Acc v)
{
    using Acc = typename Op::Acc;
    using Out = typename Op::Out;
    using Fold = typename Op::Fold;
    constexpr int VEC = Op::VEC;
    const unsigned cols = static_cast<unsigned>(SEGMENTED ? a.cols : 1);
    const bool turned = a.step < 0;
    unsigned place = SEGMENTED ? place_in_row<VEC>(f, cols) : 1;
    Out result[VEC];
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        if constexpr (SEGMENTED) {
            v = place == 0 ? Fold::identity() : v;
            place = place + 1 == cols ? 0 : place + 1;
        }
        const Acc next = Fold::combine(v, op.lift(raw[i]));
        result[i] = op.finish(a.exclusive ? v : next);
        v = next;
    }
    if (f >= 0 && f + VEC <= p.n) {
        if (turned) {
            turn_round(result);
        }
        store_together(a.out + p.at.out + (turned ? -f - (VEC - 1) : f), result);
    }
    else {
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            if (f + i >= 0 && f + i < p.n) {
                a.out[p.at.out + (turned ? -f - i : f + i)] = result[i];
            }
        }
    }
}

/* The same for all packs; `prefix` is what comes before the warp's. */
template <typename Op, bool SEGMENTED, typename Read, typename Run, int N>
__device__ __forceinline__ void
store_packs(const Op &op, const scan_view<typename Op::Out> &a, const tile_place &p,
            const Read &read, const Run (&before)[N], Run prefix)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        const auto &raw = read(j);
        store_pack<Op, SEGMENTED>(op, a, p, p.begin + j * (WARP * Op::VEC), raw.v,
                                  Run::combine(prefix, before[j]).v);
    }
}

/* ---- the tiles before ---- */

/* Where tile t of a row publishes, and what comes before it. */
template <typename Op>
struct tile_seat {
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;

    uint64_t *tile, *group, *clan; /* the first of its group, of its clan; its clan */
    int in_group, in_clan;
    bool has_clan, has_next; /* a clan before, behind */

    __device__ __forceinline__ tile_seat(const scan_board &board, int64_t row,
                                         int64_t across, int64_t t)
    {
        const int64_t g = t / FAN, c = g / FAN;
        const int64_t groups = ceil_div(across, FAN), clans = ceil_div(groups, FAN);
        tile = board.tile + (row * across + g * FAN) * WORDS<Acc>;
        group = board.group + (row * groups + c * FAN) * WORDS<Part>;
        clan = board.clan + (row * clans + c) * WORDS<Part>;
        in_group = static_cast<int>(t % FAN);
        in_clan = static_cast<int>(g % FAN);
        has_clan = c > 0;
        has_next = c + 1 < clans;
    }
};

/* What a warp has seen of the tiles, groups and clans before a tile. */
template <typename Op>
struct tile_sight {
    sighting<typename Op::Acc> tile;
    sighting<typename Op::Part> group, clan;
};

/* Looks at all that may be there already, without a wait. */
template <typename Op>
__device__ __forceinline__ tile_sight<Op>
look_around(const tile_seat<Op> &seat)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    const int lane = threadIdx.x % WARP;
    tile_sight<Op> seen = {};
    if (lane < seat.in_group) {
        seen.tile = look<Acc>(seat.tile + lane * WORDS<Acc>, 1);
    }
    if (lane < seat.in_clan) {
        seen.group = look<Part>(seat.group + lane * WORDS<Part>, 1);
    }
    if (seat.has_clan) {
        seen.clan = look<Part>(seat.clan, 1);
    }
    return seen;
}

/* The tiles before in the group, in every lane. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
sum_of_tiles(const tile_seat<Op> &seat, const tile_sight<Op> &seen)
{
    using Acc = typename Op::Acc;
    const int lane = threadIdx.x % WARP;
    typename Op::Part v = Op::PartFold::identity();
    if (lane < seat.in_group) {
        v = Op::widen(wait_for(seen.tile, seat.tile + lane * WORDS<Acc>, 1));
    }
    return shuffle_from(warp_scan<typename Op::PartFold>(v), WARP - 1);
}

/* All that comes before the group; `v` is the lane's group before it in the clan. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
sum_before_group(const tile_seat<Op> &seat, const tile_sight<Op> &seen,
                 typename Op::Part v)
{
    using Fold = typename Op::PartFold;
    v = shuffle_from(warp_scan<Fold>(v), WARP - 1);
    const typename Op::Part old =
        seat.has_clan ? wait_for(seen.clan, seat.clan, 1) : Fold::identity();
    return Fold::combine(old, v);
}

/* The same where every group is waited for. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
sum_before_group(const tile_seat<Op> &seat, const tile_sight<Op> &seen)
{
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int lane = threadIdx.x % WARP;
    Part v = Fold::identity();
    if (lane < seat.in_clan) {
        v = wait_for(seen.group, seat.group + lane * WORDS<Part>, 1);
    }
    return sum_before_group(seat, seen, v);
}

/* Tells a tile's total; the last of a group, of a clan, tells theirs. */
template <typename Op>
__device__ __forceinline__ void
publish_tile(const tile_seat<Op> &seat, typename Op::Acc total)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int lane = threadIdx.x % WARP;
    if (lane == 0) {
        publish(seat.tile + seat.in_group * WORDS<Acc>, 1, total);
    }
    if (seat.in_group < FAN - 1) {
        return;
    }
    const tile_sight<Op> seen = look_around(seat);
    const Part group = Fold::combine(sum_of_tiles(seat, seen), Op::widen(total));
    if (lane == 0) {
        publish(seat.group + seat.in_clan * WORDS<Part>, 1, group);
    }
    if (seat.in_clan == FAN - 1 && seat.has_next) {
        const Part all = Fold::combine(sum_before_group(seat, seen), group);
        if (lane == 0) {
            publish(seat.clan + WORDS<Part>, 1, all);
        }
    }
}

/* What comes before a tile, by one warp, which has `seen` some of it. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
look_back(const tile_seat<Op> &seat, const tile_sight<Op> &seen)
{
    const typename Op::Part near = sum_of_tiles(seat, seen);
    return Op::PartFold::combine(sum_before_group(seat, seen), near);
}

/* ---- the tiles before, by a whole block ---- */

/* What a group's last tile publishes for it, out of its tiles' words, in every lane. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
sum_of_group(const uint64_t *tiles)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int lane = threadIdx.x % WARP;
    const Part own = Op::widen(wait_for<Acc>(tiles + lane * WORDS<Acc>, 1));
    const Part v = warp_scan<Fold>(lane < FAN - 1 ? own : Fold::identity());
    return Fold::combine(shuffle_from(v, WARP - 1), shuffle_from(own, FAN - 1));
}

/*
 * Tells a tile's total and learns what comes before it, in thread 0.  The groups right
 * before it have hardly told theirs: warps 1, 2, ... add up their tiles themselves, to
 * the same bits, and `groups` takes the sums.
 */
template <typename Op>
__device__ __forceinline__ typename Op::Part
meet_tiles(const tile_seat<Op> &seat, typename Op::Acc total,
           typename Op::Part (&groups)[WARPS])
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const bool is_last = seat.in_group == FAN - 1;
    tile_sight<Op> seen = {};
    Part near = Fold::identity(), group = Fold::identity();
    if (warp == 0) {
        if (lane == 0) {
            publish(seat.tile + seat.in_group * WORDS<Acc>, 1, total);
        }
        seen = look_around(seat);
        near = sum_of_tiles(seat, seen);
        group = Fold::combine(near, Op::widen(total));
        if (is_last && lane == 0) {
            publish(seat.group + seat.in_clan * WORDS<Part>, 1, group);
        }
    }
    else if (warp <= seat.in_clan) {
        const Part sum = sum_of_group<Op>(seat.tile - warp * FAN * WORDS<Acc>);
        if (lane == 0) {
            groups[warp] = sum;
        }
    }
    __syncthreads();
    Part before = Fold::identity();
    if (warp == 0) {
        const int back = seat.in_clan - lane;
        if (back >= WARPS) {
            before = wait_for(seen.group, seat.group + lane * WORDS<Part>, 1);
        }
        else if (back > 0) {
            before = groups[back];
        }
        before = sum_before_group(seat, seen, before);
        if (is_last && seat.in_clan == FAN - 1 && seat.has_next && lane == 0) {
            publish(seat.clan + WORDS<Part>, 1, Fold::combine(before, group));
        }
        before = Fold::combine(before, near);
    }
    return before;
}

#endif
