/*
 * backward_few_taps_channels_last_b.cuh  Contender of backward_few_taps_channels_last.cu:
 * stretches as long as one wave of threads allows.
 */
#ifndef GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_B_CUH
#define GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_B_CUH

template <typename T>
gpo_status
gradients_few_taps_channels_last_b(gpo_call *call, const conv_view<T> &v,
                                   const lag_view<T> &lags)
{
    return gradients_by_fours(call, v, lags, {0, MOST_PARTS_OF_ONE, 3});
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps_channels_last_b)

#endif
