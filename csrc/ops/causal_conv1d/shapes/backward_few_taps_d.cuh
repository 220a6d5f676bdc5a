/*
 * backward_few_taps_d.cuh  Contender of backward_few_taps.cu:
 * twice as many warps, with half the rows.
 */
#ifndef GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_D_CUH
#define GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_D_CUH

template <typename T>
gpo_status
gradients_few_taps_d(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    return gradients_by_walks<T, 4, 5>(call, v, lags, WALKS * 2);
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps_d)

#endif
