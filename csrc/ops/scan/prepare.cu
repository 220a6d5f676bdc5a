/*
 * prepare.cu  Setup for the single-pass kernels: cleared status words (status.cuh), and
 * x in the order of out (prepare.cuh).
 */
#include "prepare.cuh"
#include "status.cuh"

/* ---- status words ---- */

__global__ void
scan_clear(uint64_t *words, int64_t n)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += step) {
        words[i] = 0;
    }
}

gpo_status
make_status(gpo_call *call, int64_t tiles, int64_t groups, int64_t supergroups,
            bool left_cleared, scan_status *status)
{
    constexpr int64_t CLEARED = 256, MOST = 1024;
    const int64_t words = 1 + tiles + groups + supergroups;
    const bool few = left_cleared && words <= GPO_TICKETS / 2;
    void *memory = nullptr;
    const gpo_status failed =
        few ? gpo_tickets(call, &status->next)
            : gpo_scratch(call, words * sizeof(uint64_t), &memory);
    if (failed) {
        return failed;
    }
    status->next = few ? status->next : static_cast<unsigned *>(memory);
    status->words = few ? static_cast<unsigned>(words) : 0;
    uint64_t *word = reinterpret_cast<uint64_t *>(status->next);
    status->tile = word + 1;
    status->group = status->tile + tiles;
    status->supergroup = status->group + groups;
    if (few) {
        return GPO_OK;
    }
    const dim3 grid(grid_extent(ceil_div(words, CLEARED), MOST));
    return GPO_LAUNCH(call, grid, CLEARED, 0, scan_clear, word, words);
}

/* ---- x in the order of out ---- */

template <typename T>
__global__ void
scan_copy_in_order(scan_view<T> a)
{
    const int64_t all = a.rows * a.cols, step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < all;
         i += step) {
        const row_offset at = offset_of(a, i / a.cols);
        const int64_t k = i % a.cols;
        a.out[at.out + k * a.step] = static_cast<const T *>(a.x)[at.x + k * a.stride];
    }
}

/* The part of an op that for_each_view needs. */
template <typename T>
struct elements {
    using Out = T;

    static int bytes()
    {
        return sizeof(T);
    }
};

template <typename T>
static gpo_status
copy_as(gpo_call *call, void *to)
{
    const auto launch = [&](const scan_view<T> &a) {
        const int64_t most = static_cast<int64_t>(gpo_processors(call)) * 16;
        const dim3 grid(grid_extent(ceil_div(a.rows * a.cols, BLOCK), most));
        return GPO_LAUNCH(call, grid, BLOCK, 0, (scan_copy_in_order<T>), a);
    };
    return for_each_view(*scan_plan_of(call), call->in[0].data, to, elements<T>(),
                         launch);
}

static gpo_status
copy_elements(gpo_call *call, int bytes, void *to)
{
    switch (bytes) {
        case 1:
            return copy_as<uint8_t>(call, to);
        case 2:
            return copy_as<uint16_t>(call, to);
        case 4:
            return copy_as<uint32_t>(call, to);
        case 8:
            return copy_as<uint64_t>(call, to);
        default:
            return copy_as<uint4>(call, to);
    }
}

gpo_status
copy_in_order(gpo_call *call, int bytes, scan_plan *plan, const void **x)
{
    void *memory = nullptr;
    gpo_status status = gpo_scratch(call, plan->rows * plan->cols * bytes, &memory);
    if (!status) {
        status = copy_elements(call, bytes, memory);
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
    plan->x_first = plan->out_first;
    *x = memory;
    return status;
}
