/*
 * verdict.cuh  The host learns whether kernels met an index out of bounds (verdict.cu).
 */
#ifndef GPO_VERDICT_CUH
#define GPO_VERDICT_CUH

#include "index.cuh"

/* *place = *bad after the kernels before; NONE_BAD if no index was out of bounds. */
gpo_status wait_for_verdict(gpo_call *call, const unsigned long long *bad,
                            uint64_t *place);

/*
 * Whether an earlier call found every index good for at most `length` destinations.
 * Kernels then note a bad one in a word that a later call reads.
 */
inline bool
is_known(const gpo_call *call, int64_t length)
{
    const gpo_indices &known = call->known;
    return known.low < known.high && -length <= known.low && known.high <= length;
}

/* A bound on the rows that go to one of `length` destinations; 0: none is known. */
inline int64_t
most_of(const gpo_call *call, int64_t length)
{
    return call->known.high == length ? call->known.most : 0;
}

/* For later calls: every index was good. */
inline void
found_good(gpo_call *call, int64_t length)
{
    const bool same = call->known.high == length;
    call->found = {-length, length, most_of(call, length),
                   same ? call->known.behind : 0, same && call->known.sorted};
}

/* The word of gpo_later_question as one in which kernels note the first bad index. */
inline unsigned long long *
word_of(uint64_t *later)
{
    return reinterpret_cast<unsigned long long *>(later);
}

/* The word to which a single kernel tells its verdict: see gpo_question. */
struct verdict_word {
    uint64_t *at; /* NULL: the call does not raise */
    bool if_bad;  /* it tells of a bad index alone, because the index is known */
};

/* For a call that raises, before its first launch; then, after the launch, the verdict. */
gpo_status open_verdict(gpo_call *call, int64_t length, verdict_word *word);
gpo_status close_verdict(gpo_call *call, int64_t length, const verdict_word &word,
                         uint64_t *place);

/* By one thread of the kernel. */
__device__ __forceinline__ void
tell_verdict(const verdict_word &word, unsigned long long first_bad)
{
    if (word.at != nullptr && !(word.if_bad && first_bad == NONE_BAD)) {
        tell_host(word.at, first_bad);
    }
}

/* Indices of a call, good if low <= index < high. */
struct index_line {
    const void *at;
    int64_t step, count, low, high;
    bool is_wide; /* 64 bits, else 32 */
    bool is_unsigned;
};

/* So many are checked before the other kernels, which the host need not wait for. */
constexpr int64_t CHECKED_FIRST = 1 << 20;

/*
 * Launches the check; gpo_answer tells the first bad position, or NONE_BAD.  So does
 * *place, in memory of the device, to kernels that start later; it may be NULL.
 */
gpo_status ask_verdict(gpo_call *call, const index_line &line, uint64_t **answer,
                       unsigned long long *place);

/* The index of a call at `at`, which was out of bounds. */
gpo_status fetch_index(gpo_call *call, const void *index, bool is_wide, int64_t at,
                       int64_t *value);

#endif
