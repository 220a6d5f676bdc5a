/*
 * order.cpp  Which accesses happen before which, in the instrumented build.
 *
 * Races: two accesses of one byte, at least one a write, not both atomic, that nothing
 * orders.  A barrier orders the accesses of a block, __syncwarp those of its lanes.  A
 * fence followed by an atomic (or volatile) write of a word is a release: the accesses
 * before the fence are ordered before those of a thread that later reads the word
 * atomically (or volatile), and after the next barrier before those of its whole block.
 * A fence in every thread, then a barrier, then one thread's atomic do the same.
 * An asynchronous copy is ordered by a wait for its mbarrier alone.
 */
#include "cells.h"
#include "tables.h"

#ifdef GPO_SIM_PROFILE

namespace gpo_sim {

/* ---- releases and acquires ---- */

/* A fence and then an atomic on a word: publishes the accesses before the fence. */
struct Release {
    uint32_t block, thread;
    uint32_t fence, barrier; /* times of the fence and of the last barrier before it */
    uint32_t acquired;       /* the block's acquires at that time */
    uint32_t previous;       /* the block's release before this one on the same word */
    uint32_t released;       /* time of the block's barrier before the atomic */
    uint32_t fences;         /* index in fence_log of all its threads' fences or 0 */
    uint32_t time;           /* of the atomic: it publishes nothing that is later */
};

/* An atomic read of a word: the block has acquired its first `length` releases. */
struct Acquire {
    uint32_t word, length;
    uint32_t thread, time;
    uint32_t previous; /* of the same block */
    uint32_t visited;  /* the last query that followed it for any thread */
};

struct Word {
    uint32_t releases; /* how many there were */
};

static uint32_t *fence_log; /* times of the last fences of a block's threads */
static size_t nfences = 1, fences_capacity;
static Release *releases;
static Acquire *acquires;
static Word *words;
static size_t nreleases = 1, releases_capacity;
static size_t nacquires = 1, acquires_capacity;
static size_t nwords = 1, words_capacity;
static Index word_index;    /* address -> word */
static Index release_index; /* word, block -> last release, counted within the word */

/* Questions asked again for the next byte: what they depend on, and the answer. */
struct Answer {
    const Fibre *self;
    uint32_t acquired, barrier, time, block, thread;
    bool published;
};
static Answer answers[1024];

void
forget_order(void)
{
    nreleases = nacquires = nwords = nfences = 1;
    memset(answers, 0, sizeof answers);
    index_clear(&word_index);
    index_clear(&release_index);
}

/* Whether the last acquire of the block has the same effect: lanes wait for one word. */
static bool
has_acquired(const Fibre *self, uint32_t word, uint32_t length)
{
    const Acquire *last = &acquires[self->block->acquired];
    return self->block->acquired && last->word == word && last->length == length &&
           last->thread / WARP == self->linear / WARP;
}

void
acquire_and_release(Fibre *self, uintptr_t address, bool reads, bool writes)
{
    Block *block = self->block;
    const bool others = block->fences > (self->fence > 0);
    const bool publishes = writes && block->fences > 0;
    uint32_t word = index_get(&word_index, address);
    if (word == 0) {
        uint32_t *slot = publishes ? index_at(&word_index, address) : NULL;
        if (!slot || !reserve(&words, &words_capacity, nwords + 1)) {
            return;
        }
        words[nwords].releases = 0;
        *slot = word = (uint32_t)nwords++;
    }
    if (reads && words[word].releases > 0 &&
        !has_acquired(self, word, words[word].releases) &&
        reserve(&acquires, &acquires_capacity, nacquires + 1)) {
        acquires[nacquires] =
            Acquire{word, words[word].releases, self->linear, now, block->acquired, 0};
        block->acquired = (uint32_t)nacquires++;
        now++;
    }
    if (publishes) {
        uint32_t *last =
            index_at(&release_index, (uint64_t)word << 32 | (uint32_t)block->linear);
        if (last && reserve(&releases, &releases_capacity, nreleases + 1)) {
            Release *release = &releases[nreleases];
            *release = Release();
            release->block = (uint32_t)block->linear;
            release->thread = self->linear;
            release->fence = self->fence;
            release->barrier = self->fence_barrier;
            release->acquired = block->acquired;
            release->previous = *last;
            release->released = block->barrier;
            release->time = now;
            if (others &&
                reserve(&fence_log, &fences_capacity, nfences + block->nthreads)) {
                release->fences = (uint32_t)nfences;
                for (unsigned i = 0; i < block->nthreads; i++) {
                    fence_log[nfences++] = block->fibres[i].fence;
                }
            }
            *last = (uint32_t)nreleases++;
            words[word].releases = (uint32_t)nreleases; /* a time in the log */
        }
    }
}

void
release_copies(Block *block, uintptr_t address, unsigned thread)
{
    uint32_t *word = index_at(&word_index, address);
    if (word && *word == 0 && reserve(&words, &words_capacity, nwords + 1)) {
        words[nwords].releases = 0;
        *word = (uint32_t)nwords++;
    }
    uint32_t *last =
        word && *word
            ? index_at(&release_index, (uint64_t)*word << 32 | (uint32_t)block->linear)
            : NULL;
    if (last && reserve(&releases, &releases_capacity, nreleases + 1)) {
        Release *release = &releases[nreleases];
        *release = Release();
        release->block = (uint32_t)block->linear;
        release->thread = thread;
        release->fence = release->time = ++now;
        release->acquired = block->acquired;
        release->previous = *last;
        *last = (uint32_t)nreleases++;
        words[*word].releases = (uint32_t)nreleases;
    }
}

/*
 * Whether the release covers an access: it is ordered before the releasing thread's
 * fence, or it precedes a fence of its own thread and a barrier before the atomic.
 */
static bool
covers(const Release *release, uint32_t time, unsigned thread)
{
    if (thread & ASYNC_FLAG) {
        return release->thread == thread && time < release->fence;
    }
    if (time < release->fence &&
        (release->thread == thread || time < release->barrier ||
         release->thread / WARP == thread / WARP)) {
        return true;
    }
    if (!release->fences) {
        return false;
    }
    const uint32_t fence = fence_log[release->fences + thread];
    return time < fence && fence < release->released;
}

static uint32_t queries;

/*
 * Whether the releases that a list of acquires has seen cover an access.  Without `self`
 * all acquires count; each is followed once per query.  Those before the access, and
 * all that are older, do not matter.
 */
static bool
is_published(uint32_t acquired, const Fibre *self, uint32_t time, uint32_t block,
             unsigned thread, int depth)
{
    for (uint32_t a = acquired; a && acquires[a].time >= time;
         a = acquires[a].previous) {
        const Acquire *acquire = &acquires[a];
        if (self && acquire->thread != self->linear &&
            acquire->thread / WARP != self->linear / WARP &&
            acquire->time >= self->block->barrier) {
            continue; /* no barrier since another thread acquired it */
        }
        if (!self && acquire->visited == queries) {
            break; /* and so are all before it */
        }
        acquires[a].visited = self ? acquire->visited : queries;
        uint32_t r = index_get(&release_index, (uint64_t)acquire->word << 32 | block);
        for (; r && releases[r].time >= time; r = releases[r].previous) {
            if (r < acquire->length && covers(&releases[r], time, thread)) {
                return true;
            }
        }
        /* through a third block: the last to release the word had acquired it */
        if (depth < 8 && acquire->length > 1) {
            const uint32_t through = releases[acquire->length - 1].acquired;
            if (through &&
                is_published(through, NULL, time, block, thread, depth + 1)) {
                return true;
            }
        }
    }
    return false;
}

static bool
is_acquired(const Fibre *self, uint32_t time, uint32_t block, unsigned thread)
{
    const Block *own = self->block;
    if (!own->acquired) {
        return false;
    }
    Answer *known = &answers[(time * 31 + thread) * 31 % 1024];
    if (known->self != self || known->acquired != own->acquired ||
        known->barrier != own->barrier || known->time != time ||
        known->block != block || known->thread != thread) {
        queries++;
        *known = Answer{self, own->acquired, own->barrier, time, block, thread, false};
        known->published = is_published(own->acquired, self, time, block, thread, 0);
    }
    return known->published;
}

bool
is_before(const Fibre *self, uint32_t time, uint32_t block, unsigned thread)
{
    const Block *own = self->block;
    if (time < running.start) {
        return true; /* an earlier launch */
    }
    if (thread & ASYNC_FLAG) { /* a barrier of the block does not order it */
        return is_acquired(self, time, block, thread);
    }
    if (block == (uint32_t)own->linear) {
        if (thread == self->linear || time < own->barrier) {
            return true;
        }
        if (thread / WARP == self->linear / WARP &&
            (config.schedule == GPO_SIM_LOCKSTEP ||
             time < self->warp->seen[self->position.lane][thread % WARP])) {
            return true;
        }
    }
    return is_acquired(self, time, block, thread);
}

bool
is_before_end(const Block *own, uint32_t time, uint32_t block, unsigned thread)
{
    queries++;
    return own->acquired && is_published(own->acquired, NULL, time, block, thread, 0);
}

} // namespace gpo_sim

#endif
