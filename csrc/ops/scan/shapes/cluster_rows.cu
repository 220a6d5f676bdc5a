/*
 * cluster_rows.cu  Few rows of up to a megabyte: a cluster of blocks scans a row.  The
 * blocks run at once and write their totals to each other's shared memory, so there are
 * no tickets, no status words and no order of blocks.  Threads park their packs in
 * shared memory, so that loops need not be unrolled: the code is short, since a call of
 * a few microseconds waits for its first instructions from memory.
 * Cost:  reads x once, writes out once; per 16 bytes of x, 16 bytes of shared memory
 *        are written once and read twice.  A view not in the order of out is copied
 *        first.
 */
#include "../../../device/hopper.cuh"
#include "../prepare.cuh"
#include "../rows.cuh"

static_assert(CLUSTER_THREADS <= WARP * WARP, "a warp scans the totals of all warps");

/* Writes v to `slot` of the block of that rank. */
template <typename V>
__device__ __forceinline__ void
send(const V *slot, uint32_t rank, V v)
{
    constexpr int WORDS = sizeof(V) / 4;
    uint32_t words[WORDS];
    memcpy(words, static_cast<const void *>(&v), sizeof(V));
    const uint32_t to = peer_address(shared_address(slot), rank);
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        store_peer(to + 4 * k, words[k]);
    }
}

/* A thread has `packs` packs of a row, WARP packs apart. */
template <typename Op>
__global__ void
__launch_bounds__(CLUSTER_THREADS)
    scan_cluster_rows_kernel(Op op, scan_view<typename Op::Out> a, int packs,
                             int64_t first_row)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Raw = typename Op::Raw;
    using Fold = typename Op::Fold;
    using Run = stretch<Fold, Acc, false>;
    constexpr int VEC = Op::VEC;
    GPO_DYN_SHARED(pack<Raw>, parked);
    GPO_SHARED(Acc, slots, [WARP]);
    GPO_SHARED(Part, earlier, [CLUSTER]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int warps = blockDim.x / WARP;
    const int rank = static_cast<int>(cluster_rank());
    const int own = warp * packs * WARP + lane;
    pack<Raw> *const mine = parked + own;
    tile_place p =
        place_of<Op, false, 0>(op, a, 1, 1, first_row + blockIdx.x / CLUSTER);
    p.begin += (static_cast<int64_t>(rank) * packs * blockDim.x + own - lane) * VEC;

    /* Load. */
    const bool back = a.stride < 0;
    const Raw *const x = static_cast<const Raw *>(a.x) + p.at.x;
    const uint64_t policy = l2_evict_first();
#pragma unroll 1
    for (int j = 0; j < packs; j++) {
        const int64_t f = p.begin + j * (WARP * VEC);
        if (p.packed && f >= 0 && f + VEC <= p.n) {
            start_copy(mine + j * WARP, x + (back ? -f - (VEC - 1) : f), policy);
        }
        else {
            pack<Raw> raw;
            load_elements(op, a, p, f, raw.v);
            if (back) {
                turn_round(raw.v);
            }
            mine[j * WARP] = raw;
        }
    }
    cluster_sync(); /* every block has begun: others may write its memory */
    await_copies();
    const auto read = [&](int j) {
        pack<Raw> raw = mine[j * WARP];
        if (back) {
            turn_round(raw.v);
        }
        return raw;
    };

    /* Combine: a thread's packs, a warp, the block, the blocks before. */
    Acc sum = Fold::identity();
#pragma unroll 1
    for (int j = 0; j < packs; j++) {
        const pack<Raw> raw = read(j);
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            sum = Fold::combine(sum, op.lift(raw.v[i]));
        }
    }
    sum = warp_scan<Fold>(sum);
    if (lane == WARP - 1) {
        slots[warp] = sum;
    }
    __syncthreads();
    sum = warp_scan<Fold>(lane < warps ? slots[lane] : Fold::identity());
    if (warp == 0) {
        const Acc total = shuffle_from(sum, WARP - 1);
        if (lane > rank && lane < CLUSTER) {
            send(&earlier[rank], lane, Op::widen(total));
        }
    }
    cluster_sync();
    Part before = Op::PartFold::identity();
#pragma unroll 1
    for (int r = 0; r < rank; r++) {
        before = Op::PartFold::combine(before, earlier[r]);
    }
    const Acc up = shuffle_from(sum, warp > 0 ? warp - 1 : 0);
    Acc prefix = Op::narrow(before);
    prefix = warp > 0 ? Fold::combine(prefix, up) : prefix;

    /* Scan and store. */
    Run total = Run::identity();
#pragma unroll 1
    for (int j = 0; j < packs; j++) {
        const int64_t f = p.begin + j * (WARP * VEC);
        const pack<Raw> raw = read(j);
        const Run above = scan_pack<Op, false>(op, a, f, raw.v, &total);
        store_pack<Op, false>(op, a, p, f, raw.v, Fold::combine(prefix, above.v));
    }
}

struct cluster_rows {
    template <typename Op>
    static gpo_status rows(gpo_call *call, const scan_view<typename Op::Out> &a,
                           const Op &op)
    {
        constexpr int64_t MOST = MAX_GRID_X / CLUSTER;
        const int64_t each = ceil_div(tiles_across(a, Op::VEC), CLUSTER);
        const int packs = static_cast<int>(ceil_div(each, CLUSTER_THREADS));
        const int warps = static_cast<int>(ceil_div(each, packs * WARP));
        const int threads = warps * WARP;
        const size_t bytes = static_cast<size_t>(packs) * threads * 16;
        gpo_status status = GPO_OK;
        gpo_allow_shared(scan_cluster_rows_kernel<Op>, bytes);
        for (int64_t row = 0; !status && row < a.rows; row += MOST) {
            const dim3 grid(CLUSTER * grid_extent(a.rows - row, MOST));
            status =
                GPO_LAUNCH_CLUSTERS(call, CLUSTER, grid, threads, bytes,
                                    (scan_cluster_rows_kernel<Op>), op, a, packs, row);
        }
        return status;
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        if constexpr (Op::AS_READ) {
            return for_each_row_view<cluster_rows>(call, op);
        }
        else {
            return gpo_fail(&call->error, GPO_ETYPE, "scan() keeps no such element");
        }
    }
};

/* Only for calls where has_cluster_rows is true. */
template <typename T>
gpo_status
scan_cluster_rows(gpo_call *call)
{
    return scan_with<cluster_rows, T>(call);
}

#define INSTANTIATE(T) template gpo_status scan_cluster_rows<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
