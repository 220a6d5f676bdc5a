/*
 * segment_marks.cu  Reads the segments of a call of causal_conv1d on CUDA: a kernel marks
 * where they begin and flags wrong values, which the host then names.
 * See segments.cuh for the marks.  Order: the kernel, wrong values, the launch.
 */
#include "segments.cuh"

#include "../../device/verdict.cuh"
#include "../../device/warp.cuh"
#include "segments.h"

#include <stdlib.h>

/* ---- the kernel ---- */

constexpr int MARK_BLOCK = 256;
constexpr int64_t MOST_FLAGS = 1024; /* warps of a launch, a flag of each */
constexpr int64_t MOST_ASKED = 4096; /* values that the first block checks alone */

struct mark_work {
    segment_values from;
    bool borders;
    int64_t count; /* of cumulative lengths */
    int64_t rows, steps, pitch;
    uint32_t *words;
    unsigned char *wrong; /* of each warp, unless the first block answers */
    uint64_t *answer;     /* NONE_BAD if no value is wrong; or NULL */

    __device__ __forceinline__ int64_t value(int64_t b, int64_t t) const
    {
        const int64_t i = b * from.b + t * from.t;
        return from.wide ? static_cast<const int64_t *>(from.values)[i]
                         : static_cast<const int32_t *>(from.values)[i];
    }

    /* Whether t is one of the cumulative lengths. */
    __device__ __forceinline__ bool is_border(int64_t t) const
    {
        int64_t low = 0, high = count;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (value(0, middle) < t) {
                low = middle + 1;
            }
            else {
                high = middle;
            }
        }
        return low < count && value(0, low) == t;
    }

    /* Whether cumulative length i is none: the first, less than the one before, the last. */
    __device__ __forceinline__ bool is_wrong(int64_t i) const
    {
        const int64_t here = value(0, i);
        return here < (i > 0 ? value(0, i - 1) : 0) || (i == 0 && here != 0) ||
               (i == count - 1 && here != steps);
    }
};

/* The first block tells the host, which then need not wait for a copy of the flags. */
__device__ __forceinline__ void
answer_first(const mark_work &work)
{
    const int64_t values = work.borders ? work.count : work.rows * work.steps;
    bool wrong = false;
    for (int64_t i = threadIdx.x; i < values; i += MARK_BLOCK) {
        const int64_t b = work.borders ? 0 : i / work.steps;
        wrong |=
            work.borders ? work.is_wrong(i) : work.value(b, i - b * work.steps) < 0;
    }
    const bool any = __syncthreads_or(wrong) != 0;
    if (threadIdx.x == 0) {
        tell_host(work.answer, any ? 0 : NONE_BAD);
    }
}

/* A warp makes a word at a time, a lane the bit of a step. */
__global__ void
__launch_bounds__(MARK_BLOCK) causal_conv1d_segment_marks(mark_work work)
{
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * MARK_BLOCK + static_cast<int>(threadIdx.x);
    const int64_t stride = static_cast<int64_t>(gridDim.x) * MARK_BLOCK;
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    if (work.answer && blockIdx.x == 0) {
        answer_first(work);
    }
    bool wrong = false;
    for (int64_t i = first; !work.answer && work.borders && i < work.count;
         i += stride) {
        wrong |= work.is_wrong(i);
    }
    for (int64_t word = first / WARP; word < work.rows * work.pitch;
         word += stride / WARP) {
        const int64_t b = word / work.pitch;
        const int64_t t = (word - b * work.pitch - 1) * WARP + lane;
        bool begins = t == 0 || t >= work.steps;
        if (t >= 0 && t < work.steps) {
            if (work.borders) {
                begins |= work.is_border(t);
            }
            else {
                const int64_t id = work.value(b, t);
                wrong |= id < 0;
                begins |= t > 0 && id != work.value(b, t - 1);
            }
        }
        const unsigned bits = __ballot_sync(ALL_LANES, begins);
        if (lane == 0) {
            work.words[word] = bits;
        }
    }
    const bool any = __any_sync(ALL_LANES, wrong) != 0;
    if (lane == 0 && !work.answer) {
        work.wrong[first / WARP] = any;
    }
}

/* ---- wrong values ---- */

/* Copies the values to `to`, one after the other. */
static gpo_status
fetch_values(gpo_call *call, int64_t rows, int64_t n, char *to)
{
    const conv_plan &p = *conv_plan_of(call);
    const int64_t bytes = p.segments_wide ? 8 : 4;
    const char *const from = static_cast<const char *>(conv_arrays_of(call).segments);
    gpo_status status = GPO_OK;
    for (int64_t b = 0; b < rows && !status; b++) {
        const char *const row = from + b * p.segments_b * bytes;
        if (p.segments_t == 1) {
            status = gpo_fetch(call, to + b * n * bytes, row, n * bytes);
        }
        for (int64_t t = 0; t < n && !status && p.segments_t != 1; t++) {
            status = gpo_fetch(call, to + (b * n + t) * bytes,
                               row + t * p.segments_t * bytes, bytes);
        }
    }
    return status;
}

/* The sentence for the first wrong value. */
static gpo_status
name_wrong(gpo_call *call, int64_t rows, int64_t n)
{
    const bool wide = conv_plan_of(call)->segments_wide;
    const int64_t bytes = rows * n * (wide ? 8 : 4);
    char *const values = static_cast<char *>(malloc(bytes));
    if (!values) {
        return gpo_fail(&call->error, GPO_EMEMORY, "cannot allocate %lld bytes",
                        static_cast<long long>(bytes));
    }
    gpo_status status = fetch_values(call, rows, n, values);
    if (!status) {
        const segment_values s = {values, wide, n, 1};
        status = check_segment_values(call, &s);
    }
    free(values);
    return status;
}

/* Whether the launch met a wrong value. */
static gpo_status
find_wrong(gpo_call *call, const mark_work &work, int64_t flags, bool *any)
{
    gpo_status status = GPO_OK;
    if (work.answer) {
        uint64_t answer = 0;
        status = gpo_answer(call, work.answer, &answer);
        *any = answer != NONE_BAD;
        return status;
    }
    unsigned char wrong[MOST_FLAGS] = {};
    status = gpo_fetch(call, wrong, work.wrong, flags);
    for (int64_t i = 0; i < flags; i++) {
        *any |= wrong[i] != 0;
    }
    return status;
}

/* ---- the launch ---- */

gpo_status
mark_segments(gpo_call *call, segment_marks *marks)
{
    const conv_plan &p = *conv_plan_of(call);
    *marks = {};
    if (!p.segments || p.batches == 0) {
        return GPO_OK;
    }
    mark_work work = {};
    work.from = {conv_arrays_of(call).segments, p.segments_wide, p.segments_b,
                 p.segments_t};
    work.borders = p.segments == SEGMENTS_BORDERS;
    work.count = work.borders ? p.segments_n : 0;
    work.rows = work.borders ? 1 : p.batches;
    work.steps = p.steps;
    work.pitch = p.steps / 32 + 4;
    const int64_t bytes = work.rows * work.pitch * sizeof(uint32_t);
    const int64_t blocks = ceil_div(work.rows * work.pitch * WARP, MARK_BLOCK);
    constexpr int64_t WARPS = MARK_BLOCK / WARP, MOST = MOST_FLAGS / WARPS;
    const dim3 grid = grid_of(blocks < MOST ? blocks : MOST);
    const int64_t flags = grid.x * WARPS;
    void *memory = nullptr;
    gpo_status status = gpo_may_wait(call);
    if (!status) {
        status = gpo_scratch(call, bytes + flags, &memory);
    }
    const int64_t values = work.borders ? p.segments_n : work.rows * work.steps;
    if (!status && values <= MOST_ASKED) {
        status = gpo_question(call, &work.answer);
    }
    if (status) {
        return status;
    }
    work.words = static_cast<uint32_t *>(memory);
    work.wrong = static_cast<unsigned char *>(memory) + bytes;
    status = GPO_LAUNCH(call, grid, MARK_BLOCK, 0, causal_conv1d_segment_marks, work);
    *marks = {work.words, work.borders ? 0 : work.pitch};
    bool any = false;
    if (!status) {
        status = find_wrong(call, work, flags, &any);
    }
    return any && !status
               ? name_wrong(call, work.rows, work.borders ? p.segments_n : p.steps)
               : status;
}
