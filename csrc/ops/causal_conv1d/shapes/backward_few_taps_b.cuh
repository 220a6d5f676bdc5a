/*
 * backward_few_taps_b.cuh  Contender of backward_few_taps.cu:
 * two items ahead, in more threads.
 */
#ifndef GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_B_CUH
#define GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_B_CUH

template <typename T>
gpo_status
gradients_few_taps_b(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    return gradients_by_walks < T, 2, sizeof(T) == 4 ? 8 : 6 > (call, v, lags, WALKS);
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps_b)

#endif
