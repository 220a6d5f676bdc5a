/*
 * backward_few_taps_channels_last_d.cuh  Contender of backward_few_taps_channels_last.cu:
 * parts added by a second kernel.
 */
#ifndef GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_D_CUH
#define GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_D_CUH

template <typename T>
gpo_status
gradients_few_taps_channels_last_d(gpo_call *call, const conv_view<T> &v,
                                   const lag_view<T> &lags)
{
    return gradients_by_fours(call, v, lags, {COLUMNS_EXTRA, 1, 3});
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps_channels_last_d)

#endif
