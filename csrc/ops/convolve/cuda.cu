/*
 * cuda.cu  The table of convolve on CUDA: the ladder (ladder/), the shape kernel
 * (shapes/) and the choice.
 * See products.cuh for products and totals, op.c for the contract.
 */
#include "../../device/number.cuh"
#include "ladder/v0_direct.cuh"
#include "ladder/v1_constant_filter.cuh"
#include "ladder/v2_register_window.cuh"
#include "ladder/v3_spectral_blocks.cuh"

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

enum { V2 = 2, V3, LONG_FILTERS };

static const gpo_variant variants[] = {
    gpo_row<every_type>("v0", "direct: a thread per sum", RUN(convolve_v0)),
    gpo_row<every_type>("v1", "filter in constant memory, signal in shared memory",
                        RUN(convolve_v1)),
    gpo_row<every_type>(
        "v2", "64 bytes of sums per thread, the signal slides past in registers",
        RUN(convolve_v2)),
    gpo_row<spectral_types>("v3", "products of spectra, blocks of a row side by side",
                            GPO_RUN(convolve_v3)),
    gpo_shape(gpo_row<spectral_types>("long_filters",
                                      "products of spectra, blocks of filter and row",
                                      GPO_RUN(convolve_long_filters)),
              "filters of 192 to 2^28 taps", has_spectra),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by times on an H200: benchmarks/results/h200-convolve.json ---- */

/* Whether spectra are faster than v2, which makes 24 T products/s on an H200. */
static bool
wants_spectra(const gpo_call *call, const convolve_plan &p)
{
    /* Microseconds before the first product; products per SM and microsecond. */
    constexpr double BEGIN = 3.0, PRODUCTS = 0.18e6;
    if (!variants[V3].run[call->out[0].dtype] || !has_spectra(call)) {
        return false;
    }
    const double taps = static_cast<double>(p.m);
    const int64_t sums = p.count < p.n ? p.count : p.n; /* that have all terms */
    const double products =
        taps * static_cast<double>(sums) * static_cast<double>(p.count_rows);
    const double rate = PRODUCTS * gpo_processors(call);
    const spectral_plan plan =
        is_one_block(call) ? plan_one_block(call) : plan_blocks(call);
    return plan.microseconds < BEGIN + products / rate;
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const convolve_plan &p = *convolve_plan_of(call);
    if (!wants_spectra(call, p)) {
        GPO_SAY(why, "the rung with the fewest loads per product");
        return &variants[V2];
    }
    const bool one_block = is_one_block(call);
    GPO_SAY(why, "%s multiplies spectra: N log N for %lld results of %lld taps",
            one_block ? "v3" : "long_filters", static_cast<long long>(p.count),
            static_cast<long long>(p.m));
    return &variants[one_block ? V3 : LONG_FILTERS];
}

extern "C" const gpo_table convolve_cuda = {variants, choose};
