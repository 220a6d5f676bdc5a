/*
 * status.c  How a failure is said: one status and one sentence in the call.
 */
#include "gpo.h"

#include <stdarg.h>
#include <stdio.h>

gpo_status
gpo_fail(gpo_call *call, gpo_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(call->message, sizeof call->message, format, args);
    va_end(args);
    return status;
}
