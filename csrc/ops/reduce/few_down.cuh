/*
 * few_down.cuh  What shapes/few_down.cu and the choice share.
 */
#ifndef GPO_REDUCE_FEW_DOWN_CUH
#define GPO_REDUCE_FEW_DOWN_CUH

#include "views.cuh"

/* Results of a thread that share no loads, and their elements at most: all are on their way
   at once. */
constexpr int FEW_APART = 4, FEW_IN_APART = 4;

#endif
