/*
 * scans.cuh  The four scans as structs, the template parameter of every rung.
 * Order: elements, totals, extremes, the choice at run time.
 *
 * A scan `op` of type Op has
 *   Raw    an element in a register: op.read(x, i) loads element i, op.read_pack(x, i,
 *          raw) adjacent elements; VEC results are 16 bytes of out; AS_READ: x consists
 *          of Raws
 *   Acc    the accumulator in a tile: Fold::identity(), op.lift(raw),
 *          Fold::combine(a, b)
 *   Part   what tiles exchange, wider than Acc for floats: widen(acc), narrow(part)
 *   Out    the element type of the result: op.finish(acc)
 *   first  what a row begins with, an Acc: the identity or the initial value
 */
#ifndef GPO_SCANS_CUH
#define GPO_SCANS_CUH

#include <type_traits>

#include "../../device/number.cuh"
#include "../../device/vec.cuh"
#include "../../device/warp.cuh"
#include "scan.h"

/* ---- elements ---- */

/* Loads N elements at once from an address aligned to N * sizeof(T) bytes. */
template <int N, typename T>
__device__ __forceinline__ void
load_together(const void *p, T (&v)[N])
{
    constexpr int BYTES = N * sizeof(T);
    static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4 || BYTES == 2, "one load");
    if constexpr (BYTES == 16) {
        const uint4 bits = load_streamed(static_cast<const uint4 *>(p));
        memcpy(static_cast<void *>(v), &bits, BYTES);
    }
    else if constexpr (BYTES == 8) {
        const uint2 bits = *static_cast<const uint2 *>(p);
        memcpy(static_cast<void *>(v), &bits, BYTES);
    }
    else {
        const unsigned_of<BYTES> bits = *static_cast<const unsigned_of<BYTES> *>(p);
        memcpy(static_cast<void *>(v), &bits, BYTES);
    }
}

/* Stores N elements at once, with a streaming store: they are not read soon.  More than
   16 bytes are several stores. */
template <int N, typename T>
__device__ __forceinline__ void
store_together(void *p, const T (&v)[N])
{
    constexpr int BYTES = N * sizeof(T);
    if constexpr (BYTES > 16) {
        uint4 bits[BYTES / 16];
        memcpy(static_cast<void *>(bits), static_cast<const void *>(v), BYTES);
#pragma unroll
        for (int i = 0; i < BYTES / 16; i++) {
            __stcs(static_cast<uint4 *>(p) + i, bits[i]);
        }
        return;
    }
    using Bits = std::conditional_t<
        BYTES == 16, uint4,
        std::conditional_t<BYTES == 8, uint2, unsigned_of<BYTES % 8>>>;
    Bits bits;
    memcpy(static_cast<void *>(&bits), static_cast<const void *>(v), BYTES);
    __stcs(static_cast<Bits *>(p), bits);
}

/* ---- sum, prod ---- */

template <typename A, bool PROD>
struct total_fold {
    static __host__ __device__ __forceinline__ A identity()
    {
        if constexpr (IS_COMPLEX<A>) {
            return {PROD ? decltype(A::re)(1) : 0, 0};
        }
        else {
            return PROD ? 1 : 0;
        }
    }

    static __device__ __forceinline__ A combine(A a, A b)
    {
        if constexpr (PROD) {
            return a * b;
        }
        else {
            return a + b;
        }
    }
};

/*
 * Floats, complex numbers and integers of 64 bits, which wrap; 16-bit floats are
 * combined in float.
 */
template <typename T, bool PROD>
struct scan_total {
    using Raw = T;
    using Acc = std::conditional_t<sizeof(T) == 2, float, T>;
    using Part = part_of<Acc>;
    using Out = T;
    using Fold = total_fold<Acc, PROD>;
    using PartFold = total_fold<Part, PROD>;
    static constexpr int VEC = 16 / sizeof(T);
    static constexpr bool AS_READ = true;

    Acc first;

    __host__ __device__ int bytes() const
    {
        return sizeof(T);
    }

    __device__ __forceinline__ Raw read(const void *x, int64_t i) const
    {
        return static_cast<const T *>(x)[i];
    }

    template <int N>
    __device__ __forceinline__ void read_pack(const void *x, int64_t i,
                                              Raw (&v)[N]) const
    {
        load_together(static_cast<const T *>(x) + i, v);
    }

    __device__ __forceinline__ Raw nothing() const
    {
        return stored_as<T>(Fold::identity());
    }

    static __device__ __forceinline__ Acc lift(Raw x)
    {
        return value_of(x);
    }

    static __host__ __device__ __forceinline__ Part widen(Acc a)
    {
        if constexpr (IS_COMPLEX<Acc>) {
            return {a.re, a.im};
        }
        else {
            return a;
        }
    }

    static __device__ __forceinline__ Acc narrow(Part p)
    {
        if constexpr (IS_COMPLEX<Acc>) {
            using R = decltype(Acc::re);
            return {static_cast<R>(p.re), static_cast<R>(p.im)};
        }
        else {
            return static_cast<Acc>(p);
        }
    }

    __device__ __forceinline__ Out finish(Acc a) const
    {
        return stored_as<T>(a);
    }
};

/* Shorter integers and bool, extended to 64 bits as they are read; sums wrap. */
template <bool PROD>
struct scan_whole {
    using Raw = uint64_t;
    using Acc = uint64_t;
    using Part = uint64_t;
    using Out = uint64_t;
    using Fold = total_fold<uint64_t, PROD>;
    using PartFold = Fold;
    static constexpr int VEC = 2;
    static constexpr bool AS_READ = false;

    uint64_t sign; /* the sign bit of a signed type, else 0 */
    int size;      /* bytes of an element: 1, 2 or 4 */
    bool truth;    /* bool: any byte but 0 is 1 */
    Acc first;

    __host__ __device__ int bytes() const
    {
        return size;
    }

    __device__ __forceinline__ Raw extended(uint64_t bits) const
    {
        return truth ? bits != 0 : (bits ^ sign) - sign;
    }

    __device__ __forceinline__ Raw read(const void *x, int64_t i) const
    {
        switch (size) {
            case 1:
                return extended(static_cast<const uint8_t *>(x)[i]);
            case 2:
                return extended(static_cast<const uint16_t *>(x)[i]);
            default:
                return extended(static_cast<const uint32_t *>(x)[i]);
        }
    }

    template <typename T>
    __device__ __forceinline__ void read_two(const void *x, int64_t i,
                                             Raw (&v)[2]) const
    {
        T two[2];
        load_together(static_cast<const T *>(x) + i, two);
        v[0] = extended(two[0]);
        v[1] = extended(two[1]);
    }

    __device__ __forceinline__ void read_pack(const void *x, int64_t i,
                                              Raw (&v)[VEC]) const
    {
        switch (size) {
            case 1:
                return read_two<uint8_t>(x, i, v);
            case 2:
                return read_two<uint16_t>(x, i, v);
            default:
                return read_two<uint32_t>(x, i, v);
        }
    }

    __device__ __forceinline__ Raw nothing() const
    {
        return Fold::identity();
    }

    static __device__ __forceinline__ Acc lift(Raw x)
    {
        return x;
    }

    static __host__ __device__ __forceinline__ Part widen(Acc a)
    {
        return a;
    }

    static __device__ __forceinline__ Acc narrow(Part p)
    {
        return p;
    }

    __device__ __forceinline__ Out finish(Acc a) const
    {
        return a;
    }
};

/*
 * The same sums of elements that stay as they are read, T of 1, 2 or 4 bytes, until they
 * are added: a pack has 16 bytes of x and two to eight times as many of out.
 */
template <typename T>
struct scan_widened {
    using Raw = T;
    using Acc = uint64_t;
    using Part = uint64_t;
    using Out = uint64_t;
    using Fold = total_fold<uint64_t, false>;
    using PartFold = Fold;
    static constexpr int VEC = 16 / sizeof(T);
    static constexpr bool AS_READ = true;

    uint64_t sign; /* as in scan_whole */
    bool truth;
    Acc first;

    __host__ __device__ int bytes() const
    {
        return sizeof(T);
    }

    __device__ __forceinline__ Raw read(const void *x, int64_t i) const
    {
        return static_cast<const T *>(x)[i];
    }

    __device__ __forceinline__ Raw nothing() const
    {
        return 0;
    }

    __device__ __forceinline__ Acc lift(Raw x) const
    {
        return truth ? x != 0 : (x ^ sign) - sign;
    }

    static __host__ __device__ __forceinline__ Part widen(Acc a)
    {
        return a;
    }

    static __device__ __forceinline__ Acc narrow(Part p)
    {
        return p;
    }

    __device__ __forceinline__ Out finish(Acc a) const
    {
        return a;
    }
};

/* ---- min, max: the largest key ---- */

template <typename Key>
struct extreme_fold {
    static __host__ __device__ __forceinline__ Key identity()
    {
        if constexpr (std::is_floating_point_v<Key>) {
            return -static_cast<Key>(INFINITY);
        }
        else {
            return sizeof(Key) == 8 ? static_cast<Key>(INT64_MIN)
                                    : static_cast<Key>(INT32_MIN);
        }
    }

    /* A nan beats every number. */
    static __device__ __forceinline__ Key combine(Key a, Key b)
    {
        if constexpr (std::is_floating_point_v<Key>) {
            return b > a || b != b ? b : a;
        }
        else {
            return b > a ? b : a;
        }
    }
};

/*
 * The extreme is the largest key.  Integers: bits ^ mask, shifted to the top of 32 or
 * 64 bits, read as signed; the mask reverses the order for a minimum and flips the top
 * bit of an unsigned type.  Floats: x * sign, with sign -1 for a minimum.
 */
template <typename T>
struct scan_extreme {
    using Raw = T;
    using Acc = std::conditional_t<
        std::is_same_v<T, double>, double,
        std::conditional_t<IS_FLOAT<T>, float,
                           std::conditional_t<sizeof(T) == 8, int64_t, int32_t>>>;
    using Part = Acc;
    using Out = T;
    using Fold = extreme_fold<Acc>;
    using PartFold = Fold;
    static constexpr int VEC = 16 / sizeof(T);
    static constexpr bool AS_READ = true;
    static constexpr int SHIFT = 8 * (sizeof(Acc) - sizeof(T));

    uint64_t mask;
    float sign;
    bool truth; /* bool: any byte but 0 is 1 */
    Acc first;

    __host__ __device__ int bytes() const
    {
        return sizeof(T);
    }

    __device__ __forceinline__ Raw read(const void *x, int64_t i) const
    {
        return static_cast<const T *>(x)[i];
    }

    template <int N>
    __device__ __forceinline__ void read_pack(const void *x, int64_t i,
                                              Raw (&v)[N]) const
    {
        load_together(static_cast<const T *>(x) + i, v);
    }

    __device__ __forceinline__ Raw nothing() const
    {
        return finish(Fold::identity());
    }

    __device__ __forceinline__ Acc lift(Raw x) const
    {
        if constexpr (IS_FLOAT<T>) {
            return value_of(x) * sign;
        }
        else {
            return key_of(truth ? static_cast<T>(x != 0) : x, mask);
        }
    }

    static __host__ __device__ __forceinline__ Acc key_of(T bits, uint64_t mask)
    {
        using Bits = std::make_unsigned_t<Acc>;
        return static_cast<Acc>(
            static_cast<Bits>(static_cast<T>(bits ^ static_cast<T>(mask))) << SHIFT);
    }

    static __host__ __device__ __forceinline__ Part widen(Acc a)
    {
        return a;
    }

    static __device__ __forceinline__ Acc narrow(Part p)
    {
        return p;
    }

    __device__ __forceinline__ Out finish(Acc a) const
    {
        if constexpr (IS_FLOAT<T>) {
            return stored_as<T>(a * sign);
        }
        else {
            using Bits = std::make_unsigned_t<Acc>;
            const T bits =
                static_cast<T>(static_cast<Bits>(a) >> SHIFT) ^ static_cast<T>(mask);
            return truth ? static_cast<T>(bits & 1) : bits;
        }
    }
};

/* ---- what a row begins with ---- */

template <typename Op>
typename Op::Acc
first_total(const gpo_initial &initial)
{
    using Acc = typename Op::Acc;
    if (!initial.given) {
        return Op::Fold::identity();
    }
    if constexpr (IS_COMPLEX<Acc>) {
        return {static_cast<decltype(Acc::re)>(initial.real), 0};
    }
    else if constexpr (std::is_floating_point_v<Acc>) {
        return static_cast<Acc>(initial.real);
    }
    else {
        return static_cast<Acc>(initial.whole);
    }
}

template <typename T>
typename scan_extreme<T>::Acc
first_extreme(const gpo_initial &initial, uint64_t mask, float sign)
{
    using Op = scan_extreme<T>;
    if (!initial.given) {
        return Op::Fold::identity();
    }
    if constexpr (IS_FLOAT<T>) {
        return static_cast<typename Op::Acc>(initial.real) * sign;
    }
    else {
        return Op::key_of(static_cast<T>(initial.whole), mask);
    }
}

/* ---- the choice at run time ---- */

template <typename Op, typename Rung, typename... Rest>
gpo_status
scan_total_with(gpo_call *call, Rest... rest)
{
    return Rung::run(call, Op{rest..., first_total<Op>(scan_plan_of(call)->initial)});
}

/*
 * Calls Rung::run(call, op) with the scan that the call's arguments and T select.  PARKED:
 * elements wait as they are read, also those of sums of short integers.
 */
template <typename Rung, typename T, bool PARKED = false>
gpo_status
scan_with(gpo_call *call)
{
    constexpr bool WHOLE = !IS_FLOAT<T> && !IS_COMPLEX<T>;
    constexpr bool WIDENED = WHOLE && sizeof(T) < 8;
    constexpr bool SIGNED = std::is_integral_v<T> && std::is_signed_v<T>;
    constexpr uint64_t TOP = static_cast<uint64_t>(1)
                             << (8 * (sizeof(T) < 8 ? sizeof(T) : 8) - 1);
    const bool truth = call->in[0].dtype == GPO_BOOL;
    const scan_plan &plan = *scan_plan_of(call);
    if (plan.rows == 0 || plan.cols == 0) {
        return GPO_OK;
    }
    if constexpr (WIDENED) {
        const uint64_t sign = SIGNED ? TOP : 0;
        const int size = sizeof(T);
        if (plan.op == SCAN_SUM) {
            if constexpr (PARKED) {
                using C = unsigned_of<sizeof(T)>;
                return scan_total_with<scan_widened<C>, Rung>(call, sign, truth);
            }
            else {
                return scan_total_with<scan_whole<false>, Rung>(call, sign, size,
                                                                truth);
            }
        }
        if (plan.op == SCAN_PROD) {
            return scan_total_with<scan_whole<true>, Rung>(call, sign, size, truth);
        }
    }
    else {
        using Total = std::conditional_t<WHOLE, uint64_t, T>;
        if (plan.op == SCAN_SUM) {
            return scan_total_with<scan_total<Total, false>, Rung>(call);
        }
        if (plan.op == SCAN_PROD) {
            return scan_total_with<scan_total<Total, true>, Rung>(call);
        }
    }
    if constexpr (!IS_COMPLEX<T>) {
        using C = std::conditional_t<WHOLE, unsigned_of<sizeof(T)>, T>;
        const uint64_t mask = SIGNED ? 0 : TOP;
        const bool least = plan.op == SCAN_MIN;
        const uint64_t key_mask = least ? ~mask : mask;
        const float sign = least ? -1.0f : 1;
        return Rung::run(
            call, scan_extreme<C>{key_mask, sign, truth,
                                  first_extreme<C>(plan.initial, key_mask, sign)});
    }
    return gpo_fail(&call->error, GPO_ETYPE, "scan() has no kernel for this dtype");
}

#endif
