/*
 * narrow_rows.cu  Many rows of up to 512 bytes, one after the other in memory, wherever
 * they begin: a block copies stretches of them to shared memory in words of 16 bytes,
 * the next ones while it adds this one, and a thread has a row there, or a few lanes.
 * From global memory each load of a warp would look up a line for every few rows.
 * Cost:  reads x once, with what lies between its rows; two stretches of a block, of 4
 *        to 8 KiB, on their way.
 * Order: the view, the copy, the fold, the kernel, the launch.
 */
#include "../packs.cuh"
#include "../narrow.cuh"

/* ---- the view ---- */

/* Element k of row r is x[r * pitch + k * step]. */
template <typename T>
struct narrow_view {
    const T *x;
    int64_t rows, all; /* all: elements from the first of x to its last */
    int64_t chunks;    /* of `length` rows, which are whole words of 16 bytes */
    divider planes;    /* chunks side by side in the results, which take turns */
    int64_t apart;     /* chunks between them */
    int length, slot;  /* slot: elements of shared memory for a chunk */
    int cols, pitch, step;
    int skew;            /* elements from a boundary of 16 bytes to x */
    int log_lanes, part; /* lanes of a row, each with so many elements, or fewer */
    few_axes kept;       /* in the order of memory */
    result_places places;
};

/*
 * The chunk of a turn, v.chunks or more for none: where rows far apart in memory have
 * results beside each other, the chunks of all planes that share sectors of the result
 * follow each other, as a sector that is written in parts, long after each other, is read
 * and written for each.
 */
template <typename T>
__device__ __forceinline__ int64_t
chunk_of(const narrow_view<T> &v, int64_t turn)
{
    const int64_t above = v.planes.of(turn);
    return above < v.apart ? (turn - above * v.planes.by) * v.apart + above : v.chunks;
}

/* ---- the copy ---- */

/* Starts the copy of a chunk, as one group; what lies beside x is left out. */
template <typename T>
__device__ __forceinline__ void
bring_stretch(const narrow_view<T> &v, int64_t chunk, T *to, uint64_t policy)
{
    constexpr int SIZE = pack<T>::SIZE, STEP = NARROW_BLOCK * SIZE;
    if (chunk < v.chunks) {
        const int64_t first = chunk * v.length * v.pitch, rest = v.all - first;
        const int most = v.length * v.pitch;
        const int n = v.skew + static_cast<int>(rest < most ? rest : most);
        const T *const x = v.x + first - v.skew;
        if (first >= v.skew && most + SIZE <= rest) { /* no word beside x */
#pragma unroll 4
            for (int k = static_cast<int>(threadIdx.x) * SIZE; k < n; k += STEP) {
                start_copy(to + k, x + k, policy);
            }
        }
        else { /* the first or the last chunk */
            const int begin = first >= v.skew ? 0 : v.skew - static_cast<int>(first);
            for (int k = begin + static_cast<int>(threadIdx.x); k < n;
                 k += NARROW_BLOCK) {
                to[k] = x[k];
            }
        }
    }
    group_copies();
}

/* ---- the fold ---- */

/* Elements [begin, end) of a row that begins at p in shared memory. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
fold_narrow(const Op &op, const typename Op::T *p, int begin, int end, int step)
{
    constexpr int AT_ONCE = 4;
    typename Op::Fold fold;
    int k = begin;
    p += k * step;
#pragma unroll 1
    for (; k + AT_ONCE <= end; k += AT_ONCE) {
        typename Op::Acc acc[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            acc[u] = op.lift(p[u * step], k + u);
        }
        p += AT_ONCE * step;
        fold.add(Op::widen(
            Op::combine(Op::combine(acc[0], acc[1]), Op::combine(acc[2], acc[3]))));
    }
#pragma unroll 1
    for (; k < end; k++) {
        fold.add(Op::widen(op.lift(*p, k)));
        p += step;
    }
    return fold.value();
}

/* ---- the kernel ---- */

template <typename Op>
__global__ void
__launch_bounds__(NARROW_BLOCK, NARROW_BLOCKS)
    reduce_narrow_rows_kernel(Op op, narrow_view<typename Op::T> v, bool keep_l2,
                              reduce_result to)
{
    using T = typename Op::T;
    using Part = typename Op::Part;
    GPO_DYN_SHARED(pack<T>, shared);
    T *const ring = shared[0].v;
    const uint64_t policy = l2_policy(keep_l2);
    const int lanes = 1 << v.log_lanes,
              lane = static_cast<int>(threadIdx.x) & (lanes - 1);
    const int own = static_cast<int>(threadIdx.x) >> v.log_lanes;
    const int begin = lane * v.part;
    const int end = begin + v.part < v.cols ? begin + v.part : v.cols;
    int64_t next = blockIdx.x;
#pragma unroll 1
    for (int s = 0; s < NARROW_RING - 1; s++) {
        bring_stretch(v, chunk_of(v, next), ring + s * v.slot, policy);
        next += gridDim.x;
    }
    int now = 0, free = NARROW_RING - 1;
#pragma unroll 1
    for (int64_t turn = blockIdx.x; turn < v.planes.by * v.apart; turn += gridDim.x) {
        await_groups<NARROW_RING - 2>();
        __syncthreads(); /* all threads have copied `now` and are done with `free` */
        bring_stretch(v, chunk_of(v, next), ring + free * v.slot, policy);
        next += gridDim.x;
        const int64_t first = chunk_of(v, turn) * v.length, rest = v.rows - first;
        const int rows = static_cast<int>(rest < v.length ? rest : v.length);
        const T *const x = ring + now * v.slot + v.skew;
#pragma unroll 1
        for (int r = own; r - own < rows; r += NARROW_BLOCK >> v.log_lanes) {
            const T *const p = x + (r < rows ? r : 0) * v.pitch;
            const Part total =
                warp_combine<Op>(fold_narrow(op, p, begin, end, v.step), lanes);
            if (lane == 0 && r < rows) {
                const int64_t row = first + r;
                op.store(to,
                         v.places.in_order ? row
                                           : offset_of(v.kept, v.places.strides, row),
                         total, v.cols);
            }
        }
        free = now;
        now = now + 1 < NARROW_RING ? now + 1 : 0;
    }
}

/* ---- the launch ---- */

/* The rows of the farthest axis whose results share sectors, of more than a chunk each. */
static int64_t
planes_of(const gpo_call *call, const reduce_axes &kept, const result_places &places,
          int64_t length)
{
    constexpr int64_t SECTOR = 32;
    const int64_t planes = kept.shape[0];
    const bool share =
        places.strides[0] * gpo_dtypes[call->out[0].dtype].bytes < SECTOR;
    return kept.ndim > 1 && share && reduce_plan_of(call)->rows / planes >= length
               ? planes
               : 1;
}

struct reduce_narrow_rows_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        constexpr int SIZE = pack<T>::SIZE, BYTES = sizeof(T);
        const reduce_plan &plan = *reduce_plan_of(call);
        narrow_view<T> v = {};
        v.x = origin_of<T>(call);
        v.rows = plan.rows;
        v.cols = static_cast<int>(plan.cols);
        reduce_axes kept = plan.kept;
        v.places = sort_by_distance(&kept);
        v.kept = few_axes_of(kept);
        v.pitch = static_cast<int>(kept.strides[kept.ndim - 1]);
        v.step = static_cast<int>(plan.reduced.strides[0]);
        v.all = (v.rows - 1) * v.pitch + (v.cols - 1) * v.step + 1;
        v.skew = static_cast<int>(reinterpret_cast<uintptr_t>(v.x) % 16 / BYTES);
        while (NARROW_LANE_BYTES << v.log_lanes < v.pitch * BYTES) {
            v.log_lanes++;
        }
        v.part = ceil_div(v.cols, 1 << v.log_lanes);
        const int in_turn = NARROW_BLOCK >> v.log_lanes;
        v.length = in_turn * ceil_div(NARROW_CHUNK, in_turn * v.pitch * BYTES);
        v.slot = ceil_div(SIZE - 1 + v.length * v.pitch, SIZE) * SIZE;
        v.chunks = ceil_div(v.rows, v.length);
        const int64_t planes = planes_of(call, kept, v.places, v.length);
        v.planes = divider_of(planes);
        v.apart = ceil_div(v.chunks, planes);
        const int64_t resident = gpo_processors(call) * NARROW_BLOCKS;
        const size_t shared_bytes = NARROW_RING * v.slot * BYTES;
        const int64_t turns = planes * v.apart;
        return GPO_LAUNCH(call, grid_of(turns < resident ? turns : resident),
                          NARROW_BLOCK, shared_bytes, (reduce_narrow_rows_kernel<Op>),
                          op, v, v.all <= KEEP_L2_BYTES / BYTES, result_of(call));
    }
};

template <typename T>
gpo_status
reduce_narrow_rows(gpo_call *call)
{
    return are_narrow_rows(*reduce_plan_of(call), sizeof(T))
               ? reduce_with<reduce_narrow_rows_launcher, T>(call)
               : reduce_v9<T>(call); /* a host array, packed since */
}

#define INSTANTIATE(T) template gpo_status reduce_narrow_rows<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
