/*
 * place_host.h  Steps of calls on host memory that other placements share.
 */
#ifndef GPO_PLACE_HOST_H
#define GPO_PLACE_HOST_H

#include "call.h"

/* See gpo_placement. */
bool gpo_host_wrap(frame *f);
bool gpo_host_check_out(const frame *f, int i);
bool gpo_host_convert(frame *f, int i);
bool gpo_host_place(frame *f);
PyObject *gpo_host_result(frame *f, int i);

#endif
