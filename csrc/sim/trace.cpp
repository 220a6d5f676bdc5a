/*
 * trace.cpp  Keeps the requests of a launch one by one, for pictures: which lanes took
 * part, with which addresses, and in which order.  access.cpp forms the requests and
 * calls the functions here.  Order: the trace, a launch, a request, a block.
 */
#include "internal.h"

#include <stdio.h>

namespace gpo_sim {

gpo_sim_trace *tracing;
static int32_t launch_number; /* since the trace began */

void
trace_set(gpo_sim_trace *into)
{
    tracing = into;
    launch_number = -1;
}

void
trace_launch(void)
{
    launch_number++;
}

void
trace_request(const Warp *warp, const Request *request, const Site *site)
{
    const Block *block = warp->lanes[0].block;
    const int64_t number = (int64_t)block->linear;
    if (number < tracing->first_block || number >= tracing->end_block) {
        return;
    }
    if (tracing->nrequests < tracing->request_capacity) {
        gpo_sim_request *r = &tracing->requests[tracing->nrequests];
        snprintf(r->kernel, sizeof r->kernel, "%s", running.kernel);
        snprintf(r->file, sizeof r->file, "%s", short_path(site->file));
        r->line = site->line;
        r->launch = launch_number;
        r->block = number;
        r->warp = (int32_t)warp->index;
        r->interval = block->interval;
        r->after = request->after;
        r->exists = warp->exists;
        r->mask = request->mask;
        r->kind = request->kind;
        r->bytes = request->kind == GPO_SIM_CODE ? 0 : request->bytes;
        r->write = request->kind != GPO_SIM_CODE && request->write;
        for (unsigned lane = 0; lane < WARP; lane++) {
            const bool takes_part =
                request->kind != GPO_SIM_CODE && (request->mask >> lane & 1u);
            r->address[lane] = takes_part ? request->address[lane] : 0;
        }
    }
    tracing->nrequests++;
}

void
trace_block(const Block *block)
{
    if (tracing->nblocks < tracing->block_capacity) {
        gpo_sim_block *b = &tracing->blocks[tracing->nblocks];
        const unsigned grid[3] = {running.grid.x, running.grid.y, running.grid.z};
        const unsigned threads[3] = {running.block.x, running.block.y, running.block.z};
        snprintf(b->kernel, sizeof b->kernel, "%s", running.kernel);
        b->launch = launch_number;
        memcpy(b->grid, grid, sizeof grid);
        memcpy(b->threads, threads, sizeof threads);
        b->block = block->linear;
        b->shared_bytes = block->static_bytes + running.dynamic_bytes;
        b->pieces = block->pieces;
    }
    tracing->nblocks++;
}

} // namespace gpo_sim
