/*
 * update.cu  causal_conv1d_update on CUDA: the check of the index, the steps of a call,
 * the table.  The kernels are in ladder/update_v* and shapes/update_*.cuh.
 */
#include "../../device/verdict.cuh"
#include "ladder/update_v0_thread_per_channel.cuh"
#include "shapes/update_few_steps.cuh"

#include <stdio.h>
#include <stdlib.h>

/* ---- the index ---- */

static int64_t
row_at(const gpo_call *call, const void *index, int64_t b)
{
    return update_plan_of(call)->index_wide ? static_cast<const int64_t *>(index)[b]
                                            : static_cast<const int32_t *>(index)[b];
}

static gpo_status
refuse_row(gpo_call *call, int64_t row)
{
    return gpo_fail(&call->error, GPO_EINDEX,
                    "index %lld is out of bounds for axis 0 with size %lld",
                    static_cast<long long>(row),
                    static_cast<long long>(update_plan_of(call)->rows));
}

/* Every row exists and is named once; `seen` has a byte for each. */
static gpo_status
check_rows(gpo_call *call, const void *index, char *seen)
{
    const update_plan &p = *update_plan_of(call);
    for (int64_t b = 0; b < p.batches; b++) {
        const int64_t row = row_at(call, index, b);
        if (row < 0 || row >= p.rows) {
            return refuse_row(call, row);
        }
    }
    for (int64_t b = 0; b < p.batches; b++) {
        const int64_t row = row_at(call, index, b);
        if (seen[row]++) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "state_index must name each row once, but has %lld twice",
                            static_cast<long long>(row));
        }
    }
    return GPO_OK;
}

/* Copies the index to the host and checks it there. */
static gpo_status
check_on_host(gpo_call *call)
{
    const update_plan &p = *update_plan_of(call);
    const int64_t bytes = p.index_wide ? 8 : 4;
    const char *from = static_cast<const char *>(call->in[UPDATE_INDEX].data);
    gpo_status status = GPO_OK;
    char *index = static_cast<char *>(malloc(p.batches * bytes + 1));
    char *seen = static_cast<char *>(calloc(p.rows + 1, 1));
    if (!index || !seen) {
        status = gpo_fail(&call->error, GPO_EMEMORY, "cannot allocate %lld bytes",
                          static_cast<long long>(p.batches * bytes + p.rows + 2));
    }
    if (!status && p.batches > 0 && p.index_b == 1) {
        status = gpo_fetch(call, index, from, p.batches * bytes);
    }
    for (int64_t b = 0; !status && b < p.batches && p.index_b != 1; b++) {
        status =
            gpo_fetch(call, index + b * bytes, from + b * p.index_b * bytes, bytes);
    }
    if (!status) {
        status = check_rows(call, index, seen);
    }
    free(index);
    free(seen);
    return status;
}

constexpr int CHECK_BLOCK = 1024;         /* threads of the one block */
constexpr int64_t MOST_CHECKED = 1 << 18; /* rows: a bit of shared memory for each */

/* Tells the host whether every row exists and is named once. */
static __global__ void
__launch_bounds__(CHECK_BLOCK)
    causal_conv1d_update_check(index_line line, uint64_t *answer)
{
    GPO_DYN_SHARED(unsigned, seen);
    const int tid = static_cast<int>(threadIdx.x);
    for (int k = tid; k < (line.high + 31) / 32; k += CHECK_BLOCK) {
        seen[k] = 0;
    }
    __syncthreads();
    bool is_bad = false;
    for (int64_t b = tid; b < line.count; b += CHECK_BLOCK) {
        const int64_t row = line.is_wide
                                ? static_cast<const int64_t *>(line.at)[b * line.step]
                                : static_cast<const int32_t *>(line.at)[b * line.step];
        if (row < 0 || row >= line.high) {
            is_bad = true;
            continue;
        }
        const unsigned bit = 1u << (row % 32);
        is_bad |= (atomicOr(&seen[row / 32], bit) & bit) != 0;
    }
    const bool is_good = !__syncthreads_or(is_bad);
    if (tid == 0) {
        tell_host(answer, is_good ? NONE_BAD : 0);
    }
}

/*
 * Checks the index before anything is written.  A kernel tells the host that it is good,
 * in half the time of a copy; the host finds out what is wrong.
 */
static gpo_status
check_index(gpo_call *call)
{
    const update_plan &p = *update_plan_of(call);
    gpo_status status = gpo_may_wait(call);
    if (status || p.batches == 0) {
        return status;
    }
    uint64_t *word = nullptr, answer = 0;
    if (p.rows > MOST_CHECKED) {
        return check_on_host(call);
    }
    status = gpo_question(call, &word);
    if (!status) {
        const index_line line = {call->in[UPDATE_INDEX].data,
                                 p.index_b,
                                 p.batches,
                                 0,
                                 p.rows,
                                 p.index_wide,
                                 false};
        const size_t bytes = (p.rows + 31) / 32 * sizeof(unsigned);
        status = GPO_LAUNCH(call, dim3(1), CHECK_BLOCK, bytes,
                            causal_conv1d_update_check, line, word);
    }
    if (!status) {
        status = gpo_answer(call, word, &answer);
    }
    return status || answer == NONE_BAD ? status : check_on_host(call);
}

/*
 * Whether an earlier call found that the index names rows of the state, each once.  The
 * kernels leave out a row that is not there, and note it in a word that a later call reads.
 */
static bool
is_known_index(const gpo_call *call)
{
    const gpo_indices &known = call->known;
    return known.low == 0 && known.most == 1 && known.high > 0 &&
           known.high <= update_plan_of(call)->rows;
}

/* After the kernels of a known index: IndexError if they met a row that is not there. */
static gpo_status
check_late(gpo_call *call, const uint64_t *later)
{
    const update_plan &p = *update_plan_of(call);
    uint64_t place = NONE_BAD;
    int64_t row = 0;
    gpo_status status = gpo_later_answer(call, later, &place);
    if (!status && place != NONE_BAD) {
        status = fetch_index(call, call->in[UPDATE_INDEX].data, p.index_wide,
                             static_cast<int64_t>(place) * p.index_b, &row);
        status = status ? status : refuse_row(call, row);
    }
    return status;
}

/* ---- a call ---- */

template <typename T>
static update_view<T>
view_of(const gpo_call *call)
{
    const update_plan &p = *update_plan_of(call);
    const gpo_array *in = call->in;
    update_view<T> u = {};
    u.v.x = {static_cast<const T *>(in[UPDATE_X].data), p.x.b, p.x.c, p.x.t};
    u.v.out = {static_cast<T *>(call->out[0].data), p.y.b, p.y.c, p.y.t};
    u.v.w = static_cast<const T *>(in[UPDATE_W].data) + (p.taps - 1) * p.w_k;
    u.v.w_c = p.w_c;
    u.v.w_s = -p.w_k;
    u.v.bias = p.has_bias ? static_cast<const T *>(in[UPDATE_BIAS].data) : nullptr;
    u.v.bias_c = p.bias_c;
    u.v.batches = p.batches;
    u.v.channels = p.channels;
    u.v.steps = p.steps;
    u.v.lags = p.taps;
    u.v.eps = p.eps;
    u.v.finish = p.silu ? FINISH_SILU : FINISH_NONE;
    u.state = {static_cast<const T *>(in[UPDATE_STATE].data), p.state.b, p.state.c,
               p.state.t};
    u.next = {static_cast<T *>(call->out[1].data), p.next.b, p.next.c, p.next.t};
    u.kept = p.kept;
    u.index = p.has_index ? in[UPDATE_INDEX].data : nullptr;
    u.index_wide = p.index_wide;
    u.index_b = p.index_b;
    u.rows = p.rows;
    return u;
}

/* The rows that the index does not name, unless they are in place. */
template <typename T>
static gpo_status
keep_rows(gpo_call *call, const update_view<T> &u)
{
    const update_plan &p = *update_plan_of(call);
    if (!p.has_index || static_cast<const T *>(u.next.p) == u.state.p) {
        return GPO_OK;
    }
    joined_rows<T> rows = {};
    rows.x = u.state;
    rows.batches = p.rows;
    rows.channels = p.channels;
    rows.steps = p.kept;
    return join_rows(call, rows, u.next);
}

template <typename T, gpo_status (*UPDATE)(gpo_call *, const update_view<T> &)>
static gpo_status
run_update(gpo_call *call)
{
    const update_plan &p = *update_plan_of(call);
    update_view<T> u = view_of<T>(call);
    uint64_t *later = nullptr;
    gpo_status status = GPO_OK;
    if (p.has_index && is_known_index(call)) {
        status = gpo_later_question(call, &later);
        u.bad = status ? nullptr : word_of(later);
    }
    else if (p.has_index) {
        status = check_index(call);
    }
    if (!status) {
        status = keep_rows(call, u);
    }
    if (!status && p.batches * p.channels > 0) {
        status = UPDATE(call, u);
    }
    if (!status && later) {
        status = check_late(call, later);
    }
    if (!status && p.has_index) {
        call->found = {0, p.rows, 1};
    }
    return status;
}

/* ---- the table ---- */

#define UPDATE(rung)                          \
    [](auto t) -> gpo_run {                   \
        using T = typename decltype(t)::type; \
        return run_update<T, rung<T>>;        \
    }

enum { V0, FEW };

static const gpo_variant variants[] = {
    gpo_row<float_types>("v0", "one thread per channel of a sequence",
                         UPDATE(update_v0), "run-to-run", "", "exact"),
    gpo_shape(gpo_row<float_types>(
                  "few_steps", "all loads before the first product, steps in chunks",
                  UPDATE(update_few_steps), "run-to-run", "", "exact"),
              "1 to 16 steps, at most 16 taps, no strides that 32 bits do not hold",
              takes_few_steps),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    if (takes_few_steps(call)) {
        GPO_SAY(why, "few_steps loads all it needs before the first product");
        return &variants[FEW];
    }
    GPO_SAY(why, "many or no steps, or many taps: v0 takes any");
    return &variants[V0];
}

extern "C" const gpo_table causal_conv1d_update_cuda = {variants, choose};
