/*
 * cuda.cu  The table of convolve on CUDA: the ladder (ladder/), the shape kernel
 * (shapes/) and the choice.
 * See products.cuh for products and totals, op.c for the contract.
 */
#include "../../device/number.cuh"
#include "large_plan.cuh"
#include "ladder/v0_direct.cuh"
#include "ladder/v1_constant_filter.cuh"
#include "ladder/v2_register_window.cuh"
#include "ladder/v3_spectral_blocks.cuh"
#include "shapes/short_filters.cuh"

#include <stdio.h>

/* ---- table ---- */

/* Signed and unsigned integers wrap around alike. */
#define RUN(f)                                                                  \
    [](auto t) -> gpo_run {                                                     \
        using T = typename decltype(t)::type;                                   \
        return f<std::conditional_t<std::is_same_v<T, b8>, b8, carrier_of<T>>>; \
    }

/* Computed in float32; integers stay exact, and float64 has no such transform here. */
using spectral_types = gpo_types<f16, bf16, float>;

/* Transforms in the type of the result. */
using large_types = gpo_types<float, double, c64, c128>;

enum { V2 = 2, V3, SHORT_FILTERS, LONG_FILTERS, LARGE_TRANSFORMS };

static const gpo_variant variants[] = {
    gpo_row<every_type>("v0", "direct: a thread per sum", RUN(convolve_v0)),
    gpo_row<every_type>("v1", "filter in constant memory, signal in shared memory",
                        RUN(convolve_v1)),
    gpo_row<every_type>(
        "v2", "64 bytes of sums per thread, the signal slides past in registers",
        RUN(convolve_v2)),
    gpo_row<spectral_types>("v3", "products of spectra, blocks of a row side by side",
                            GPO_RUN(convolve_v3)),
    gpo_shape(gpo_row<every_type>("short_filters",
                                  "one round of loads, four sums per thread",
                                  RUN(convolve_short_filters)),
              "filters of at most 512 taps", has_short_filter),
    gpo_shape(gpo_row<spectral_types>("long_filters",
                                      "products of spectra, blocks of filter and row",
                                      GPO_RUN(convolve_long_filters)),
              "filters of 192 to 2^28 taps", has_spectra),
    gpo_shape(
        gpo_row<large_types>("large_transforms",
                             "products of spectra, transforms through memory",
                             GPO_RUN(convolve_large_transforms)),
        "filters of 512 taps to about 2^24 that pass the guard of a transform, whose "
        "spectra take at most twice the memory of operands and result and 4 MiB,",
        takes_large),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by times on an H200: benchmarks/results/h200-convolve.json ---- */

/* Microseconds for m products of each of `sums` sums of a row, at a rate per SM. */
static double
time_of_products(const gpo_call *call, const convolve_plan &p, int64_t sums,
                 double rate)
{
    const gpo_dtype dtype = call->out[0].dtype;
    const double of_type = dtype == GPO_F64    ? 0.5
                           : dtype == GPO_C64  ? 0.25
                           : dtype == GPO_C128 ? 0.125
                                               : 1.0;
    const double products = static_cast<double>(p.m) * static_cast<double>(sums) *
                            static_cast<double>(p.count_rows);
    return products / (of_type * rate * gpo_processors(call));
}

static bool
has_integers(const gpo_call *call)
{
    const char kind = gpo_dtypes[call->out[0].dtype].kind;
    return kind == 'i' || kind == 'u';
}

/*
 * Estimated microseconds of v2, which makes 24 T products of float32 a second, 8 T of
 * integers.
 */
static double
time_of_v2(const gpo_call *call, const convolve_plan &p)
{
    constexpr double BEGIN = 3.0, PRODUCTS = 0.18e6, OF_INTEGERS = 0.06e6;
    const int64_t sums = p.count < p.n ? p.count : p.n; /* that have all terms */
    const double rate = has_integers(call) ? OF_INTEGERS : PRODUCTS;
    return BEGIN + time_of_products(call, p, sums, rate);
}

/*
 * Those of short_filters, which begins sooner and has half the rate by the count of its
 * shared loads, which integers hardly notice; a block has no more than one row.
 */
static double
time_of_short_filters(const gpo_call *call, const convolve_plan &p)
{
    constexpr double BEGIN = 0.5, PRODUCTS = 0.1e6, OF_INTEGERS = 0.07e6;
    const int64_t sums = ceil_div(p.count, SHORT_SUMS) * SHORT_SUMS;
    const double rate = has_integers(call) ? OF_INTEGERS : PRODUCTS;
    return BEGIN + time_of_products(call, p, sums, rate);
}

/* The fastest variant by estimate. */
static int
fastest(const gpo_call *call, const convolve_plan &p)
{
    /*
     * What long_filters takes over its estimate on an H200, us: 105 over 52 for
     * 2^20 x 2^20, 58 over 25 for 1,420,431 x 32,768, 40 over 16 for 766,385 x 4,994.
     */
    constexpr double LONG_FILTERS_MORE = 2.3;
    const gpo_dtype dtype = call->out[0].dtype;
    int best = V2;
    double us = time_of_v2(call, p);
    const auto offer = [&](int variant, double microseconds) {
        if (microseconds < us) {
            best = variant;
            us = microseconds;
        }
    };
    if (has_short_filter(call)) {
        offer(SHORT_FILTERS, time_of_short_filters(call, p));
    }
    if (variants[V3].run[dtype] && has_spectra(call)) {
        if (is_one_block(call)) {
            offer(V3, plan_one_block(call).microseconds);
        }
        else {
            offer(LONG_FILTERS, LONG_FILTERS_MORE * plan_blocks(call).microseconds);
        }
    }
    if (variants[LARGE_TRANSFORMS].run[dtype]) {
        const large_plan plan = plan_large(call);
        if (plan.blocks > 0) {
            offer(LARGE_TRANSFORMS, plan.microseconds);
        }
    }
    return best;
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const convolve_plan &p = *convolve_plan_of(call);
    const int best = fastest(call, p);
    if (best == V2) {
        GPO_SAY(why, "the rung with the fewest loads per product");
        return &variants[V2];
    }
    if (best == SHORT_FILTERS) {
        GPO_SAY(why, "few products: short_filters begins sooner than v2");
        return &variants[SHORT_FILTERS];
    }
    GPO_SAY(why, "%s multiplies spectra: N log N for %lld results of %lld taps",
            variants[best].name, static_cast<long long>(p.count),
            static_cast<long long>(p.m));
    return &variants[best];
}

extern "C" const gpo_table convolve_cuda = {variants, choose};
