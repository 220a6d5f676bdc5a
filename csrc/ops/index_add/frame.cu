/*
 * frame.cu  Setup and checks shared by every rung and shape kernel of index_add: the
 * copy of x, the check of the index before or after, its IndexError.
 */
#include "frame.cuh"
#include "../../device/verdict.cuh"

/* device/copy.cu: a copy of any strides. */
extern "C" gpo_status gpo_device_copy(gpo_call *call, const gpo_array *from,
                                      const gpo_array *to);

/* out = x in packs of 16 bytes, four in flight, then the rest; *bad = NONE_BAD. */
__global__ void
__launch_bounds__(BLOCK) index_add_copy(const uint4 *x, uint4 *out, int64_t packs,
                                        int rest, unsigned long long *bad)
{
    constexpr int ITEMS = 4;
    let_next_start();
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * (BLOCK * ITEMS) + threadIdx.x;
    copy_packs<ITEMS>(x, out, first, BLOCK, packs);
    if (blockIdx.x == 0) {
        const unsigned char *from = reinterpret_cast<const unsigned char *>(x + packs);
        unsigned char *to = reinterpret_cast<unsigned char *>(out + packs);
        if (static_cast<int>(threadIdx.x) < rest) {
            to[threadIdx.x] = from[threadIdx.x];
        }
        if (threadIdx.x == 0 && bad != nullptr) {
            *bad = NONE_BAD;
        }
    }
}

/* out = x if `copy`; *bad = NONE_BAD unless `bad` is NULL. */
static gpo_status
start_out(gpo_call *call, unsigned long long *bad, bool copy)
{
    const gpo_array *x = &call->in[0];
    const gpo_array *out = &call->out[0];
    const int64_t bytes = copy ? out->size * gpo_dtypes[x->dtype].bytes : 0;
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(x->data) | reinterpret_cast<uintptr_t>(out->data);
    const bool plain = gpo_array_is_contiguous(x) && addresses % 16 == 0;
    if (bytes > 0 && !plain) {
        const gpo_status status = gpo_device_copy(call, x, out);
        if (status) {
            return status;
        }
    }
    const int64_t packs = plain ? bytes / 16 : 0;
    const int64_t blocks = ceil_div(packs, 4 * BLOCK);
    if (bad == nullptr && (!plain || bytes == 0)) {
        return GPO_OK;
    }
    return GPO_LAUNCH(call, dim3(static_cast<unsigned>(blocks > 0 ? blocks : 1)), BLOCK,
                      0, index_add_copy, static_cast<const uint4 *>(x->data),
                      static_cast<uint4 *>(out->data), packs,
                      plain ? static_cast<int>(bytes % 16) : 0, bad);
}

gpo_status
index_add_refuse(gpo_call *call, int64_t place)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    int64_t value = 0;
    const gpo_status status =
        fetch_index(call, call->in[1].data, plan.is_wide, place * plan.step, &value);
    return status ? status : index_add_out_of_range(call, value, place);
}

/* IndexError if an entry was bad, by the answer of a kernel. */
static gpo_status
raise_bad(gpo_call *call, gpo_status status, uint64_t place)
{
    return status || place == NONE_BAD
               ? status
               : index_add_refuse(call, static_cast<int64_t>(place));
}

/* Launches the check of the whole index; for `place` see ask_verdict. */
static gpo_status
ask(gpo_call *call, uint64_t **answer, unsigned long long *place)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    const index_line line = {call->in[1].data, plan.step,    plan.count, -plan.length,
                             plan.length,      plan.is_wide, false};
    return ask_verdict(call, line, answer, place);
}

/* The index of a call; kernels note the first bad entry in `bad`, unless it is NULL. */
static index_reader
reader_of(const gpo_call *call, unsigned long long *bad)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    return {call->in[1].data,
            plan.step,
            plan.length,
            plan.mode,
            plan.is_wide,
            bad,
            divider_of(plan.length > 0 ? plan.length : 1)};
}

/* How the index of a call that raises is checked. */
struct checking {
    bool before; /* by a kernel of its own; else by the kernels that add */
    bool waits;  /* for that kernel, before any other */
    bool tells;  /* the kernels after it, too */
};

static checking
checking_of(const index_add_plan &plan, bool nothing, bool writes_last)
{
    const bool waits = nothing || (plan.is_first && !writes_last);
    return {waits || plan.is_first || plan.count <= CHECKED_FIRST, waits,
            plan.is_first && !waits};
}

/* Queues the check, or memory for what the kernels that add find. */
static gpo_status
start_check(gpo_call *call, checking check, index_add_frame *frame)
{
    void *memory = nullptr;
    gpo_status status = gpo_may_wait(call);
    if (!status && (check.tells || !check.before)) {
        status = gpo_scratch(call, sizeof(unsigned long long), &memory);
    }
    unsigned long long *const place = static_cast<unsigned long long *>(memory);
    if (!status && check.before) {
        status = ask(call, &frame->answer, place);
        frame->verdict = place;
    }
    else {
        frame->late = place;
    }
    if (!status && check.waits) {
        uint64_t found = NONE_BAD;
        status = gpo_answer(call, frame->answer, &found);
        status = raise_bad(call, status, found);
        frame->answer = nullptr;
    }
    return status;
}

gpo_status
index_add_begin(gpo_call *call, index_add_traits traits, index_add_frame *frame)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    if (plan.is_deterministic && !traits.is_deterministic) {
        return gpo_fail(&call->error, GPO_EVARIANT,
                        "variant '%s' adds by atomics in any order; "
                        "deterministic=True takes 'v4'",
                        call->variant->name);
    }
    const bool nothing = plan.outer * plan.inner * plan.count == 0;
    const gpo_array *x = &call->in[0], *out = &call->out[0];
    const bool sparse = traits.skips_empty && plan.count < plan.length;
    const bool from_x =
        !nothing && traits.reads_x && !sparse && gpo_array_is_contiguous(x);
    const bool copies = x->data != out->data && !from_x;
    *frame = {};
    frame->base = from_x ? x->data : out->data;
    frame->nothing = nothing;
    frame->follows = copies && out->size > 0;
    if (plan.mode == GPO_INDEX_RAISE && plan.count > 0) {
        gpo_status status = GPO_OK;
        if (is_known(call, plan.length)) {
            status = gpo_later_question(call, &frame->later);
        }
        else {
            status = start_check(
                call, checking_of(plan, nothing, traits.writes_last && !copies), frame);
        }
        if (status) {
            return status;
        }
    }
    frame->index = reader_of(call, frame->later ? word_of(frame->later) : frame->late);
    return start_out(call, frame->late, copies);
}

gpo_status
index_add_end(gpo_call *call, const index_add_frame &frame)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    uint64_t place = NONE_BAD;
    gpo_status status = GPO_OK;
    if (frame.later) {
        status = gpo_later_answer(call, frame.later, &place);
    }
    else if (frame.answer) {
        status = gpo_answer(call, frame.answer, &place);
    }
    else if (frame.late) {
        status = wait_for_verdict(call, frame.late, &place);
    }
    if (!status && place == NONE_BAD && plan.mode == GPO_INDEX_RAISE) {
        found_good(call, plan.length);
        return frame.later ? index_add_look(call, frame.index) : GPO_OK;
    }
    return raise_bad(call, status, place);
}

gpo_status
index_add_start(gpo_call *call, index_add_frame *frame)
{
    const gpo_array *x = &call->in[0], *out = &call->out[0];
    const bool in_place = x->data == out->data;
    const bool is_long = !index_add_plan_of(call)->is_first && x->size > COPIED_AT_ONCE;
    const bool from_x = !in_place && !is_long && gpo_array_is_contiguous(x);
    *frame = {};
    frame->index = reader_of(call, nullptr);
    frame->base = from_x ? x->data : out->data;
    return start_out(call, nullptr, !in_place && !from_x);
}
