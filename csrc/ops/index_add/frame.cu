/*
 * frame.cu  Setup and checks shared by every rung and shape kernel of index_add: the
 * copy of x, the check of the index before or after, its IndexError.
 */
#include "frame.cuh"

/* device/copy.cu: a copy of any strides. */
extern "C" gpo_status gpo_device_copy(gpo_call *call, const gpo_array *from,
                                      const gpo_array *to);

/* out = x in packs of 16 bytes, four in flight, then the rest; *bad = NONE_BAD. */
__global__ void
__launch_bounds__(BLOCK) index_add_copy(const uint4 *x, uint4 *out, int64_t packs,
                                        int rest, unsigned long long *bad)
{
    constexpr int ITEMS = 4;
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * (BLOCK * ITEMS) + threadIdx.x;
    uint4 v[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (first + k * BLOCK < packs) {
            v[k] = load_streamed(x + first + k * BLOCK);
        }
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (first + k * BLOCK < packs) {
            out[first + k * BLOCK] = v[k];
        }
    }
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

__global__ void
__launch_bounds__(BLOCK) index_add_check(index_reader index, int64_t count)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t s = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; s < count;
         s += step) {
        position_of(index, s);
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

/* Waits for the kernels; IndexError if they found a bad index. */
static gpo_status
raise_bad(gpo_call *call, const unsigned long long *bad)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    const void *const index = call->in[1].data;
    unsigned long long place = NONE_BAD;
    gpo_status status = gpo_fetch(call, &place, bad, sizeof place);
    if (status || place == NONE_BAD) {
        return status;
    }
    const int64_t at = static_cast<int64_t>(place) * plan.step;
    int64_t value = 0;
    if (plan.is_wide) {
        status = gpo_fetch(call, &value, static_cast<const int64_t *>(index) + at,
                           sizeof value);
    }
    else {
        int32_t narrow = 0;
        status = gpo_fetch(call, &narrow, static_cast<const int32_t *>(index) + at,
                           sizeof narrow);
        value = narrow;
    }
    return status ? status
                  : index_add_out_of_range(call, value, static_cast<int64_t>(place));
}

gpo_status
index_add_begin(gpo_call *call, bool is_deterministic, bool reads_x,
                index_add_frame *frame)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    if (plan.is_deterministic && !is_deterministic) {
        return gpo_fail(&call->error, GPO_EVARIANT,
                        "variant '%s' adds by atomics in any order; "
                        "deterministic=True takes 'v4'",
                        call->variant->name);
    }
    const bool raises = plan.mode == GPO_INDEX_RAISE && plan.count > 0;
    const bool nothing = plan.outer * plan.inner * plan.count == 0;
    const bool check_first = raises && (plan.is_first || nothing);
    void *memory = nullptr;
    gpo_status status = GPO_OK;
    if (raises) {
        status = gpo_may_wait(call);
        if (!status) {
            status = gpo_scratch(call, sizeof(unsigned long long), &memory);
        }
    }
    unsigned long long *const bad = static_cast<unsigned long long *>(memory);
    index_reader index = {call->in[1].data,
                          plan.step,
                          plan.length,
                          plan.mode,
                          plan.is_wide,
                          bad,
                          divider_of(plan.length > 0 ? plan.length : 1)};
    if (!status && check_first) {
        status = start_out(call, bad, false);
        if (!status) {
            status = GPO_LAUNCH(call, grid_for(plan.count), BLOCK, 0, index_add_check,
                                index, plan.count);
        }
        if (!status) {
            status = raise_bad(call, bad);
        }
        index.bad = nullptr;
    }
    const gpo_array *x = &call->in[0], *out = &call->out[0];
    const bool from_x = !nothing && reads_x && gpo_array_is_contiguous(x);
    *frame = {index, from_x ? x->data : out->data, nothing,
              check_first ? nullptr : bad};
    return status ? status
                  : start_out(call, frame->late, x->data != out->data && !from_x);
}

gpo_status
index_add_end(gpo_call *call, const index_add_frame &frame)
{
    return frame.late ? raise_bad(call, frame.late) : GPO_OK;
}
