/*
 * rows.cuh  Tiles of rows with contiguous elements and results: the place of a tile,
 * and its packs of 16 bytes.  Order: segmented sums, places, packs.  See lookback.cuh
 * for the prefix of a tile.
 */
#ifndef GPO_SCAN_ROWS_CUH
#define GPO_SCAN_ROWS_CUH

#include "views.cuh"

constexpr int WARPS = THREADS / WARP;

/* Elements per tile: of v3 and short rows, then of v4 and v5. */
template <typename Op>
constexpr int64_t TILE = THREADS *PACKS *Op::VEC;

template <typename Op>
constexpr int64_t PARKED_TILE = THREADS *PARKED *Op::VEC;

/* Blocks of v3 and short rows per SM: as many as keep every value in registers. */
template <typename Op>
constexpr int row_blocks = sizeof(typename Op::Acc) == 16  ? 2
                           : IS_COMPLEX<typename Op::Raw>  ? 2
                           : sizeof(typename Op::Raw) == 1 ? 2
                           : sizeof(typename Op::Raw) == 4 ? 4
                                                           : 3;

/* ---- segmented sums ---- */

/* The sum since the last beginning of a row, or of all if the tile has one row. */
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
    unsigned begins; /* 1 if a row begins in it */

    static __device__ __forceinline__ stretch identity()
    {
        return {Fold::identity(), 0};
    }

    static __device__ __forceinline__ stretch combine(stretch a, stretch b)
    {
        return {b.begins ? b.v : Fold::combine(a.v, b.v), a.begins | b.begins};
    }
};

/* ---- the place of a tile ---- */

/* Elements by which a tile begins before its row, to align its packs to 16 bytes. */
template <int VEC, typename Out>
__device__ __forceinline__ int
lead_of(const Out *first, int64_t step)
{
    const int past =
        static_cast<int>(reinterpret_cast<uintptr_t>(first) / sizeof(Out) % VEC);
    return step == 1 ? past : step == -1 ? VEC - 1 - past : 0;
}

/*
 * Elements [0, n) from `at` on; the thread's packs begin at element `begin`.  Packs of
 * x are loaded whole if x is `packed`.
 */
struct tile_place {
    int64_t row,
        t; /* tile t of this row, or of all rows from it on that share a tile */
    int64_t n, begin;
    row_offset at;
    bool packed;
};

/*
 * SEGMENTED: tile `id` is `together` consecutive whole rows.  Else it is tile id %
 * across of row id / across.
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

/* Tiles of `size` elements per row, each aligned to a pack of results. */
template <typename Op>
int64_t
tiles_across(const scan_view<typename Op::Out> &a, int64_t size)
{
    constexpr int VEC = Op::VEC, BYTES = VEC * sizeof(typename Op::Out);
    bool aligned = reinterpret_cast<uintptr_t>(a.out + (a.step < 0)) % BYTES == 0;
    for (int d = 0; d < a.ndim; d++) {
        aligned = aligned && a.out_strides[d] % VEC == 0;
    }
    return ceil_div(a.cols + (aligned ? 0 : VEC - 1), size);
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

/* Loads a pack element by element, if it crosses an end of its row or is unaligned. */
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

/* The position in its row of a pack's first element. */
template <int VEC>
__device__ __forceinline__ unsigned
place_in_row(int64_t f, unsigned cols)
{
    return static_cast<unsigned>(f + static_cast<int64_t>(VEC) * cols) % cols;
}

/* The warp's sum before the thread's pack, which begins at f; updates *total. */
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

/* before[j] = the warp's sum before the thread's pack read(j); returns its total. */
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

/* The sum of the warps before this one, from all warps' sums; *total is the tile's. */
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

/* Scans the pack that begins at f and stores it; v is the sum before it in its row. */
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
    v = Fold::combine(op.first, v);
#pragma unroll
    for (int i = 0; i < VEC; i++) {
        if constexpr (SEGMENTED) {
            v = place == 0 ? op.first : v;
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

/* The same for all packs; `prefix` is that of the warp. */
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

#endif
