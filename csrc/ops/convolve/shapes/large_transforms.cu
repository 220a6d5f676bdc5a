/*
 * large_transforms.cu  Long filters of float32 and complex64, by large_transforms.cuh.
 */
#include "large_transforms.cuh"

template gpo_status convolve_large_transforms<float>(gpo_call *call);
template gpo_status convolve_large_transforms<c64>(gpo_call *call);
