/*
 * backward_few_taps_channels_last_f.cuh  Contender of backward_few_taps_channels_last.cu:
 * groups of 32 chunks, whose warps read 256 bytes and more of a step.
 */
#ifndef GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_F_CUH
#define GPO_CAUSAL_CONV1D_BACKWARD_FEW_TAPS_CHANNELS_LAST_F_CUH

template <typename T>
gpo_status
gradients_few_taps_channels_last_f(gpo_call *call, const conv_view<T> &v,
                                   const lag_view<T> &lags)
{
    return gradients_by_fours(call, v, lags, {COLUMNS_EXTRA, MOST_PARTS_OF_ONE, 5});
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps_channels_last_f)

#endif
