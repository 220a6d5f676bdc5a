/*
 * vector_sim.h  CUDA's vector types for a host compiler: dim3, then int2 to double4
 * with their make_ functions.  A type of 8 or 16 bytes is copied by one access of that
 * size, as the device copies it, so that the checks see one wide request and its
 * alignment.
 */
#ifndef GPO_SIM_VECTOR_SIM_H
#define GPO_SIM_VECTOR_SIM_H

#include <stdint.h>

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};

namespace gpo_sim {

typedef uint64_t __attribute__((may_alias)) Word8;
typedef uint32_t __attribute__((vector_size(16), may_alias)) Word16;

} // namespace gpo_sim

/* Two or four components, aligned as on the device, in one access of `Word`. */
#define GPO_SIM_VECTOR2(type, scalar, Word)                          \
    struct alignas(sizeof(gpo_sim::Word)) type {                     \
        scalar x, y;                                                 \
        type() = default;                                            \
        constexpr type(scalar a, scalar b) : x(a), y(b)              \
        {                                                            \
        }                                                            \
        type(const type &other)                                      \
        {                                                            \
            *(gpo_sim::Word *)this = *(const gpo_sim::Word *)&other; \
        }                                                            \
        type &operator=(const type &other)                           \
        {                                                            \
            *(gpo_sim::Word *)this = *(const gpo_sim::Word *)&other; \
            return *this;                                            \
        }                                                            \
    };                                                               \
    static inline type make_##type(scalar a, scalar b)               \
    {                                                                \
        return type(a, b);                                           \
    }

#define GPO_SIM_VECTOR4(type, scalar, Word)                                \
    struct alignas(sizeof(gpo_sim::Word)) type {                           \
        scalar x, y, z, w;                                                 \
        type() = default;                                                  \
        constexpr type(scalar a, scalar b, scalar c, scalar d)             \
            : x(a), y(b), z(c), w(d)                                       \
        {                                                                  \
        }                                                                  \
        type(const type &other)                                            \
        {                                                                  \
            *(gpo_sim::Word *)this = *(const gpo_sim::Word *)&other;       \
        }                                                                  \
        type &operator=(const type &other)                                 \
        {                                                                  \
            *(gpo_sim::Word *)this = *(const gpo_sim::Word *)&other;       \
            return *this;                                                  \
        }                                                                  \
    };                                                                     \
    static inline type make_##type(scalar a, scalar b, scalar c, scalar d) \
    {                                                                      \
        return type(a, b, c, d);                                           \
    }

/* The device splits these: three components, or more than 16 bytes. */
#define GPO_SIM_VECTOR3(type, scalar)                            \
    struct type {                                                \
        scalar x, y, z;                                          \
    };                                                           \
    static inline type make_##type(scalar a, scalar b, scalar c) \
    {                                                            \
        return type{a, b, c};                                    \
    }

namespace gpo_sim {

typedef uint16_t __attribute__((may_alias)) Word2;
typedef uint32_t __attribute__((may_alias)) Word4;

} // namespace gpo_sim

GPO_SIM_VECTOR2(char2, signed char, Word2)
GPO_SIM_VECTOR2(uchar2, unsigned char, Word2)
GPO_SIM_VECTOR4(char4, signed char, Word4)
GPO_SIM_VECTOR4(uchar4, unsigned char, Word4)
GPO_SIM_VECTOR2(short2, short, Word4)
GPO_SIM_VECTOR2(ushort2, unsigned short, Word4)
GPO_SIM_VECTOR4(short4, short, Word8)
GPO_SIM_VECTOR4(ushort4, unsigned short, Word8)
GPO_SIM_VECTOR2(int2, int, Word8)
GPO_SIM_VECTOR2(uint2, unsigned, Word8)
GPO_SIM_VECTOR2(float2, float, Word8)
GPO_SIM_VECTOR4(int4, int, Word16)
GPO_SIM_VECTOR4(uint4, unsigned, Word16)
GPO_SIM_VECTOR4(float4, float, Word16)
GPO_SIM_VECTOR2(longlong2, long long, Word16)
GPO_SIM_VECTOR2(ulonglong2, unsigned long long, Word16)
GPO_SIM_VECTOR2(double2, double, Word16)
GPO_SIM_VECTOR3(int3, int)
GPO_SIM_VECTOR3(float3, float)
GPO_SIM_VECTOR3(double3, double)

static inline uint3
make_uint3(unsigned a, unsigned b, unsigned c)
{
    return uint3{a, b, c};
}

#endif
