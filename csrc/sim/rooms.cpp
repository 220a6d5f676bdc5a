/*
 * rooms.cpp  The CUDA table of every room, by name.  A room without kernels has none.
 */
#include "../core/gpo.h"

#include <string.h>

#define OP(name) extern "C" const gpo_table name##_cuda __attribute__((weak));
#include "../ops/ops.def"
#undef OP

const gpo_table *gpo_sim_room(const char *op);

const gpo_table *
gpo_sim_room(const char *op)
{
#define OP(name)                  \
    if (strcmp(op, #name) == 0) { \
        return &name##_cuda;      \
    }
#include "../ops/ops.def"
#undef OP
    return NULL;
}
