/*
 * divide.cuh  Division by a number known before the launch, as one multiplication.
 */
#ifndef GPO_DIVIDE_CUH
#define GPO_DIVIDE_CUH

#include "launch.cuh"

/*
 * n / by for 0 <= n < 2^63 by a multiplication (Granlund and Montgomery), of 32 bits
 * where n and by are below 2^31, else of 64.
 */
struct divider {
    unsigned magic, shift;
    unsigned long long wide_magic;
    int64_t by;

    __device__ __forceinline__ int narrow(int n) const
    {
        const unsigned u = static_cast<unsigned>(n);
        return static_cast<int>((__umulhi(u, magic) + u) >> shift);
    }

    __device__ __forceinline__ int64_t of(int64_t n) const
    {
        if (n >> 31 == 0 && by >> 31 == 0) {
            return narrow(static_cast<int>(n));
        }
        const unsigned long long u = static_cast<unsigned long long>(n);
        return static_cast<int64_t>((__umul64hi(u, wide_magic) + u) >> shift);
    }
};

inline divider
divider_of(int64_t by)
{
    const uint64_t d = static_cast<uint64_t>(by);
    unsigned shift = 0;
    while (uint64_t{1} << shift < d) {
        shift++;
    }
    const uint64_t past = (uint64_t{1} << shift) - d; /* < d, so the quotients fit */
    const unsigned __int128 both = static_cast<unsigned __int128>(past) << 64;
    const unsigned long long wide = static_cast<uint64_t>(both / d);
    const unsigned magic =
        by >> 31 == 0 ? static_cast<unsigned>((past << 32) / d + 1) : 0;
    return {magic, shift, wide + 1, by};
}

#endif
