/*
 * cluster_rows.cu  Few rows of up to a megabyte: a cluster of blocks scans a row.  The
 * blocks run at once and write their totals to each other's shared memory, so there are
 * no tickets, no status words and no order of blocks.
 * Cost:  reads x once, writes out once; per 16 bytes of x, 16 bytes of shared memory
 *        are written once and read twice.  A view not in the order of out is copied
 *        first.
 */
#include "../../../device/hopper.cuh"
#include "../parked_packs.cuh"
#include "../prepare.cuh"

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

template <typename Op>
__global__ void
__launch_bounds__(CLUSTER_THREADS)
    scan_cluster_rows_kernel(Op op, scan_view<typename Op::Out> a, int packs,
                             int64_t first_row)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    GPO_DYN_SHARED(pack<typename Op::Raw>, memory);
    GPO_SHARED(Acc, slots, [WARP]);
    GPO_SHARED(Part, earlier, [CLUSTER]);
    const int lane = threadIdx.x % WARP;
    const int rank = static_cast<int>(cluster_rank());
    const parked_packs<Op> mine(op, a, first_row + blockIdx.x / CLUSTER, rank, packs,
                                memory);
    cluster_sync(); /* every block has begun: others may write its memory */
    await_copies();
    const Acc sums = mine.sums_of_warps(op, slots);
    if (threadIdx.x < WARP) {
        const Acc total = shuffle_from(sums, WARP - 1);
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
    mine.store(op, a, sums, Op::narrow(before));
}

struct cluster_rows {
    template <typename Op>
    static gpo_status rows(gpo_call *call, const scan_view<typename Op::Out> &a,
                           const Op &op)
    {
        constexpr int64_t MOST = MAX_GRID_X / CLUSTER;
        const int64_t each = ceil_div(tiles_across<Op>(a, Op::VEC), CLUSTER);
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
    return scan_with<cluster_rows, T, true>(call);
}

#define INSTANTIATE(T) template gpo_status scan_cluster_rows<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
