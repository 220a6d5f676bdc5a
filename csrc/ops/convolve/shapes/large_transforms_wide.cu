/*
 * large_transforms_wide.cu  The same for float64 and complex128, compiled separately.
 */
#include "large_transforms.cuh"

template gpo_status convolve_large_transforms<double>(gpo_call *call);
template gpo_status convolve_large_transforms<c128>(gpo_call *call);
