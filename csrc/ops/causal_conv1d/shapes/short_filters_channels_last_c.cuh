/*
 * short_filters_channels_last_c.cuh  Tiles of 32 steps and 128 bytes of channels: see short_filters_tiles.cu.
 */
#ifndef GPO_CAUSAL_CONV1D_SHORT_FILTERS_CHANNELS_LAST_C_CUH
#define GPO_CAUSAL_CONV1D_SHORT_FILTERS_CHANNELS_LAST_C_CUH

#include "short_filters.cuh"

template <typename T>
gpo_status conv_short_filters_tiles_c(gpo_call *call, const conv_view<T> &v);

#endif
