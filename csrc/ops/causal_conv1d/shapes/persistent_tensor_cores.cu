/*
 * persistent_tensor_cores.cu  Rows of up to 768 values of 16 bits on the tensor cores:
 * one block per SM takes item after item, and its warps do different work, so that
 * loads, products and stores of three or more items go on at the same time.
 *
 * An item is a channel and 16 batches, a stage of shared memory holds one: its rows as
 * toeplitz.cuh describes, and the filter twice.  Of the first warpgroup one warp loads
 * rows by tensor map, one stores results, two load filters; the other warpgroups each
 * multiply every second item and write the results over its data.  Sums of all lags stay
 * in the accumulators: 192 columns in tuples of WIDTH.
 * Other rows, activations and gradients of an activation are left to v6.
 */
#include "../../../device/hopper.cuh"
#include "../store_matrices.cuh"
#include "../toeplitz_item.cuh"

namespace {

constexpr int ITEM = 16;          /* batches */
constexpr int WIDTH = 48;         /* columns of a tuple */
constexpr int PER = WIDTH / ITEM; /* blocks of a tuple */
constexpr int TUPLES = TOEPLITZ_COLUMNS / WIDTH;
constexpr int VALUES = WIDTH / 2; /* of a thread, in a tuple */
constexpr int PAD = PER - 1;      /* blocks of zeros that lags reach */
constexpr int CONSUMERS = 2;      /* warpgroups that multiply */
constexpr int STAGES_THREADS = (CONSUMERS + 1) * TOEPLITZ_THREADS;
constexpr int MOST_STAGES = 16; /* of shared memory */
/* Of 168 per thread at first; more than there are would never come. */
constexpr int LEAST_REGISTERS = 64, MOST_REGISTERS = 216;
static_assert(LEAST_REGISTERS + 2 * MOST_REGISTERS <= 3 * 168, "of two warpgroups");

constexpr int FILTER_WARPS = 2; /* which take turns */
constexpr uint32_t BOX_BYTES = TOEPLITZ_BLOCK * ITEM * 2;
constexpr uint32_t HEAD_BYTES = 1024; /* of shared memory, before the stages */

} // namespace

struct stages_plan {
    int items, batch_items;
    int blocks; /* of 64 along time */
    int lags;   /* blocks of the filter that are not zero */
    int first;  /* tuple of columns; those before it are not needed */
    int stages;
    uint32_t zero;   /* 0, see load_fragment */
    uint32_t bytes;  /* of a stage */
    uint32_t filter; /* place in a stage */
};

#ifdef GPO_HOPPER

/*
 * A warp computes its results of these batches directly, where an infinity or a nan has
 * met a product with 0, and puts them in place of those in shared memory.
 */
template <typename T>
static __device__ __noinline__ void
repair_rows(const tensor_conv<T> &p, int c, int first_batch, unsigned rows,
            unsigned char *data, float offset)
{
    const int64_t last = p.reversed ? p.steps - 1 : 0;
    const int64_t stride = p.reversed ? -p.x.t : p.x.t;
    const int blocks = static_cast<int>(p.steps + TOEPLITZ_BLOCK - 1) / TOEPLITZ_BLOCK;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % 4;
    for (; rows; rows &= rows - 1) {
        const int b = __ffs(rows) - 1;
        const T *const x = p.x.row(first_batch + b, c) + last * p.x.t;
        for (int i = lane; i < blocks * 16; i += WARP) {
            const int place = i / 16, s = 16 * warp + i % 16;
            const int block = p.reversed ? blocks - 1 - place : place;
            const int64_t t = block * TOEPLITZ_BLOCK + s;
            if (t < p.steps) {
                const float v =
                    direct_step<1>(p, x, stride, c, p.reversed ? last - t : t);
                *reinterpret_cast<T *>(data + swizzled(ITEM * place + b, s / 8) +
                                       s % 8 * 2) = stored_as<T>(v + offset);
            }
        }
    }
}

template <typename T>
struct stages_kernel {
    const tensor_conv<T> &p;
    const stages_plan &plan;
    unsigned char *const shared;
    const uint32_t base;
    const int lane, warp; /* of a warpgroup */

    __device__ __forceinline__ stages_kernel(const tensor_conv<T> &conv,
                                             const stages_plan &cut,
                                             unsigned char *memory)
        : p(conv), plan(cut), shared(memory), base(shared_address(memory)),
          lane(threadIdx.x % WARP), warp(threadIdx.x / WARP % 4)
    {
    }

    /* mbarriers of stage s: data and filter are there, results are there, it is free.
       Every thread arrives for itself, which racecheck follows. */
    __device__ __forceinline__ uint32_t loaded(int s) const
    {
        return base + 8 * s;
    }

    __device__ __forceinline__ uint32_t multiplied(int s) const
    {
        return loaded(s + MOST_STAGES);
    }

    __device__ __forceinline__ uint32_t stored(int s) const
    {
        return loaded(s + 2 * MOST_STAGES);
    }

    /* What is added to the sums of the item in stage s. */
    __device__ __forceinline__ float *offset_of(int s) const
    {
        return reinterpret_cast<float *>(shared + 3 * 8 * MOST_STAGES) + s;
    }

    __device__ __forceinline__ uint32_t stage_at(int s) const
    {
        return HEAD_BYTES + static_cast<uint32_t>(s) * plan.bytes;
    }

    /* Calls use(item, stage, phase) for every item of the block from the n-th on. */
    template <typename Use>
    __device__ __forceinline__ void each_item(int n, int apart, Use use) const
    {
        int stage = n, phase = 0;
        const int step = apart * static_cast<int>(gridDim.x);
#pragma unroll 1
        for (int item = static_cast<int>(blockIdx.x) + n * static_cast<int>(gridDim.x);
             item < plan.items; item += step) {
            use(item, stage, phase);
            stage += apart;
            if (stage >= plan.stages) {
                stage -= plan.stages;
                phase ^= 1;
            }
        }
    }

    /* Initialises the barriers, and puts zeros where data has no rows. */
    __device__ __forceinline__ void begin() const
    {
        if (threadIdx.x == 0) {
            for (int s = 0; s < plan.stages; s++) {
                mbarrier_start(loaded(s), 1 + WARP);
                mbarrier_start(multiplied(s), TOEPLITZ_THREADS);
                mbarrier_start(stored(s), 1);
            }
        }
        const int last = PAD + plan.blocks; /* blocks of a tuple that are not there */
        const int end = PAD + (TUPLES - plan.first) * PER;
        const int packs = static_cast<int>(BOX_BYTES / 16);
        const int each = (PAD + end - last) * packs;
        for (int s = 0; s < plan.stages; s++) {
            for (int i = threadIdx.x; i < each; i += blockDim.x) {
                const int at = i < PAD * packs ? i : i + (last - PAD) * packs;
                *reinterpret_cast<uint4 *>(shared + stage_at(s) + at * 16) =
                    make_uint4(0, 0, 0, 0);
            }
        }
        fence_async_shared();
        __syncthreads();
    }

    /* ---- a lane that loads rows ---- */

    __device__ __forceinline__ void load_rows(const tensor_map &x) const
    {
        each_item(0, 1, [&](int item, int stage, int phase) {
            const int c = item / plan.batch_items;
            const int first_batch = item % plan.batch_items * ITEM;
            bulk_barrier_wait(stored(stage), phase ^ 1);
            bulk_barrier_expect(loaded(stage), plan.blocks * BOX_BYTES);
#pragma unroll 1
            for (int i = 0; i < plan.blocks; i++) {
                const int block = p.reversed ? plan.blocks - 1 - i : i;
                tensor_load<3>(base + stage_at(stage) + (PAD + i) * BOX_BYTES, x,
                               {block * TOEPLITZ_BLOCK, c, first_batch}, loaded(stage));
            }
        });
    }

    /* ---- a lane that stores results ---- */

    __device__ __forceinline__ void store_results(const tensor_map &out) const
    {
        each_item(0, 1, [&](int item, int stage, int phase) {
            const int c = item / plan.batch_items;
            const int first_batch = item % plan.batch_items * ITEM;
            bulk_barrier_wait(multiplied(stage), phase);
#pragma unroll 1
            for (int i = 0; i < plan.blocks; i++) {
                const int block = p.reversed ? plan.blocks - 1 - i : i;
                tensor_store<3>(out, {block * TOEPLITZ_BLOCK, c, first_batch},
                                base + stage_at(stage) + (PAD + i) * BOX_BYTES);
            }
            bulk_wait_read();
            mbarrier_arrive(stored(stage));
        });
        bulk_wait();
    }

    /* ---- a warp that loads filters; entries are those of toeplitz_item ---- */

    __device__ __forceinline__ void load_filters(int n) const
    {
        const int entries = TOEPLITZ_BLOCK * (plan.lags + 1);
        constexpr int TAPS = 13; /* of a lane at a time */
        const int sign = p.reversed ? 1 : -1;
        const int origin =
            p.reversed ? 1 - TOEPLITZ_BLOCK : TOEPLITZ_BLOCK * plan.lags - 1;
        const int64_t step = sign * WARP * p.w_s;
        each_item(n, FILTER_WARPS, [&](int item, int stage, int phase) {
            const int c = item / plan.batch_items;
            const float offset = p.offset(c);
            T *const copies =
                reinterpret_cast<T *>(shared + stage_at(stage) + plan.filter);
            const T *from = p.w + c * p.w_c + (origin + sign * lane) * p.w_s;
#pragma unroll 1
            for (int begin = lane; begin < entries; begin += TAPS * WARP) {
                T tap[TAPS];
#pragma unroll
                for (int i = 0; i < TAPS; i++) {
                    const int e = begin + i * WARP;
                    const bool is_in = e < entries && static_cast<unsigned>(
                                                          origin + sign * e) < p.lags;
                    tap[i] = load_now(from, is_in);
                    from += step;
                }
                if (begin == lane) { /* the item before has been multiplied */
                    bulk_barrier_wait(multiplied(stage), phase ^ 1);
                }
#pragma unroll
                for (int i = 0; i < TAPS; i++) {
                    const int e = begin + i * WARP;
                    if (e < entries) {
                        store_filter(copies, filter_bytes(plan.lags), e, tap[i]);
                    }
                }
            }
            if (lane == 0) {
                *offset_of(stage) = offset;
            }
            mbarrier_arrive(loaded(stage));
        });
    }

    /* ---- a warpgroup that multiplies ---- */

    /*
     * Lags that are the first to reach tuple FIRST, and those of the tuples before.  The
     * lag of block r of a tuple, r blocks after the first, begins r blocks before column 0.
     */
    template <int FIRST>
    __device__ __forceinline__ void multiply(float (&sum)[TUPLES][VALUES],
                                             uint32_t filter, int filter_step,
                                             const wgmma_operand &zeros) const
    {
        const int least = (FIRST - plan.first) * PER;
        if (least >= 0) {
#pragma unroll 1
            for (int lag = min(least + PER, plan.lags) - 1; lag >= least; lag--) {
                const int from = PAD - (lag - least);
                toeplitz_lag<T, 1, TUPLES - FIRST>(
                    sum + FIRST, filter + lag * filter_step, 0,
                    zeros.opaque(from * ITEM * 8), zeros, true, plan.zero);
            }
        }
        if constexpr (FIRST > 0) {
            multiply<FIRST - 1>(sum, filter, filter_step, zeros);
        }
    }

    __device__ __forceinline__ static uint32_t pair_of(float a, float b)
    {
        typename half_pair<T>::type pair;
        if constexpr (is_bf16<T>) {
            pair = __floats2bfloat162_rn(a, b);
        }
        else {
            pair = __floats2half2_rn(a, b);
        }
        uint32_t word;
        memcpy(&word, &pair, 4);
        return word;
    }

    __device__ __forceinline__ void multiply_items(int group) const
    {
        const int g = lane / 4, q = lane % 4;
        const int p0 = p.reversed ? TOEPLITZ_BLOCK - 1 : TOEPLITZ_BLOCK * plan.lags - 1;
        const int row0 = p0 - 16 * warp - g + 2 * q; /* odd: second copy */
        const uint32_t filter_at =
            plan.filter + (row0 & 1 ? filter_bytes(plan.lags) : 0) + (row0 >> 1) * 4;
        const int filter_step = (p.reversed ? 1 : -1) * TOEPLITZ_BLOCK * 2;
        /* where the lane's 16 bytes of a block's results go, see store_matrices */
        const uint32_t mine =
            swizzled(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2);
        each_item(group, CONSUMERS, [&](int item, int stage, int phase) {
            const int c = item / plan.batch_items;
            const int first_batch = item % plan.batch_items * ITEM;
            const uint32_t at = stage_at(stage);
            bulk_barrier_wait(loaded(stage), phase);
            const float offset = *offset_of(stage);
            float sum[TUPLES][VALUES];
#pragma unroll
            for (int i = 0; i < TUPLES * VALUES; i++) {
                sum[i / VALUES][i % VALUES] = 0;
            }
#pragma unroll
            for (int j = 0; j < TUPLES; j++) {
                wgmma_settled(sum[j]);
            }
            multiply<TUPLES - 1>(sum, base + at + filter_at, filter_step,
                                 wgmma_operand(base + at));
            wgmma_wait<0>();
            float check[4] = {0, 0, 0, 0}; /* NaN where a sum is not finite */
#pragma unroll
            for (int j = 0; j < TUPLES; j++) {
                wgmma_settled(sum[j]);
#pragma unroll
                for (int i = 0; i < VALUES; i++) {
                    float *const of_column = &check[i / 4 % 2 * 2 + i % 2];
                    *of_column = fmaf(sum[j][i], 0.0f, *of_column);
                    sum[j][i] += offset;
                }
            }
            unsigned bad = 0;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                bad |= check[k] == 0 ? 0 : 1u << (8 * (k / 2) + 2 * q + k % 2);
            }
            named_barrier_sync(1 + group,
                               TOEPLITZ_THREADS); /* all have read the data */
            unsigned char *const data = shared + at + PAD * BOX_BYTES;
#pragma unroll
            for (int i = 0; i < TUPLES * PER; i++) {
                const int place = i - plan.first * PER;
                const float *const v = &sum[i / PER][i % PER * 8];
                if (place >= 0 && place < plan.blocks) {
                    store_matrices(data, place * BOX_BYTES + mine,
                                   {pair_of(v[0], v[1]), pair_of(v[2], v[3]),
                                    pair_of(v[4], v[5]), pair_of(v[6], v[7])});
                }
            }
            const int there = min(ITEM, static_cast<int>(p.batches) - first_batch);
            bad = __reduce_or_sync(ALL_LANES, bad) & ((1u << there) - 1);
            if (bad) {
                __syncwarp();
                repair_rows(p, c, first_batch, bad, data, offset);
            }
            fence_async_shared();
            mbarrier_arrive(multiplied(stage));
        });
    }
};

#endif

template <typename T>
__global__ void
__launch_bounds__(STAGES_THREADS, 1)
    causal_conv1d_persistent_tensor_cores(const __grid_constant__ tensor_conv<T> p,
                                          const __grid_constant__ stages_plan plan,
                                          const __grid_constant__ tensor_map x,
                                          const __grid_constant__ tensor_map out)
{
#ifdef GPO_HOPPER
    GPO_SWIZZLED_SHARED(shared);
    const stages_kernel<T> kernel(p, plan, shared);
    kernel.begin();
    const int group = threadIdx.x / TOEPLITZ_THREADS;
    if (group == 0) {
        return_registers<LEAST_REGISTERS>();
        const int warp = kernel.warp;
        if (warp >= 2) {
            kernel.load_filters(warp - 2);
        }
        else if (kernel.lane == 0) {
            if (warp == 0) {
                kernel.load_rows(x);
            }
            else {
                kernel.store_results(out);
            }
        }
    }
    else {
        take_registers<MOST_REGISTERS>();
        kernel.multiply_items(group - 1);
    }
#endif
}

/* A map of boxes of a channel: 64 steps of 16 batches. */
template <typename T>
static gpo_status
map_rows(gpo_call *call, const row_view<T> &rows,
         const tensor_conv<std::remove_const_t<T>> &p, tensor_map *map)
{
    using Element = std::remove_const_t<T>;
    const auto bytes = [](int64_t n, int64_t stride) {
        return static_cast<uint64_t>(n == 1 ? 16 : stride * 2);
    };
    tensor_layout layout = {};
    layout.rank = 3;
    layout.sizes[0] = p.steps;
    layout.sizes[1] = p.channels;
    layout.sizes[2] = p.batches;
    layout.strides[0] = sizeof(Element);
    layout.strides[1] = bytes(p.channels, rows.c);
    layout.strides[2] = bytes(p.batches, rows.b);
    layout.box[0] = TOEPLITZ_BLOCK;
    layout.box[1] = 1;
    layout.box[2] = ITEM;
    layout.swizzled = true;
    return make_tensor_map(call, const_cast<Element *>(rows.p), layout, map);
}

template <typename T>
static gpo_status
stages_launch(gpo_call *call, const tensor_conv<T> &p)
{
    stages_plan plan = {};
    plan.batch_items = static_cast<int>(ceil_div(p.batches, ITEM));
    plan.items = static_cast<int>(p.channels) * plan.batch_items;
    plan.blocks = static_cast<int>(ceil_div(p.steps, TOEPLITZ_BLOCK));
    plan.lags = static_cast<int>((p.lags + 62) / TOEPLITZ_BLOCK) + 1;
    plan.lags = plan.lags < plan.blocks ? plan.lags : plan.blocks;
    const int tuples = (plan.blocks + PER - 1) / PER;
    plan.first = TUPLES - tuples;
    plan.filter = static_cast<uint32_t>(PER - 1 + tuples * PER) * BOX_BYTES;
    plan.bytes = (plan.filter + 2 * filter_bytes(plan.lags) + 1023) / 1024 * 1024;
    const int64_t room = (gpo_shared_room(call) - HEAD_BYTES) / plan.bytes;
    plan.stages = static_cast<int>(room < MOST_STAGES ? room : MOST_STAGES);
    plan.stages -=
        plan.stages % CONSUMERS; /* a stage is always of the same warpgroup */
    const int grid = gpo_processors(call);
    tensor_map x, out;
    gpo_status status = map_rows(call, p.x, p, &x);
    status = status ? status : map_rows(call, p.out, p, &out);
    if (status) {
        return status;
    }
    const size_t bytes = HEAD_BYTES + static_cast<size_t>(plan.stages) * plan.bytes;
    const auto kernel = causal_conv1d_persistent_tensor_cores<T>;
    gpo_allow_shared(kernel, bytes);
    return GPO_LAUNCH(call, dim3(plan.items < grid ? plan.items : grid),
                      dim3(STAGES_THREADS), bytes, kernel, p, plan, x, out);
}

/* Whether rows can be read and written by tensor maps, if need be after transposition. */
template <typename T>
static bool
has_boxes(const row_view<T> &rows, const conv_view<std::remove_const_t<T>> &v)
{
    constexpr int64_t MOST = int64_t(1) << 38; /* elements of a stride */
    const bool is_box = (rows.b > 0 || v.batches == 1) &&
                        (rows.c > 0 || v.channels == 1) && rows.b < MOST &&
                        rows.c < MOST;
    return v.steps > 0 && v.steps % 8 == 0 &&
           (is_btc(rows, v.channels, v.steps) || (is_box && is_wide(rows, v.steps)));
}

/* Other calls are left to v6. */
template <typename T>
gpo_status
conv_persistent(gpo_call *call, const conv_view<T> &view)
{
    const tensor_conv<T> p = tensor_conv_of(view);
    if (p.finish != FINISH_NONE || p.steps > TOEPLITZ_COLUMNS / ITEM * TOEPLITZ_BLOCK ||
        !has_boxes(p.x, p) || !has_boxes(p.out, p)) {
        return conv_v6(call, view);
    }
    return with_tensor_rows(call, view, stages_launch<T>);
}

GPO_CONV_OF(f16, conv_persistent)
GPO_CONV_OF(bf16, conv_persistent)
