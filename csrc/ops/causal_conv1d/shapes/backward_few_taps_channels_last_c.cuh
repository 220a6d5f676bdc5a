/*
 * backward_few_taps_channels_last_c.cuh  Contender of backward_few_taps_channels_last.cu:
 * two channels of a thread, more threads.
 */
#ifndef GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_C_CUH
#define GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_C_CUH

template <typename T>
gpo_status
gradients_few_taps_channels_last_c(gpo_call *call, const conv_view<T> &v,
                                   const lag_view<T> &lags)
{
    return gradients_by_columns<T, 2, 16 / sizeof(T)>(
        call, v, lags, {COLUMNS_EXTRA, MOST_PARTS_OF_ONE, 3});
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps_channels_last_c)

#endif
