/*
 * verdict.cu  The kernels that tell the host whether an index is out of bounds.
 */
#include "verdict.cuh"

#include "block.cuh"

static constexpr int CHECK_BLOCK = 256;

gpo_status
open_verdict(gpo_call *call, int64_t length, verdict_word *word)
{
    word->if_bad = is_known(call, length);
    if (word->if_bad) {
        return gpo_later_question(call, &word->at);
    }
    const gpo_status status = gpo_may_wait(call);
    return status ? status : gpo_question(call, &word->at);
}

gpo_status
close_verdict(gpo_call *call, int64_t length, const verdict_word &word, uint64_t *place)
{
    const gpo_status status = word.if_bad ? gpo_later_answer(call, word.at, place)
                                          : gpo_answer(call, word.at, place);
    if (!status && *place == NONE_BAD) {
        found_good(call, length);
    }
    return status;
}

static __global__ void
tell_what_was_noted(const unsigned long long *bad, uint64_t *answer)
{
    tell_host(answer, *bad);
}

gpo_status
wait_for_verdict(gpo_call *call, const unsigned long long *bad, uint64_t *place)
{
    uint64_t *answer = nullptr;
    gpo_status status = gpo_question(call, &answer);
    if (!status) {
        status =
            GPO_LAUNCH(call, dim3(1), dim3(1), 0, tell_what_was_noted, bad, answer);
    }
    return status ? status : gpo_answer(call, answer, place);
}

__device__ __forceinline__ bool
is_good(const index_line &line, int64_t i)
{
    const int64_t k = line.is_wide
                          ? static_cast<const int64_t *>(line.at)[i * line.step]
                          : static_cast<const int32_t *>(line.at)[i * line.step];
    return line.is_unsigned
               ? static_cast<uint64_t>(k) < static_cast<uint64_t>(line.high)
               : k >= line.low && k < line.high;
}

/* `counters` are the stream's: the first bad position, inverted, and a ticket. */
static __global__ void
__launch_bounds__(CHECK_BLOCK) check_line(index_line line, unsigned *counters,
                                          uint64_t *answer, unsigned long long *place)
{
    GPO_SHARED(bool, last, [1]);
    unsigned long long *const first_bad =
        reinterpret_cast<unsigned long long *>(counters);
    const int64_t step = static_cast<int64_t>(gridDim.x) * CHECK_BLOCK;
#pragma unroll 4
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * CHECK_BLOCK + threadIdx.x;
         i < line.count; i += step) {
        if (!is_good(line, i)) {
            atomicMax(first_bad, ~static_cast<unsigned long long>(i));
        }
    }
    if (is_last_block(counters + 2, gridDim.x, last) && threadIdx.x == 0) {
        const unsigned long long first = ~atomicExch(first_bad, 0ull);
        if (place != nullptr) {
            *place = first;
        }
        tell_host(answer, first);
    }
}

gpo_status
ask_verdict(gpo_call *call, const index_line &line, uint64_t **answer,
            unsigned long long *place)
{
    constexpr int64_t EACH = 4 * CHECK_BLOCK;
    unsigned *counters = nullptr;
    gpo_status status = gpo_tickets(call, &counters);
    if (!status) {
        status = gpo_question(call, answer);
    }
    const int64_t most = 2 * static_cast<int64_t>(gpo_processors(call));
    const int64_t blocks = (line.count + EACH - 1) / EACH;
    const dim3 grid(static_cast<unsigned>(blocks < 1      ? 1
                                          : blocks < most ? blocks
                                                          : most));
    return status ? status
                  : GPO_LAUNCH(call, grid, CHECK_BLOCK, 0, check_line, line, counters,
                               *answer, place);
}

gpo_status
fetch_index(gpo_call *call, const void *index, bool is_wide, int64_t at, int64_t *value)
{
    int32_t narrow = 0;
    if (is_wide) {
        return gpo_fetch(call, value, static_cast<const int64_t *>(index) + at,
                         sizeof *value);
    }
    const gpo_status status = gpo_fetch(
        call, &narrow, static_cast<const int32_t *>(index) + at, sizeof narrow);
    *value = narrow;
    return status;
}
