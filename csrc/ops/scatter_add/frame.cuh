/*
 * frame.cuh  Setup and checks shared by every rung: inputs with one stride, memory for
 * the sums, the IndexError, the result.
 */
#ifndef GPO_SCATTER_ADD_FRAME_CUH
#define GPO_SCATTER_ADD_FRAME_CUH

#include "../../device/follow.cuh"
#include "../../device/grid.cuh"
#include "../../device/verdict.cuh"
#include "input.cuh"
#include "tuning.cuh"

extern "C" gpo_status gpo_device_copy(gpo_call *call, const gpo_array *from,
                                      const gpo_array *to);

struct scatter_add_frame {
    const void *values, *index;
    int64_t values_stride, index_stride; /* in elements */
    unsigned long long *bad; /* mode 'raise': the first bad position so far, or */
    uint64_t *answer;        /* that of a check before the kernels (gpo_question), or */
    uint64_t *later;         /* where a known index is noted (gpo_later_question) */
    gpo_array sums;
    bool apart; /* sums are not `out` itself */
};

/* An input as elements with one stride; an array that has several is packed first. */
static gpo_status
make_line(gpo_call *call, int input, const void **data, int64_t *stride)
{
    const gpo_array *const a = &call->in[input];
    const scatter_add_line &given = scatter_add_plan_of(call)->line[input];
    *data = a->data;
    *stride = given.stride;
    if (given.is_line) {
        return GPO_OK;
    }
    gpo_array line = *a;
    gpo_status status = gpo_array_contiguous(&call->error, &line);
    if (!status) {
        const size_t bytes = static_cast<size_t>(gpo_dtypes[a->dtype].bytes);
        status = gpo_scratch(call, bytes * static_cast<size_t>(a->size), &line.data);
    }
    if (!status) {
        status = gpo_device_copy(call, a, &line);
    }
    *data = line.data;
    *stride = 1;
    return status;
}

static gpo_status
make_lines(gpo_call *call, scatter_add_frame *f)
{
    const gpo_status status =
        make_line(call, SCATTER_ADD_VALUES, &f->values, &f->values_stride);
    return status ? status
                  : make_line(call, SCATTER_ADD_INDEX, &f->index, &f->index_stride);
}

/* Launches the check of all indices. */
static gpo_status
ask(gpo_call *call, scatter_add_frame *f)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const bool is_wide = call->in[SCATTER_ADD_INDEX].dtype != GPO_I32;
    const index_line line = {f->index,  f->index_stride, plan.n,          -plan.size,
                             plan.size, is_wide,         plan.is_unsigned};
    return ask_verdict(call, line, &f->answer, nullptr);
}

/* Fails if deterministic=True and the rung is not. */
static gpo_status
check_order(gpo_call *call, bool is_deterministic)
{
    return is_deterministic || !scatter_add_plan_of(call)->deterministic
               ? GPO_OK
               : gpo_fail(
                     &call->error, GPO_EVARIANT,
                     "scatter_add() with deterministic=True has no variant '%s': "
                     "its atomics add in the order the hardware finds; take 'auto'",
                     call->variant->name);
}

/* What a kernel reads, and where it notes bad indices. */
static gpo_status
open_inputs(gpo_call *call, bool is_deterministic, scatter_add_frame *f)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    gpo_status status = check_order(call, is_deterministic);
    void *memory = nullptr;
    *f = {};
    f->sums = call->out[0];
    const bool raises = plan.mode == GPO_INDEX_RAISE;
    const bool known = raises && is_known(call, plan.size);
    if (!status && raises && !known) {
        status = gpo_may_wait(call);
    }
    if (!status) {
        status = make_lines(call, f);
    }
    if (!status && known) {
        status = gpo_later_question(call, &f->later);
    }
    else if (!status && raises && plan.n <= CHECKED_FIRST) {
        status = ask(call, f);
    }
    else if (!status && raises) {
        status = gpo_scratch(call, sizeof *f->bad, &memory);
        f->bad = static_cast<unsigned long long *>(memory);
    }
    return status;
}

/* The same, and what a rung writes. */
static gpo_status
open_frame(gpo_call *call, bool is_deterministic, scatter_add_frame *f)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const char kind = gpo_dtypes[call->in[SCATTER_ADD_VALUES].dtype].kind;
    const gpo_status status = open_inputs(call, is_deterministic, f);
    if (kind == 'f' || kind == 'c') {
        f->sums.dtype = kind == 'c' ? GPO_C128 : GPO_F64;
    }
    f->apart = f->sums.dtype != call->out[0].dtype || plan.late;
    if (!status && f->apart) {
        const size_t bytes = kind == 'c' ? sizeof(c128) : sizeof(double);
        return gpo_scratch(call, bytes * static_cast<size_t>(plan.size), &f->sums.data);
    }
    return status;
}

/* The IndexError of the element at a position in C order. */
static gpo_status
refuse(gpo_call *call, const scatter_add_frame &f, uint64_t place)
{
    const int64_t position = static_cast<int64_t>(place);
    const bool is_wide = call->in[SCATTER_ADD_INDEX].dtype != GPO_I32;
    int64_t raw = 0;
    const gpo_status status =
        fetch_index(call, f.index, is_wide, position * f.index_stride, &raw);
    return status ? status : scatter_add_refuse(call, raw, position);
}

/*
 * Rounds the sums to `out`; IndexError if the kernels found a bad index, which must be
 * known before the caller's own array is written.
 */
static gpo_status
close_frame(gpo_call *call, const scatter_add_frame &f)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const bool late = plan.late;
    gpo_status status = GPO_OK;
    uint64_t place = NONE_BAD;
    if (f.apart && !late) {
        status = gpo_device_copy(call, &f.sums, &call->out[0]);
    }
    if (!status && f.later) {
        status = gpo_later_answer(call, f.later, &place);
    }
    else if (!status && f.answer) {
        status = gpo_answer(call, f.answer, &place);
    }
    else if (!status && f.bad) {
        status = wait_for_verdict(call, f.bad, &place);
    }
    if (!status && place != NONE_BAD) {
        status = refuse(call, f, place);
    }
    else if (!status && plan.mode == GPO_INDEX_RAISE) {
        found_good(call, plan.size);
    }
    return !status && f.apart && late ? gpo_device_copy(call, &f.sums, &call->out[0])
                                      : status;
}

/* The sign bit of integers of `bytes` bytes. */
inline uint64_t
sign_bit(size_t bytes)
{
    return static_cast<uint64_t>(1) << (8 * bytes - 1);
}

/* The input of kernels: values carried as T, indices I. */
template <typename T, typename I>
scatter_add_input<T, I>
input_of(const gpo_call *call, const scatter_add_frame &f)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const char kind = gpo_dtypes[call->in[SCATTER_ADD_VALUES].dtype].kind;
    return {static_cast<const T *>(f.values),
            static_cast<const I *>(f.index),
            f.values_stride,
            f.index_stride,
            plan.n,
            plan.size,
            plan.mode,
            plan.is_unsigned,
            call->in[SCATTER_ADD_INDEX].dtype != GPO_I32,
            kind == 'b',
            kind == 'i' ? sign_bit(sizeof(T)) : 0,
            f.later ? word_of(f.later) : f.bad,
            f.bad};
}

/* out = total, rounded; follows the last kernel that adds. */
template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_round(const sum_of<T> *total, int64_t size, result_of<T> *out)
{
    wait_for_before();
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * BLOCK * ROUNDED_ITEMS + threadIdx.x;
    sum_of<T> sum[ROUNDED_ITEMS];
#pragma unroll
    for (int j = 0; j < ROUNDED_ITEMS; j++) {
        const int64_t k = first + j * BLOCK;
        sum[j] = k < size ? total[k] : sum_of<T>{};
    }
#pragma unroll
    for (int j = 0; j < ROUNDED_ITEMS; j++) {
        const int64_t k = first + j * BLOCK;
        if (k < size) {
            out[k] = rounded<T>(sum[j]);
        }
    }
}

/* Rounds sums to a contiguous `out` that may be written before the verdict. */
template <typename T>
gpo_status
round_sums(gpo_call *call, scatter_add_frame *f)
{
    if constexpr (!IS_WHOLE<T>) {
        const gpo_array &out = call->out[0];
        if (f->apart && !scatter_add_plan_of(call)->late &&
            gpo_array_is_contiguous(&out)) {
            f->apart = false;
            const int64_t blocks = ceil_div(out.size, BLOCK * ROUNDED_ITEMS);
            return GPO_FOLLOW(call, true, grid_of(blocks), BLOCK, 0,
                              (scatter_add_round<T>),
                              static_cast<const sum_of<T> *>(f->sums.data), out.size,
                              static_cast<T *>(out.data));
        }
    }
    return GPO_OK;
}

/* The launcher of a rung for values of any dtype that T carries: Rung::run(call, input,
   total) adds to `total`, which it clears first. */
template <typename Rung, typename T>
gpo_status
scatter_add_with(gpo_call *call)
{
    scatter_add_frame f;
    gpo_status status = open_frame(call, Rung::DETERMINISTIC, &f);
    if (!status) {
        status = Rung::run(call, input_of<T, int64_t>(call, f),
                           static_cast<sum_of<T> *>(f.sums.data));
    }
    if (!status) {
        status = round_sums<T>(call, &f);
    }
    return status ? status : close_frame(call, f);
}

/* ---- the shape kernels, for the table (shapes/) ---- */

/* Whether one_launch and one_table take the call. */
inline bool
scatter_add_is_few(const gpo_call *call)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    return plan.n <= MOST_ELEMENTS && plan.size <= MOST_PLACES;
}

template <typename T>
gpo_status scatter_add_one_launch(gpo_call *call);

template <typename T>
gpo_status scatter_add_one_table(gpo_call *call);

/*
 * So many ranges of places take long_result's launches: those whose sums, of `sum_bytes`
 * each, L2 holds, where a place is still there when its next element comes, and else as
 * few as places of 32 bits allow.
 */
inline int64_t
scatter_add_ranges(const gpo_call *call, int64_t sum_bytes)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const int64_t most = gpo_l2_bytes(call) / L2_PARTS * L2_OF_SUMS;
    const int64_t ranges = ceil_div(plan.size * sum_bytes, most);
    const bool pays =
        ranges <= MOST_RANGES &&
        static_cast<double>(plan.n) >= AGAIN * static_cast<double>(plan.size);
    return pays && ranges > 1 ? ranges : 1 + (plan.size >> 32);
}

template <typename T>
gpo_status scatter_add_long_result(gpo_call *call);

/*
 * Whether buckets takes the call: 32-bit words hold positions, 2,048 buckets the places, a
 * block's shared memory the sums of one.
 */
inline bool
scatter_add_may_split(const gpo_call *call)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    return !plan.late && plan.n <= UINT32_MAX / 2 &&
           plan.size <= MOST_BUCKETS << MOST_LOG_PLACES &&
           gpo_shared_room(call) >= SPLIT_ROOM;
}

template <typename T>
gpo_status scatter_add_by_buckets(gpo_call *call);

template <typename T>
gpo_status scatter_add_ordered_buckets(gpo_call *call);

/* Whether ascending takes the call: floats below 64 bits and 32-bit integers, into a result
   of its own. */
bool scatter_add_may_ascend(const gpo_call *call);

template <typename T>
gpo_status scatter_add_ascending(gpo_call *call);

#endif
