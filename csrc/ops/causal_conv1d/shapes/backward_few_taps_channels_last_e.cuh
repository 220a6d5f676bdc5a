/*
 * backward_few_taps_channels_last_e.cuh  Contender of backward_few_taps_channels_last.cu:
 * stretches twice as long.
 */
#ifndef GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_E_CUH
#define GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_E_CUH

template <typename T>
gpo_status
gradients_few_taps_channels_last_e(gpo_call *call, const conv_view<T> &v,
                                   const lag_view<T> &lags)
{
    return gradients_by_fours(call, v, lags, {4 * COLUMNS_EXTRA, MOST_PARTS_OF_ONE, 3});
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps_channels_last_e)

#endif
