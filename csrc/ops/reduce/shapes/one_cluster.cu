/*
 * one_cluster.cu  One contiguous row of what eight SMs load at once.  The blocks of a
 * cluster run at once and send their parts to the shared memory of the first, which is
 * a shorter way than parts in L2 and a ticket.
 * Cost:  a wait for memory, for the warps and for the cluster.  A row that does not
 *        start on a boundary of 16 bytes is v9's.
 */
#include "../../../device/hopper.cuh"
#include "../one_row.cuh"

/* Writes v to `slot` of the first block of the cluster. */
template <typename V>
__device__ __forceinline__ void
send_to_first(const V *slot, V v)
{
    constexpr int WORDS = sizeof(V) / 4;
    uint32_t words[WORDS];
    memcpy(words, static_cast<const void *>(&v), sizeof(V));
    const uint32_t to = peer_address(shared_address(slot), 0);
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        store_peer(to + 4 * k, words[k]);
    }
}

template <typename Op, int THREADS>
__global__ void
__launch_bounds__(THREADS) reduce_one_cluster_kernel(Op op, const typename Op::T *x,
                                                     int length, reduce_result to)
{
    using Part = typename Op::Part;
    constexpr int STEP = ROW_CLUSTER * THREADS * pack<typename Op::T>::SIZE;
    GPO_SHARED(Part, slots, [THREADS / WARP]);
    GPO_SHARED(Part, parts, [ROW_CLUSTER]);
    const int rank = static_cast<int>(cluster_rank());
    const int tid = rank * THREADS + threadIdx.x;
    uint4 loaded[TILE_ITEMS] = {};
    load_row<STEP>(x, tid, length, loaded);
    cluster_sync(); /* the first block has begun: others may write its memory */
    const Part own = fold_row<STEP>(op, x, tid, length, loaded);
    const Part sum = block_combine<Op, THREADS>(own, slots);
    if (threadIdx.x == 0) {
        send_to_first(&parts[rank], sum);
    }
    cluster_sync();
    if (rank > 0 || threadIdx.x >= WARP) {
        return;
    }
    const Part total = warp_combine<Op>(parts[threadIdx.x % ROW_CLUSTER], ROW_CLUSTER);
    if (threadIdx.x == 0) {
        op.store(to, 0, total, length);
    }
}

struct reduce_one_cluster_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        const auto *x = origin_of<typename Op::T>(call);
        const int length = static_cast<int>(reduce_plan_of(call)->cols);
        const reduce_result to = result_of(call);
        const dim3 grid(ROW_CLUSTER);
        if (length * sizeof(*x) <= ROW_CLUSTER * ROW_BLOCK * TILE_ITEMS * 16) {
            return GPO_LAUNCH_CLUSTERS(call, ROW_CLUSTER, grid, ROW_BLOCK, 0,
                                       (reduce_one_cluster_kernel<Op, ROW_BLOCK>), op,
                                       x, length, to);
        }
        return GPO_LAUNCH_CLUSTERS(call, ROW_CLUSTER, grid, LARGE_BLOCK, 0,
                                   (reduce_one_cluster_kernel<Op, LARGE_BLOCK>), op, x,
                                   length, to);
    }
};

template <typename T>
gpo_status
reduce_one_cluster(gpo_call *call)
{
    return is_aligned(origin_of<T>(call))
               ? reduce_with<reduce_one_cluster_launcher, T>(call)
               : reduce_v9<T>(call);
}

#define INSTANTIATE(T) template gpo_status reduce_one_cluster<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
