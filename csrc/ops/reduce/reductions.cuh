/*
 * reductions.cuh  The nine reductions as structs, the template parameter of every rung.
 * Order: results, accumulators, folds, the structs, the choice at run time.
 *
 * A reduction `op` of type Op has
 *   T      the element type in memory; integers of one size share kernels, as unsigned
 *          integers, and a mask in `op` says how to read the bits
 *   Acc    the accumulator in a block: identity(), op.lift(x, k) of element k,
 *          combine(a, b)
 *   Part   what blocks exchange, wider than Acc for floats: widen(acc), combine(a, b)
 *   Fold   a long chain of Parts with a bounded error: add(part), value()
 *   op.store(result, row, part, cols)
 */
#ifndef GPO_REDUCTIONS_CUH
#define GPO_REDUCTIONS_CUH

#include <type_traits>

#include "../../device/sum.cuh"
#include "../../device/number.cuh"
#include "../../device/block.cuh"
#include "../../device/vec.cuh"
#include "reduce.h"

/*
 * Where results are stored: an array of `dtype`.  Before the store a mean is divided, and
 * a given initial value is combined with the result.
 */
struct reduce_result {
    void *out;
    gpo_dtype dtype;
    bool mean;
    gpo_initial initial;
};

template <typename V>
__device__ __forceinline__ void
put(const reduce_result &to, int64_t row, V value)
{
    static_cast<V *>(to.out)[row] = value;
}

/* ---- accumulators ---- */

/* Integers wrap modulo 2^64, as in NumPy; halves are added in float. */
template <typename T>
using acc_of = std::conditional_t<IS_COMPLEX<T> || std::is_same_v<T, double>, T,
                                  std::conditional_t<IS_FLOAT<T>, float, uint64_t>>;

template <typename A>
__device__ __forceinline__ part_of<A>
widened(A a)
{
    if constexpr (IS_COMPLEX<A>) {
        return {a.re, a.im};
    }
    else {
        return a;
    }
}

template <typename A>
__device__ __forceinline__ A
one()
{
    if constexpr (IS_COMPLEX<A>) {
        return {1, 0};
    }
    else {
        return 1;
    }
}

/* ---- folds ---- */

template <typename Op, typename Part>
struct plain_fold {
    Part total = Op::template neutral<Part>();

    __device__ __forceinline__ void add(Part p)
    {
        total = Op::combine(total, p);
    }

    __device__ __forceinline__ Part value() const
    {
        return total;
    }
};

/* ---- sum, mean, prod ---- */

template <typename Element, typename A, bool PROD>
struct reduce_total {
    using T = Element;
    using Acc = A;
    using Part = part_of<A>;
    using Fold =
        std::conditional_t<!PROD && std::is_same_v<A, double>, compensated_sum<double>,
                           plain_fold<reduce_total, Part>>;

    uint64_t sign; /* integers: the sign bit of a signed type, else 0 */

    template <typename V>
    static __device__ __forceinline__ V neutral()
    {
        if constexpr (PROD) {
            return one<V>();
        }
        else {
            return V{};
        }
    }

    static __device__ __forceinline__ Acc identity()
    {
        return neutral<Acc>();
    }

    __device__ __forceinline__ Acc lift(T x, int64_t) const
    {
        if constexpr (IS_FLOAT<T> || IS_COMPLEX<T>) {
            return value_of(x);
        }
        else {
            const uint64_t whole = (x ^ sign) - sign; /* extends the sign */
            if constexpr (std::is_same_v<A, double>) {
                return sign ? static_cast<double>(static_cast<int64_t>(whole))
                            : static_cast<double>(whole);
            }
            else {
                return whole;
            }
        }
    }

    static __device__ __forceinline__ Part widen(Acc a)
    {
        return widened(a);
    }

    template <typename V>
    static __device__ __forceinline__ V combine(V a, V b)
    {
        if constexpr (PROD) {
            return a * b;
        }
        else {
            return a + b;
        }
    }

    __device__ void store(const reduce_result &to, int64_t row, Part p,
                          int64_t cols) const
    {
        if (to.initial.given) {
            p = combine(p, initial_part(to.initial));
        }
        if constexpr (std::is_same_v<Part, uint64_t>) {
            store_whole(to, row, p);
        }
        else if constexpr (IS_COMPLEX<Part>) {
            using R = decltype(T::re);
            if (to.mean) {
                p = {p.re / cols, p.im / cols};
            }
            put<T>(to, row, {static_cast<R>(p.re), static_cast<R>(p.im)});
        }
        else {
            p = to.mean ? p / cols : p;
            if constexpr (std::is_same_v<Acc, float>) {
                put(to, row, stored_as<T>(static_cast<float>(p)));
            }
            else {
                put(to, row, p);
            }
        }
    }

  private:
    static __device__ __forceinline__ Part initial_part(const gpo_initial &initial)
    {
        if constexpr (std::is_same_v<Part, uint64_t>) {
            return static_cast<uint64_t>(initial.whole);
        }
        else if constexpr (IS_COMPLEX<Part>) {
            return {initial.real, 0};
        }
        else {
            return initial.real;
        }
    }

    /* An integer total wraps to the width of the result; a bool is total != 0. */
    static __device__ void store_whole(const reduce_result &to, int64_t row, uint64_t p)
    {
        switch (to.dtype) {
            case GPO_BOOL:
                return put<uint8_t>(to, row, p != 0);
            case GPO_I8:
            case GPO_U8:
                return put(to, row, static_cast<uint8_t>(p));
            case GPO_I16:
            case GPO_U16:
                return put(to, row, static_cast<uint16_t>(p));
            case GPO_I32:
            case GPO_U32:
                return put(to, row, static_cast<uint32_t>(p));
            default:
                return put(to, row, p);
        }
    }
};

/* ---- min, max, argmin, argmax: the largest key ---- */

/*
 * An element as a key, so that the extreme is the largest key.  Integers: x ^ mask,
 * read as signed; the mask reverses the order for a minimum and flips the top bit of an
 * unsigned type.  Floats: x * sign, with sign -1 for a minimum.
 */
template <typename Element>
struct key_of {
    using T = Element;
    using Key = std::conditional_t<
        std::is_same_v<T, double>, double,
        std::conditional_t<IS_FLOAT<T>, float,
                           std::conditional_t<sizeof(T) == 8, int64_t, int32_t>>>;
    uint64_t mask;
    float sign;

    __device__ __forceinline__ Key from(T x) const
    {
        if constexpr (IS_FLOAT<T>) {
            return value_of(x) * sign;
        }
        else {
            return static_cast<std::make_signed_t<T>>(x ^ static_cast<T>(mask));
        }
    }

    __device__ __forceinline__ T back(Key key) const
    {
        if constexpr (IS_FLOAT<T>) {
            return stored_as<T>(key * sign);
        }
        else {
            return static_cast<T>(key) ^ static_cast<T>(mask);
        }
    }
};

/* The lowest key: no other is below it. */
template <typename Key>
__device__ __forceinline__ Key
lowest()
{
    if constexpr (std::is_same_v<Key, float> || std::is_same_v<Key, double>) {
        return -static_cast<Key>(INFINITY);
    }
    else if constexpr (sizeof(Key) == 8) {
        return INT64_MIN;
    }
    else {
        return INT32_MIN;
    }
}

/* Whether a beats b; a nan beats every number but no nan. */
template <typename Key>
__device__ __forceinline__ bool
beats(Key a, Key b)
{
    if constexpr (std::is_same_v<Key, float> || std::is_same_v<Key, double>) {
        return a > b || (a != a && b == b);
    }
    else {
        return a > b;
    }
}

template <typename Element>
struct reduce_extreme {
    using T = Element;
    using Acc = typename key_of<T>::Key;
    using Part = Acc;
    using Fold = plain_fold<reduce_extreme, Part>;

    key_of<T> key;

    template <typename V>
    static __device__ __forceinline__ V neutral()
    {
        return lowest<V>();
    }

    static __device__ __forceinline__ Acc identity()
    {
        return neutral<Acc>();
    }

    __device__ __forceinline__ Acc lift(T x, int64_t) const
    {
        return key.from(x);
    }

    static __device__ __forceinline__ Part widen(Acc a)
    {
        return a;
    }

    static __device__ __forceinline__ Acc combine(Acc a, Acc b)
    {
        return beats(b, a) ? b : a;
    }

    __device__ void store(const reduce_result &to, int64_t row, Part p, int64_t) const
    {
        if (to.initial.given) {
            p = combine(p, initial_part(to.initial));
        }
        put(to, row, key.back(p));
    }

  private:
    __device__ __forceinline__ Part initial_part(const gpo_initial &initial) const
    {
        if constexpr (IS_FLOAT<T>) {
            return static_cast<Part>(initial.real) * static_cast<Part>(key.sign);
        }
        else {
            return key.from(static_cast<T>(initial.whole));
        }
    }
};

template <typename Key>
struct candidate {
    Key key;
    int64_t index;
};

template <typename Element>
struct reduce_arg {
    using T = Element;
    using Key = typename key_of<T>::Key;
    using Acc = candidate<Key>;
    using Part = Acc;
    using Fold = plain_fold<reduce_arg, Part>;

    key_of<T> key;

    template <typename A>
    static __device__ __forceinline__ A neutral()
    {
        return {lowest<Key>(), INT64_MAX};
    }

    static __device__ __forceinline__ Acc identity()
    {
        return neutral<Acc>();
    }

    __device__ __forceinline__ Acc lift(T x, int64_t k) const
    {
        return {key.from(x), k};
    }

    static __device__ __forceinline__ Part widen(Acc a)
    {
        return a;
    }

    static __device__ __forceinline__ Acc combine(Acc a, Acc b)
    {
        const bool tie = !beats(a.key, b.key) && b.index < a.index;
        return beats(b.key, a.key) || tie ? b : a;
    }

    __device__ void store(const reduce_result &to, int64_t row, Part p, int64_t) const
    {
        put(to, row, p.index);
    }
};

/* ---- any, all: all(x) is not any(x == 0) ---- */

template <typename Element>
struct reduce_any {
    using T = Element; /* an unsigned integer */
    using Acc = unsigned;
    using Part = unsigned;
    using Fold = plain_fold<reduce_any, Part>;

    uint64_t mask; /* bits that make an element true; not the sign bit of a float */
    bool all;

    template <typename V>
    static __device__ __forceinline__ V neutral()
    {
        return 0;
    }

    static __device__ __forceinline__ Acc identity()
    {
        return 0;
    }

    __device__ __forceinline__ Acc lift(T x, int64_t) const
    {
        return ((x & mask) != 0) != all;
    }

    /* lift of the four elements of one byte each in a word: bytes that are not 0 for 1. */
    __device__ __forceinline__ uint32_t lift_bytes(uint32_t word) const
    {
        constexpr uint32_t LOW = 0x7f7f7f7f; /* of each byte all bits but the first */
        const uint32_t x = word & static_cast<uint32_t>(mask & 0xff) * 0x01010101u;
        return all ? ~(((x & LOW) + LOW) | x | LOW) : x;
    }

    static __device__ __forceinline__ Part widen(Acc a)
    {
        return a;
    }

    static __device__ __forceinline__ Acc combine(Acc a, Acc b)
    {
        return a | b;
    }

    __device__ void store(const reduce_result &to, int64_t row, Part p, int64_t) const
    {
        put<uint8_t>(to, row, (p != 0) != all);
    }
};

/* ---- the choice at run time ---- */

/*
 * Calls Rung::run(call, op) with the reduction that the call's arguments and T select.
 * The shape rule has already rejected what T does not support.
 */
template <typename Rung, typename T>
gpo_status
reduce_with(gpo_call *call)
{
    using C = carrier_of<T>;
    using Mean =
        std::conditional_t<std::is_same_v<acc_of<T>, uint64_t>, double, acc_of<T>>;
    constexpr bool SIGNED = std::is_integral_v<T> && std::is_signed_v<T>;
    constexpr uint64_t TOP = static_cast<uint64_t>(1)
                             << (8 * (sizeof(T) < 8 ? sizeof(T) : 8) - 1);
    constexpr uint64_t SIGN = SIGNED ? TOP : 0;
    const reduce_op op = reduce_plan_of(call)->op;
    switch (op) {
        case REDUCE_SUM:
            return Rung::run(call, reduce_total<C, acc_of<T>, false>{SIGN});
        case REDUCE_PROD:
            return Rung::run(call, reduce_total<C, acc_of<T>, true>{SIGN});
        case REDUCE_MEAN:
            return Rung::run(call, reduce_total<C, Mean, false>{SIGN});
        default:
            break;
    }
    if constexpr (!IS_COMPLEX<T>) {
        const uint64_t max_mask = SIGNED ? 0 : TOP;
        const key_of<C> max_key = {max_mask, 1}, min_key = {~max_mask, -1};
        const uint64_t truth = IS_FLOAT<T> ? ~TOP : ~static_cast<uint64_t>(0);
        using B = unsigned_of<sizeof(T)>;
        switch (op) {
            case REDUCE_MIN:
                return Rung::run(call, reduce_extreme<C>{min_key});
            case REDUCE_MAX:
                return Rung::run(call, reduce_extreme<C>{max_key});
            case REDUCE_ARGMIN:
                return Rung::run(call, reduce_arg<C>{min_key});
            case REDUCE_ARGMAX:
                return Rung::run(call, reduce_arg<C>{max_key});
            case REDUCE_ANY:
                return Rung::run(call, reduce_any<B>{truth, false});
            case REDUCE_ALL:
                return Rung::run(call, reduce_any<B>{truth, true});
            default:
                break;
        }
    }
    return gpo_fail(&call->error, GPO_ETYPE, "reduce() has no kernel for this dtype");
}

#endif
