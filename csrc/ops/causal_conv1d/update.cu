/*
 * update.cu  causal_conv1d_update on CUDA: the check of the index, the steps of a call,
 * the table.  The kernels are in ladder/update_v* and shapes/update_one_step.cuh.
 */
#include "ladder/update_v0_thread_per_channel.cuh"
#include "shapes/update_one_step.cuh"

#include <stdio.h>
#include <stdlib.h>

/* ---- the index ---- */

static int64_t
row_at(const gpo_call *call, const void *index, int64_t b)
{
    return update_plan_of(call)->index_wide ? static_cast<const int64_t *>(index)[b]
                                            : static_cast<const int32_t *>(index)[b];
}

/* Every row exists and is named once; `seen` has a byte for each. */
static gpo_status
check_rows(gpo_call *call, const void *index, char *seen)
{
    const update_plan &p = *update_plan_of(call);
    for (int64_t b = 0; b < p.batches; b++) {
        const int64_t row = row_at(call, index, b);
        if (row < 0 || row >= p.rows) {
            return gpo_fail(&call->error, GPO_EINDEX,
                            "index %lld is out of bounds for axis 0 with size %lld",
                            static_cast<long long>(row),
                            static_cast<long long>(p.rows));
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

/* Copies the index to the host and checks it, before anything is written. */
static gpo_status
check_index(gpo_call *call)
{
    const update_plan &p = *update_plan_of(call);
    const int64_t bytes = p.index_wide ? 8 : 4;
    const char *from = static_cast<const char *>(call->in[UPDATE_INDEX].data);
    gpo_status status = gpo_may_wait(call);
    if (status) {
        return status;
    }
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
    const update_view<T> u = view_of<T>(call);
    gpo_status status = p.has_index ? check_index(call) : GPO_OK;
    if (!status) {
        status = keep_rows(call, u);
    }
    return status || p.batches * p.channels == 0 ? status : UPDATE(call, u);
}

/* ---- the table ---- */

#define UPDATE(rung)                          \
    [](auto t) -> gpo_run {                   \
        using T = typename decltype(t)::type; \
        return run_update<T, rung<T>>;        \
    }

static const gpo_variant variants[] = {
    gpo_row<float_types>("v0", "one thread per channel of a sequence",
                         UPDATE(update_v0), "run-to-run", "", "exact"),
    gpo_shape(gpo_row<float_types>("one_step", "all loads before the first product",
                                   UPDATE(update_one_step), "run-to-run", "", "exact"),
              "one step, a state of K - 1 steps, at most 8 taps", takes_one_step),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const bool one = takes_one_step(call);
    GPO_SAY(why, "%s",
            one ? "one_step loads all it needs before the first product"
                : "several steps, many taps or a longer state: v0 takes any");
    return &variants[one];
}

extern "C" const gpo_table causal_conv1d_update_cuda = {variants, choose};
