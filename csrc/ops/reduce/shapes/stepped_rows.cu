/*
 * stepped_rows.cu  Rows of elements of up to 4 bytes, every second one of memory: loads
 * of 16 bytes, of which half is used.  Loads of one element bring the same sectors with
 * two to eight times the instructions, and a warp of them has few bytes on their way.
 * Cost:  reads 2 n * sizeof(T) bytes once; 64 bytes in flight per thread.
 */
#include "../views.cuh"

/* A row as runs of elements two apart, in tiles of a block's loads. */
struct stepped_runs {
    int64_t count, length;
    divider tiles; /* per run */
};

/* The elements of a pack that are used: every second one, from the first or the second. */
template <typename T>
struct used_elements {
    static constexpr int SIZE = pack<T>::SIZE / 2;
    T v[SIZE];

    __device__ __forceinline__ used_elements(uint4 bytes, bool from_second)
    {
        using Bits = unsigned_of<sizeof(T)>;
        const unsigned words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
        Bits used[SIZE];
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            constexpr int BITS = 8 * sizeof(T);
            const int first = i * 2 * BITS,
                      second = first + BITS; /* bits before them */
            used[i] = static_cast<Bits>(from_second ? words[second / 32] >> second % 32
                                                    : words[first / 32] >> first % 32);
        }
        memcpy(static_cast<void *>(v), used, sizeof v);
    }
};

/*
 * Folds one tile of the run that begins at p with element `first` of the row; the first
 * tile has the elements before and behind all packs, too.
 */
template <typename Op>
__device__ __forceinline__ void
fold_stepped(const Op &op, typename Op::Fold &fold, const typename Op::T *p,
             int64_t first, int64_t length, int64_t tile, uint64_t policy)
{
    using T = typename Op::T;
    using used = used_elements<T>;
    constexpr int SIZE = pack<T>::SIZE, TILE = BLOCK * TILE_ITEMS;
    const int tid = threadIdx.x;
    const int64_t whole = 2 * length - 1, head = elements_to_boundary(p, whole);
    const int64_t packs = (whole - head) / SIZE, begin = tile * TILE + tid;
    uint4 loaded[TILE_ITEMS];
#pragma unroll
    for (int u = 0; u < TILE_ITEMS; u++) {
        if (begin + u * BLOCK < packs) {
            const T *const at = p + head + (begin + u * BLOCK) * SIZE;
            loaded[u] = load_streamed(reinterpret_cast<const uint4 *>(at), policy);
        }
    }
    if (tile == 0 && tid < 2 * used::SIZE) {
        const bool is_head = tid < used::SIZE;
        const int64_t behind = (head + packs * SIZE + 1) / 2;
        const int64_t k = is_head ? tid : behind + tid - used::SIZE;
        if (k < (is_head ? (head + 1) / 2 : length)) {
            fold.add(Op::widen(op.lift(p[2 * k], first + k)));
        }
    }
#pragma unroll 1 /* one copy of the arithmetic */
    for (int64_t j = begin; j < begin + TILE && j < packs; j += BLOCK) {
        const used elements(loaded[0], head % 2 != 0);
        const int64_t k = first + (head + j * SIZE + 1) / 2;
        typename Op::Acc acc = op.lift(elements.v[0], k);
#pragma unroll
        for (int i = 1; i < used::SIZE; i++) {
            acc = Op::combine(acc, op.lift(elements.v[i], k + i));
        }
        fold.add(Op::widen(acc));
#pragma unroll
        for (int u = 1; u < TILE_ITEMS; u++) {
            loaded[u - 1] = loaded[u];
        }
    }
}

/* Blocks (b, row) share a row; x.reduced holds the axes from run to run. */
template <typename Op>
__global__ void
__launch_bounds__(BLOCK, BLOCKS_PER_PROCESSOR)
    reduce_stepped_rows_kernel(Op op, reduce_view<typename Op::T> x, stepped_runs runs,
                               block_parts<typename Op::Part> parts, reduce_result to)
{
    const int64_t row = x.first + blockIdx.y;
    const typename Op::T *const p = x.x + offset_of(x.kept, row);
    const uint64_t policy = l2_policy(x.keep_l2);
    const int64_t tiles = runs.count * runs.tiles.by;

    typename Op::Fold fold;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t run = runs.tiles.of(tile);
        fold_stepped(op, fold, p + offset_of(x.reduced, run), run * runs.length,
                     runs.length, tile - run * runs.tiles.by, policy);
    }
    store_row<Op, BLOCK>(op, fold.value(), parts, row, to, x.cols);
}

struct reduce_stepped_rows_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        using Part = typename Op::Part;
        constexpr int64_t TILE = BLOCK * TILE_ITEMS * pack<T>::SIZE;
        const reduce_plan &plan = *reduce_plan_of(call);
        reduce_view<T> x = view_of<T>(call);
        x.reduced.ndim--; /* the axes from run to run */
        const int64_t length = plan.reduced.shape[plan.reduced.ndim - 1];
        const stepped_runs runs = {plan.cols / length, length,
                                   divider_of(ceil_div(2 * length, TILE))};
        return launch_rows<Op>(
            call, x, runs.count * static_cast<int64_t>(runs.tiles.by),
            [&](dim3 grid, const reduce_view<T> &part, block_parts<Part> parts) {
                return GPO_LAUNCH(call, grid, BLOCK, 0,
                                  (reduce_stepped_rows_kernel<Op>), op, part, runs,
                                  parts, result_of(call));
            });
    }
};

/* The other types, and a host array that was packed after the choice, are v9's. */
template <typename T>
gpo_status
reduce_stepped_rows(gpo_call *call)
{
    if constexpr (has_stepped_packs(sizeof(T), IS_FLOAT<T>)) {
        if (are_stepped(*reduce_plan_of(call))) {
            return reduce_with<reduce_stepped_rows_launcher, T>(call);
        }
    }
    return reduce_v9<T>(call);
}

#define INSTANTIATE(T) template gpo_status reduce_stepped_rows<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
