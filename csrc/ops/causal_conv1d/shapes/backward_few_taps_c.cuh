/*
 * backward_few_taps_c.cuh  Contender of backward_few_taps.cu:
 * half as many warps, with twice the rows.
 */
#ifndef GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_C_CUH
#define GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_C_CUH

template <typename T>
gpo_status
gradients_few_taps_c(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    return gradients_by_walks<T, 4, 5>(call, v, lags, WALKS / 2);
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps_c)

#endif
