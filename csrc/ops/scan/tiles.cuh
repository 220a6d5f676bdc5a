/*
 * tiles.cuh  What the rungs of scan share: the arrays as kernel arguments, shuffles
 * upward, the two kernels that finish v0 and v1, and the scan of the tiles' totals.
 */
#ifndef GPO_SCAN_TILES_CUH
#define GPO_SCAN_TILES_CUH

#include "scans.cuh"

constexpr int BLOCK = 128; /* threads of v0 to v2 */
constexpr int64_t MAX_GRID_X = 2147483647;
constexpr int AXES = 4; /* that travel as arguments; a loop on the host has the rest */

__host__ __device__ constexpr int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- the arrays ---- */

/*
 * Element k of row r is x[offset of r + k * stride], its result goes to out[offset of r
 * + k * step]; the offsets are a sum over `ndim` axes, outermost first.
 */
template <typename Out>
struct scan_view {
    const void *x;
    Out *out;
    int64_t rows, cols, stride, step;
    bool exclusive;
    int ndim;
    int64_t shape[AXES], x_strides[AXES], out_strides[AXES];
};

struct row_offset {
    int64_t x, out;
};

template <typename Out>
__device__ __forceinline__ row_offset
offset_of(const scan_view<Out> &a, int64_t row)
{
    row_offset at = {0, 0};
#pragma unroll
    for (int d = AXES - 1; d >= 0; d--) {
        if (d < a.ndim) {
            const int64_t i = d > 0 ? row % a.shape[d] : row;
            row /= a.shape[d];
            at.x += i * a.x_strides[d];
            at.out += i * a.out_strides[d];
        }
    }
    return at;
}

/*
 * Calls run(view) for every index of the axes that find no place in a view: as a rule
 * once.
 */
template <typename Op, typename Run>
gpo_status
for_each_view(const scan_plan &plan, const Op &op, Run run)
{
    using Out = typename Op::Out;
    const scan_axes &kept = plan.kept;
    const int extra = kept.ndim > AXES ? kept.ndim - AXES : 0;
    const int outer = kept.ndim - plan.inner_ndim;
    int64_t out_strides[GPO_MAX_DIMS], slices = 1, step = 1;
    for (int d = kept.ndim - 1; d >= 0; d--) {
        step = d == outer - 1 ? plan.cols * plan.inner : step;
        out_strides[d] = step;
        step *= kept.shape[d];
    }
    for (int d = 0; d < extra; d++) {
        slices *= kept.shape[d];
    }
    scan_view<Out> a = {};
    a.rows = plan.rows / slices;
    a.cols = plan.cols;
    a.stride = plan.stride;
    a.step = plan.step;
    a.exclusive = plan.exclusive;
    a.ndim = kept.ndim - extra;
    for (int d = 0; d < a.ndim; d++) {
        a.shape[d] = kept.shape[extra + d];
        a.x_strides[d] = kept.strides[extra + d];
        a.out_strides[d] = out_strides[extra + d];
    }
    gpo_status status = GPO_OK;
    for (int64_t s = 0; !status && s < slices; s++) {
        int64_t x = 0, out = 0, i = s;
        for (int d = extra - 1; d >= 0; d--) {
            x += i % kept.shape[d] * kept.strides[d];
            out += i % kept.shape[d] * out_strides[d];
            i /= kept.shape[d];
        }
        a.x = static_cast<const char *>(plan.x) + x * op.bytes();
        a.out = static_cast<Out *>(plan.out) + out;
        status = run(a);
    }
    return status;
}

/* ---- between lanes ---- */

/* The value of lane `lane - d`; the own one where there is none. */
template <typename V>
__device__ __forceinline__ V
shuffle_up(V v, int d)
{
    static_assert(sizeof(V) % 4 == 0, "shuffled types are whole 32-bit words");
    unsigned words[sizeof(V) / 4];
    memcpy(words, static_cast<const void *>(&v), sizeof(V));
#pragma unroll
    for (unsigned k = 0; k < sizeof(V) / 4; k++) {
        words[k] = __shfl_up_sync(ALL_LANES, words[k], d);
    }
    memcpy(static_cast<void *>(&v), words, sizeof(V));
    return v;
}

/* The value of one lane. */
template <typename V>
__device__ __forceinline__ V
shuffle_from(V v, int lane)
{
    static_assert(sizeof(V) % 4 == 0, "shuffled types are whole 32-bit words");
    unsigned words[sizeof(V) / 4];
    memcpy(words, static_cast<const void *>(&v), sizeof(V));
#pragma unroll
    for (unsigned k = 0; k < sizeof(V) / 4; k++) {
        words[k] = __shfl_sync(ALL_LANES, words[k], lane);
    }
    memcpy(static_cast<void *>(&v), words, sizeof(V));
    return v;
}

/* Each lane gets the combination of the lanes up to itself, in groups of 32 / first. */
template <typename Fold, typename V>
__device__ __forceinline__ V
warp_scan(V v, int first = 1)
{
    const int lane = threadIdx.x % WARP;
    for (int d = first; d < WARP; d *= 2) {
        const V before = shuffle_up(v, d);
        v = lane >= d ? Fold::combine(before, v) : v;
    }
    return v;
}

/* ---- the totals of tiles become what comes before them: a block per row ---- */

template <typename Fold, typename Part>
__global__ void
scan_totals(Part *part, int64_t tiles, int64_t first_row)
{
    GPO_SHARED(Part, s, [2][BLOCK]);
    const unsigned tid = threadIdx.x;
    Part *row = part + (first_row + blockIdx.x) * tiles;
    Part carry = Fold::identity();
    for (int64_t begin = 0; begin < tiles; begin += BLOCK) {
        const int64_t i = begin + tid;
        s[0][tid] = i < tiles ? row[i] : Fold::identity();
        __syncthreads();
        int from = 0;
        for (unsigned d = 1; d < BLOCK; d *= 2) {
            const Part v = s[from][tid];
            s[1 - from][tid] = tid >= d ? Fold::combine(s[from][tid - d], v) : v;
            from = 1 - from;
            __syncthreads();
        }
        if (i < tiles) {
            row[i] = tid > 0 ? Fold::combine(carry, s[from][tid - 1]) : carry;
        }
        carry = Fold::combine(carry, s[from][BLOCK - 1]);
        __syncthreads();
    }
}

template <typename Fold, typename Part>
gpo_status
scan_all_totals(gpo_call *call, Part *part, int64_t rows, int64_t tiles)
{
    gpo_status status = GPO_OK;
    for (int64_t row = 0; !status && row < rows; row += MAX_GRID_X) {
        const int64_t left = rows - row;
        const dim3 grid(left < MAX_GRID_X ? left : MAX_GRID_X);
        status = GPO_LAUNCH(call, grid, BLOCK, 0, (scan_totals<Fold, Part>), part,
                            tiles, row);
    }
    return status;
}

/* ---- each element takes what comes before its tile ---- */

template <typename Op>
__global__ void
scan_add(Op op, scan_view<typename Op::Out> a, const typename Op::Acc *local,
         const typename Op::Part *part, int64_t tile, int64_t tiles, int64_t first)
{
    using Part = typename Op::Part;
    const int64_t blocks = ceil_div(a.cols, BLOCK);
    const int64_t id = first + blockIdx.x;
    const int64_t row = id / blocks, k = id % blocks * BLOCK + threadIdx.x;
    if (k >= a.cols) {
        return;
    }
    Part v = part[row * tiles + k / tile];
    const bool begins = k % tile == 0;
    if (!a.exclusive || !begins) {
        const typename Op::Acc own = local[row * a.cols + k - a.exclusive];
        v = Op::PartFold::combine(v, Op::widen(own));
    }
    a.out[offset_of(a, row).out + k * a.step] = op.finish(Op::narrow(v));
}

/*
 * v0 and v1: launch(grid, view, local, part, tiles, first) leaves the scan of tile `t`
 * of row `r` in `local`, a row after the other, and its total in part[r * tiles + t].
 */
template <typename Op, typename Launch>
gpo_status
scan_in_three(gpo_call *call, const scan_plan &plan, const Op &op, int64_t tile,
              Launch launch)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    return for_each_view(plan, op, [&](const scan_view<typename Op::Out> &a) {
        const int64_t tiles = ceil_div(a.cols, tile);
        void *local = nullptr, *part = nullptr;
        gpo_status status = gpo_scratch(call, a.rows * a.cols * sizeof(Acc), &local);
        if (!status) {
            status = gpo_scratch(call, a.rows * tiles * sizeof(Part), &part);
        }
        for (int64_t first = 0; !status && first < a.rows * tiles;
             first += MAX_GRID_X) {
            const int64_t left = a.rows * tiles - first;
            const dim3 grid(left < MAX_GRID_X ? left : MAX_GRID_X);
            status = launch(grid, a, static_cast<Acc *>(local),
                            static_cast<Part *>(part), tiles, first);
        }
        if (!status) {
            status = scan_all_totals<typename Op::PartFold>(
                call, static_cast<Part *>(part), a.rows, tiles);
        }
        const int64_t blocks = a.rows * ceil_div(a.cols, BLOCK);
        for (int64_t first = 0; !status && first < blocks; first += MAX_GRID_X) {
            const int64_t left = blocks - first;
            const dim3 grid(left < MAX_GRID_X ? left : MAX_GRID_X);
            status = GPO_LAUNCH(call, grid, BLOCK, 0, (scan_add<Op>), op, a,
                                static_cast<const Acc *>(local),
                                static_cast<const Part *>(part), tile, tiles, first);
        }
        return status;
    });
}

#endif
