/*
 * short_filters_b.cuh  The kernel of short_filters.cu, a warp for each item of small calls.
 */
#ifndef GPO_CAUSAL_CONV1D_SHORT_FILTERS_B_CUH
#define GPO_CAUSAL_CONV1D_SHORT_FILTERS_B_CUH

#include "short_filters.cuh"

template <typename T>
gpo_status conv_short_filters_b(gpo_call *call, const conv_view<T> &v);

#endif
