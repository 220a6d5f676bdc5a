/*
 * many_batches.cu  Many batches of a small problem, in one launch: a block takes
 * neighbouring batches, copies their x through a ring of stages in shared memory, in
 * words of 16 bytes wherever rows begin, and keeps the means of a piece of its batches
 * there, which it multiplies by the matrix while the next stages are on their way.
 * Cost:  reads x once, and the matrix once per block, from L2; writes the result.
 */
#include "../many_batches.cuh"
#include "../../../device/divide.cuh"

template <typename T>
struct many_view {
    const T *x, *matrix;
    T *out;
    int64_t batches, share;  /* share: of a block */
    int rows, cols, outputs; /* rows and outputs of a batch */
    int piece, stage_rows;   /* batches and rows at a time */
    row_words words;
    int matrix_pitch, slot_values; /* values of V; elements of T */
    int64_t matrix_output, matrix_row, out_output, out_batch;
    divider per_batch, per_line; /* rows; outputs */
    bool is_staged;
};

/* Rows [begin, end) of a block are on their way or present; a stage ends with a piece. */
struct many_walk {
    int64_t begin, end_of_piece;

    __device__ __forceinline__ int length(int64_t all, int stage_rows) const
    {
        const int64_t end = end_of_piece < all ? end_of_piece : all;
        return static_cast<int>(end - begin < stage_rows ? end - begin : stage_rows);
    }

    __device__ __forceinline__ void pass(int n, int64_t piece_rows)
    {
        begin += n;
        end_of_piece += begin == end_of_piece ? piece_rows : 0;
    }
};

/* Starts the copy of n rows from row `row` of x on; what lies beside x is left out. */
template <typename T>
__device__ __forceinline__ void
bring_stage(const many_view<T> &v, int64_t row, int n, int skew, T *to)
{
    constexpr int SIZE = pack<T>::SIZE;
    const int64_t first = row * v.cols - skew; /* at a 16-byte boundary */
    const int64_t all = v.batches * v.rows * v.cols;
    const int end = skew + n * v.cols;
    const int begin = static_cast<int>(threadIdx.x) * SIZE;
    if (first >= 0 && first + end + SIZE - 1 <= all) {
        const T *const from = v.x + first;
#pragma unroll 4
        for (int k = begin; k < end; k += THREADS * SIZE) {
            start_copy(to + k, from + k, l2_evict_unchanged());
        }
        return;
    }
    for (int k = begin; k < end; k += THREADS * SIZE) {
        const int64_t at = first + k;
        if (at >= 0 && at + SIZE <= all) {
            start_copy(to + k, v.x + at, l2_evict_unchanged());
        }
        else {
            for (int u = 0; u < SIZE; u++) {
                if (at + u >= 0 && at + u < all) {
                    to[k + u] = v.x[at + u];
                }
            }
        }
    }
}

/*
 * The means of a stage's n rows, of which the first is row `begin` of the piece, to
 * means[row of a batch][batch].
 */
template <typename T>
__device__ __forceinline__ void
add_stage(const many_view<T> &v, const T *x, int begin, int n, value_type<T> *means)
{
    const int pitch = v.piece + 1;
    each_mean(v.words, x, v.cols, n, [&](int r, value_type<T> mean) {
        const int batch = v.per_batch.narrow(begin + r);
        means[(begin + r - batch * v.rows) * pitch + batch] = mean;
    });
}

/*
 * Starts the copy of the matrix, turned: line l has the factors of row l for all
 * outputs, then zeros.  Values of 16 bits are converted, and not copied asynchronously.
 */
template <typename T>
__device__ __forceinline__ void
bring_matrix(const many_view<T> &v, value_type<T> *matrix)
{
    const int all = v.matrix_pitch * v.rows;
#pragma unroll(std::is_same_v <T, value_type <T>> ? 1 : 4)
    for (int e = threadIdx.x; e < all; e += THREADS) {
        const int i = v.per_batch.narrow(e), l = e - i * v.rows;
        const bool exists = i < v.outputs;
        const T *const from =
            v.matrix + (exists ? i * v.matrix_output + l * v.matrix_row : 0);
        value_type<T> *const to = matrix + l * v.matrix_pitch + i;
        if constexpr (std::is_same_v<T, value_type<T>>) {
            start_value_copy(to, from, exists);
        }
        else {
            *to = exists ? value_of(*from) : 0;
        }
    }
}

/* What a thread multiplies of one row: means of ACROSS batches by OUTPUTS factors. */
template <typename V, int OUTPUTS, int ACROSS>
struct many_factors {
    static constexpr int SIZE = pack<V>::SIZE;
    V means[ACROSS];
    pack<V> of[OUTPUTS / SIZE];

    __device__ __forceinline__ void add_to(V (&sum)[OUTPUTS][ACROSS]) const
    {
#pragma unroll
        for (int i = 0; i < OUTPUTS; i++) {
#pragma unroll
            for (int k = 0; k < ACROSS; k++) {
                sum[i][k] += of[i / SIZE].v[i % SIZE] * means[k];
            }
        }
    }
};

/*
 * The thread's results of one output after the other, of the first one's batches from
 * `to` on, `apart` elements from each other.
 */
template <bool IS_WHOLE, int OUTPUTS, int ACROSS, typename T>
__device__ __forceinline__ void
store_sums(const many_view<T> &v, const value_type<T> (&sum)[OUTPUTS][ACROSS], T *to,
           int64_t apart, int outputs, int batches)
{
#pragma unroll
    for (int i = 0; i < OUTPUTS; i++) {
        if (IS_WHOLE || i < outputs) {
#pragma unroll
            for (int k = 0; k < ACROSS; k++) {
                if (IS_WHOLE || k < batches) {
                    to[k * apart] = stored_as<T>(sum[i][k]);
                }
            }
        }
        to += v.out_output;
    }
}

/*
 * The results of `live` batches.  A thread has OUTPUTS of ACROSS batches, which are
 * evenly apart: WARP of them where IS_WIDE, so that a warp has all batches of WARP *
 * ACROSS; else a share of those that there are, and threads that are neighbours mostly
 * have neighbouring batches of the same outputs.
 */
template <int OUTPUTS, int ACROSS, bool IS_WIDE, typename T>
__device__ __forceinline__ void
multiply_piece(const many_view<T> &v, int64_t batch, int live,
               const value_type<T> *matrix, const value_type<T> *means,
               value_type<T> *results)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<V>::SIZE, SPAN = WARP * ACROSS;
    const int pitch = v.piece + 1;
    const int apart = IS_WIDE ? WARP : (live + ACROSS - 1) / ACROSS;
    const int columns = IS_WIDE ? (live + SPAN - 1) / SPAN * WARP : apart;
    const int groups = (v.outputs + OUTPUTS - 1) / OUTPUTS;
    const int down = THREADS / columns, aside = THREADS - down * columns;
    int group = static_cast<int>(threadIdx.x) / columns;
    int column = static_cast<int>(threadIdx.x) - group * columns;
    while (group < groups) {
        const int output = group * OUTPUTS;
        const int first = IS_WIDE ? column / WARP * SPAN + column % WARP : column;
        const V *factors = matrix + output, *mean[ACROSS];
#pragma unroll
        for (int k = 0; k < ACROSS; k++) { /* wide ones past `live` are not stored */
            const int n = first + k * apart;
            mean[k] = means + (IS_WIDE || n < live ? n : live - 1);
        }
        const auto next = [&](many_factors<V, OUTPUTS, ACROSS> &f) {
#pragma unroll
            for (int k = 0; k < ACROSS; k++) {
                f.means[k] = IS_WIDE ? mean[0][k * WARP] : *mean[k];
            }
#pragma unroll
            for (int k = 0; k < (IS_WIDE ? 1 : ACROSS); k++) {
                mean[k] += pitch;
            }
#pragma unroll
            for (int i = 0; i < OUTPUTS / SIZE; i++) {
                f.of[i] = reinterpret_cast<const pack<V> *>(factors)[i];
            }
            factors += v.matrix_pitch;
        };
        V sum[OUTPUTS][ACROSS] = {};
        many_factors<V, OUTPUTS, ACROSS> now, ahead;
        next(now);
#pragma unroll 2
        for (int l = 1; l < v.rows; l++) { /* a row is loaded while one is multiplied */
            next(ahead);
            now.add_to(sum);
            now = ahead;
        }
        now.add_to(sum);

        const int outputs = v.outputs - output;
        if (!IS_WIDE && v.is_staged) {
#pragma unroll
            for (int i = 0; i < OUTPUTS; i++) {
#pragma unroll
                for (int k = 0; k < ACROSS; k++) {
                    const int n = first + k * apart;
                    if (n < live && i < outputs) {
                        results[n * (v.outputs | 1) + output + i] = sum[i][k];
                    }
                }
            }
        }
        else {
            T *const to = v.out + output * v.out_output + (batch + first) * v.out_batch;
            const int64_t step = IS_WIDE ? WARP : apart * v.out_batch;
            const int batches = first < live ? (live - first - 1) / apart + 1 : 0;
            if (outputs >= OUTPUTS && batches >= ACROSS) {
                store_sums<true>(v, sum, to, step, outputs, batches);
            }
            else {
                store_sums<false>(v, sum, to, step, outputs, batches);
            }
        }
        group += down;
        column += aside;
        if (column >= columns) {
            column -= columns;
            group++;
        }
    }
}

/* Staged results, in the order in which they lie in `out`. */
template <typename T>
__device__ __forceinline__ void
store_results(const many_view<T> &v, int64_t batch, int live,
              const value_type<T> *results)
{
    const int all = live * v.outputs;
#pragma unroll 4
    for (int e = threadIdx.x; e < all; e += THREADS) {
        const int n = v.per_line.narrow(e), i = e - n * v.outputs;
        v.out[i * v.out_output + (batch + n) * v.out_batch] =
            stored_as<T>(results[n * (v.outputs | 1) + i]);
    }
}

template <typename T, int OUTPUTS, int ACROSS, bool IS_WIDE>
__global__ void
__launch_bounds__(THREADS, MANY_BLOCKS[OUTPUTS > MANY_LIGHT_OUTPUTS])
    mean_matvec_many_batches_fused(many_view<T> v)
{
    using V = value_type<T>;
    GPO_DYN_SHARED(T, room);
    V *const matrix = reinterpret_cast<V *>(room + MANY_RING * v.slot_values);
    V *const means = matrix + v.rows * v.matrix_pitch;
    V *const results = means + v.rows * (v.piece + 1);
    int64_t batch = blockIdx.x * v.share; /* of the piece */
    const int64_t rest = v.batches - batch, row = batch * v.rows;
    const int64_t all = (rest < v.share ? rest : v.share) * v.rows;
    const int64_t piece_rows = static_cast<int64_t>(v.piece) * v.rows;
    /* Stages are whole words, so they all begin as far from a 16-byte boundary. */
    const int skew = skew_of(v.x + row * v.cols);
    many_walk ahead = {0, piece_rows}, now = {0, piece_rows};
    auto bring_next = [&](int slot) {
        const int n = ahead.length(all, v.stage_rows);
        if (n > 0) {
            bring_stage(v, row + ahead.begin, n, skew, room + slot * v.slot_values);
            ahead.pass(n, piece_rows);
        }
    };
#pragma unroll 1
    for (int slot = 0; slot < MANY_RING - 1; slot++) {
        bring_next(slot);
        if (slot == 0) {
            bring_matrix(v, matrix);
        }
        group_copies();
    }
    if (IS_WIDE && all < piece_rows) { /* threads multiply batches that do not exist */
        for (int e = threadIdx.x; e < v.rows * (v.piece + 1); e += THREADS) {
            means[e] = 0;
        }
    }
    int slot = 0, begin = 0; /* the stage, and its first row in the piece */
    while (now.begin < all) {
        await_groups<MANY_RING - 2>();
        __syncthreads(); /* the stage is there, and all have left the one before */
        bring_next(slot == 0 ? MANY_RING - 1 : slot - 1);
        group_copies();
        const int n = now.length(all, v.stage_rows);
        add_stage(v, room + slot * v.slot_values + skew, begin, n, means);
        slot = slot + 1 == MANY_RING ? 0 : slot + 1;
        begin += n;
        now.pass(n, piece_rows);
        if (begin == piece_rows || now.begin == all) {
            const int live = v.per_batch.narrow(begin);
            __syncthreads();
            multiply_piece<OUTPUTS, ACROSS, IS_WIDE>(v, batch, live, matrix, means,
                                                     results);
            if (v.is_staged) {
                __syncthreads();
                store_results(v, batch, live, results);
            }
            batch += live;
            begin = 0;
        }
    }
}

/* ---- launch ---- */

template <int OUTPUTS, int ACROSS, bool IS_WIDE, typename T>
static gpo_status
launch_many(gpo_call *call, dim3 grid, size_t shared, const many_view<T> &v)
{
    gpo_allow_shared(mean_matvec_many_batches_fused<T, OUTPUTS, ACROSS, IS_WIDE>,
                     shared);
    return GPO_LAUNCH(call, grid, THREADS, shared,
                      (mean_matvec_many_batches_fused<T, OUTPUTS, ACROSS, IS_WIDE>), v);
}

template <typename T>
gpo_status
mean_matvec_many_batches(gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    if (p.batches * p.outputs == 0) {
        return GPO_OK;
    }
    const many_batches_plan plan = plan_many_batches(call, gpo_shared_room(call));
    many_view<T> v = {};
    v.x = static_cast<const T *>(call->in[0].data);
    v.matrix = static_cast<const T *>(call->in[1].data);
    v.out = static_cast<T *>(call->out[0].data);
    v.batches = p.batches;
    v.share = plan.share;
    v.rows = static_cast<int>(p.rows);
    v.cols = static_cast<int>(p.cols);
    v.outputs = static_cast<int>(p.outputs);
    v.piece = static_cast<int>(plan.piece);
    v.stage_rows = static_cast<int>(plan.stage_rows);
    v.words = row_words_of(v.x, p.cols, MANY_LANE_BYTES / int64_t{sizeof(T)});
    v.matrix_pitch = static_cast<int>(plan.matrix_pitch);
    v.slot_values = static_cast<int>(plan.slot_bytes / sizeof(T));
    v.matrix_output = p.matrix_output;
    v.matrix_row = p.matrix_row;
    v.out_output = p.out_output;
    v.out_batch = p.out_batch;
    v.per_batch = divider_of(p.rows);
    v.per_line = divider_of(p.outputs);
    v.is_staged = plan.is_staged;

    const dim3 grid = grid_of(ceil_div(p.batches, plan.share));
    const size_t shared = static_cast<size_t>(plan.shared_bytes);
    constexpr int WIDE_ACROSS = MANY_WIDE_ACROSS[sizeof(T) == 8];
    switch (plan.kind) {
        case MANY_WIDE:
            return launch_many<MANY_WIDE_OUTPUTS, WIDE_ACROSS, true>(call, grid, shared,
                                                                     v);
        case MANY_HEAVY:
            return launch_many<MANY_HEAVY_OUTPUTS, MANY_HEAVY_ACROSS, false>(call, grid,
                                                                             shared, v);
        default:
            return launch_many<MANY_LIGHT_OUTPUTS, MANY_LIGHT_ACROSS, false>(call, grid,
                                                                             shared, v);
    }
}

#define INSTANTIATE(T) template gpo_status mean_matvec_many_batches<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
