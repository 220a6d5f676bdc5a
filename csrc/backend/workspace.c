/*
 * workspace.c  The backend functions that operators call, dispatched to the call's
 * backend.  Part of the module and of each simulator library.
 */
#include "backend.h"

gpo_status
gpo_scratch(gpo_call *call, size_t bytes, void **out)
{
    return call->backend->scratch(call, bytes, out);
}

gpo_status
gpo_tickets(gpo_call *call, unsigned **out)
{
    return call->backend->tickets(call, out);
}

int
gpo_processors(const gpo_call *call)
{
    return call->backend->processors(call);
}

int64_t
gpo_l2_bytes(const gpo_call *call)
{
    return call->backend->l2_bytes(call);
}

const char *
gpo_lacks(const gpo_backend *backend, int device, const char *needs)
{
    return needs[0] && backend->lacks ? backend->lacks(device, needs) : NULL;
}

gpo_status
gpo_may_wait(gpo_call *call)
{
    return call->backend->may_wait ? call->backend->may_wait(call) : GPO_OK;
}

gpo_status
gpo_fetch(gpo_call *call, void *to, const void *from, size_t bytes)
{
    gpo_status status = call->backend->download(call, to, from, bytes);
    if (!status) {
        status = call->backend->wait(call);
    }
    return status;
}

gpo_status
gpo_question(gpo_call *call, uint64_t **word)
{
    if (call->backend->question) {
        return call->backend->question(call, word);
    }
    void *memory = NULL;
    const gpo_status status = call->backend->scratch(call, sizeof **word, &memory);
    *word = memory;
    return status;
}

gpo_status
gpo_answer(gpo_call *call, const uint64_t *word, uint64_t *answer)
{
    return call->backend->answer ? call->backend->answer(call, word, answer)
                                 : gpo_fetch(call, answer, word, sizeof *answer);
}

gpo_status
gpo_later_question(gpo_call *call, uint64_t **word)
{
    static const uint64_t nothing = UINT64_MAX;
    if (call->backend->later) {
        return call->backend->later(call, word);
    }
    void *memory = NULL;
    gpo_status status = call->backend->scratch(call, sizeof **word, &memory);
    if (!status) {
        status = call->backend->upload(call, memory, &nothing, sizeof nothing);
    }
    *word = memory;
    return status;
}

gpo_status
gpo_later_answer(gpo_call *call, const uint64_t *word, uint64_t *answer)
{
    *answer = UINT64_MAX;
    return call->backend->later ? GPO_OK
                                : gpo_fetch(call, answer, word, sizeof *answer);
}
