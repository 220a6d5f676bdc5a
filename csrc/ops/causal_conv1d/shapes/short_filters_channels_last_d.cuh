/*
 * short_filters_channels_last_d.cuh  Tiles of 64 steps and 256 bytes of channels: see short_filters_tiles.cu.
 */
#ifndef GPO_CAUSAL_CONV1D_SHORT_FILTERS_CHANNELS_LAST_D_CUH
#define GPO_CAUSAL_CONV1D_SHORT_FILTERS_CHANNELS_LAST_D_CUH

#include "short_filters.cuh"

template <typename T>
gpo_status conv_short_filters_tiles_d(gpo_call *call, const conv_view<T> &v);

#endif
