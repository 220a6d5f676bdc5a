/*
 * short_filters_channels_last_e.cuh  The kernel of short_filters_channels_last.cu, in whole waves.
 */
#ifndef GPO_CAUSAL_CONV1D_SHORT_FILTERS_CHANNELS_LAST_E_CUH
#define GPO_CAUSAL_CONV1D_SHORT_FILTERS_CHANNELS_LAST_E_CUH

#include "short_filters.cuh"

template <typename T>
gpo_status conv_short_filters_channels_last_e(gpo_call *call, const conv_view<T> &v);

#endif
