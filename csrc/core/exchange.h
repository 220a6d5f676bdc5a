/*
 * exchange.h  Words through which the blocks of one launch tell each other something, in
 * the stream's workspace behind gpo_tickets' counters and bytes: a word that counts blocks
 * and launches, and two halves.  A launch uses one half, which it finds cleared, and clears
 * the other: device/exchange.cuh.  Other than counters and bytes, they belong to it alone.
 */
#ifndef GPO_EXCHANGE_H
#define GPO_EXCHANGE_H

#include "gpo.h"

enum { GPO_EXCHANGE_WORDS = 2048 }; /* of 64 bits, in a half */
enum { GPO_EXCHANGE_BYTES = (1 + 2 * GPO_EXCHANGE_WORDS) * 8 };

static inline uint64_t *
gpo_exchange_of(unsigned *tickets)
{
    return (uint64_t *)((char *)(tickets + GPO_TICKETS) + GPO_PARTIALS);
}

#endif
