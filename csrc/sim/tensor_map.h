/*
 * tensor_map.h  Tensor maps of the simulator: arrays of 1 to 5 dimensions, of which a
 * bulk copy moves a box.  hopper_sim.h includes it, for kernels and launchers.
 */
#ifndef GPO_SIM_TENSOR_MAP_H
#define GPO_SIM_TENSOR_MAP_H

#include "cuda_sim.h"

namespace gpo_sim {

enum {
    MAX_RANK = 5,
    BOX_PLACE = 128,       /* shared addresses of boxes are multiples of it */
    SWIZZLED_PLACE = 1024, /* of swizzled ones, whose rows have 128 bytes */
    SWIZZLED_ROW = 128,
};

/* What the fields of tensor_layout in device/hopper.cuh mean, and the array. */
struct TensorMap {
    uint32_t made; /* TENSOR_MAP_MADE, or nobody has made the map */
    uint32_t rank, element;
    char *base;
    uint64_t sizes[MAX_RANK], strides[MAX_RANK];
    uint32_t box[MAX_RANK];
    bool swizzled; /* 16 bytes i of row r of 128 bytes are those i ^ r % 8 */
};
static const uint32_t TENSOR_MAP_MADE = 0x544D4150u;

/* Fills the map in; an error where the hardware, or the allocation, would not do. */
gpo_status tensor_map_make(gpo_call *call, TensorMap *map, void *base,
                           uint32_t element_bytes, uint32_t rank, const uint64_t *sizes,
                           const uint64_t *strides, const uint32_t *box, bool swizzled,
                           const char *file, int line);

void tensor_load_start(uint32_t to, const TensorMap *map, const int32_t *at,
                       uint32_t rank, uint32_t barrier, const char *file, int line);
void tensor_store_start(const TensorMap *map, const int32_t *at, uint32_t rank,
                        uint32_t from, const char *file, int line);

} // namespace gpo_sim

#endif
