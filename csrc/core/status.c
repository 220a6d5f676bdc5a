/*
 * status.c  Reports a failure: one status and one sentence.
 */
#include "gpo.h"

#include <stdarg.h>
#include <stdio.h>

gpo_status
gpo_fail(gpo_error *error, gpo_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error->message, sizeof error->message, format, args);
    va_end(args);
    return status;
}
