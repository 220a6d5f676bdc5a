/*
 * rooms.cpp  The CUDA table of each ladder, by name; NULL for one without kernels.
 */
#include "../core/gpo.h"

#include <string.h>

#define OP(name, ladder) extern "C" const gpo_table ladder##_cuda __attribute__((weak));
#include "../ops/ops.def"
#undef OP

const gpo_table *gpo_sim_room(const char *name);

const gpo_table *
gpo_sim_room(const char *name)
{
#define OP(op, ladder)                \
    if (strcmp(name, #ladder) == 0) { \
        return &ladder##_cuda;        \
    }
#include "../ops/ops.def"
#undef OP
    return NULL;
}
