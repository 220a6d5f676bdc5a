/*
 * sum.cuh  Compensated sums of floating-point numbers.
 */
#ifndef GPO_SUM_CUH
#define GPO_SUM_CUH

#include "launch.cuh"

/* A sum that also accumulates the rounding error of each addition (Knuth's TwoSum). */
template <typename Real>
struct compensated_sum {
    Real total = 0, lost = 0;

    /* add() to an empty sum */
    __device__ __forceinline__ void start(Real x)
    {
        total = x;
        lost = 0;
    }

    __device__ __forceinline__ void add(Real x)
    {
        const Real sum = total + x;
        const Real back = sum - total;
        lost += (total - (sum - back)) + (x - back);
        total = sum;
    }

    __device__ __forceinline__ Real value() const
    {
        return lost - lost == 0 ? total + lost : total; /* after an inf `lost` is nan */
    }
};

#endif
