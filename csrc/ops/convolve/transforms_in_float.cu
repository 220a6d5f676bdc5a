/*
 * transforms_in_float.cu  large_transforms for float32 and complex64, compiled
 * separately.
 */
#include "shapes/large_transforms.cuh"

template gpo_status convolve_large_transforms<float>(gpo_call *call);
template gpo_status convolve_large_transforms<c64>(gpo_call *call);
