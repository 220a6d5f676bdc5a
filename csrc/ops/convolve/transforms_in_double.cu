/*
 * transforms_in_double.cu  large_transforms for float64 and complex128, compiled
 * separately.
 */
#include "shapes/large_transforms.cuh"

template gpo_status convolve_large_transforms<double>(gpo_call *call);
template gpo_status convolve_large_transforms<c128>(gpo_call *call);
