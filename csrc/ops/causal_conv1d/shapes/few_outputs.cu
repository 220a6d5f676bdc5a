/*
 * few_outputs.cu  Small calls and filters of at most 8 lags, any layout.  A launch of
 * some microseconds waits for its code, then for its loads: so there is little code, no
 * division, no branch before the store but that of SiLU, and a thread has all of its loads
 * under way at once: taps, bias and steps of one output.  A lag that the output does not
 * have loads the first again, and is not added.
 * Cost:  a load for each product, from L1 for all but the first.
 */
#include "short_filters.cuh"

constexpr int FEW_WARPS =
    4; /* of a block, each with 32 outputs of a row of their own */

struct few_strides {
    int b, c, t;
};

template <typename T>
struct few_view {
    const T *x, *w, *bias; /* bias: any address where there is none */
    T *out;
    few_strides x_by, out_by; /* all offsets of a call fit into 32 bits */
    int w_c, w_s, bias_c, lags;
    int inner, outer; /* steps of channels, or channels of steps */
    bool by_channels, has_bias, has_silu;
    float eps;
};

template <typename T, int LAGS>
__global__ void
__launch_bounds__(FEW_WARPS *WARP) causal_conv1d_few_outputs(few_view<T> v)
{
    const int tid = static_cast<int>(threadIdx.x);
    const int b = static_cast<int>(blockIdx.z);
    const int i = static_cast<int>(blockIdx.x) * WARP + tid % WARP;
    const int j = static_cast<int>(blockIdx.y) * FEW_WARPS + tid / WARP;
    if (i >= v.inner || j >= v.outer) {
        return;
    }
    const int c = v.by_channels ? i : j, t = v.by_channels ? j : i;
    const int terms = t + 1 < v.lags ? t + 1 : v.lags;
    const int from = b * v.x_by.b + c * v.x_by.c + t * v.x_by.t, tap = c * v.w_c;
    T x[LAGS], w[LAGS];
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        const int there = s < terms ? s : 0;
        x[s] = v.x[from - there * v.x_by.t];
        w[s] = v.w[tap + there * v.w_s];
    }
    const float bias = value_of(v.bias[c * v.bias_c]);
    float sum = v.has_bias ? v.eps + bias : v.eps;
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        if (s < terms) {
            sum += value_of(w[s]) * value_of(x[s]);
        }
    }
    if (v.has_silu) {
        sum = silu<T>(sum);
    }
    v.out[b * v.out_by.b + c * v.out_by.c + t * v.out_by.t] = stored_as<T>(sum);
}

/* ---- the launch ---- */

template <typename T>
static few_strides
few_strides_of(const row_view<T> &rows)
{
    return {static_cast<int>(rows.b), static_cast<int>(rows.c),
            static_cast<int>(rows.t)};
}

template <typename T>
gpo_status
conv_few_outputs(gpo_call *call, const conv_view<T> &v)
{
    const bool by_steps = v.x.t == 1 && v.out.t == 1;
    few_view<T> few = {};
    few.x = v.x.p;
    few.w = v.w;
    few.has_bias = v.bias != nullptr;
    few.bias = few.has_bias ? v.bias : v.w;
    few.out = v.out.p;
    few.x_by = few_strides_of(v.x);
    few.out_by = few_strides_of(v.out);
    few.w_c = static_cast<int>(v.w_c);
    few.w_s = static_cast<int>(v.w_s);
    few.bias_c = few.has_bias ? static_cast<int>(v.bias_c) : 0;
    few.lags = static_cast<int>(v.lags);
    few.by_channels = !by_steps && (v.x.c == 1 || v.out.c == 1) && v.channels > 1;
    few.inner = static_cast<int>(few.by_channels ? v.channels : v.steps);
    few.outer = static_cast<int>(few.by_channels ? v.steps : v.channels);
    few.has_silu = v.finish == FINISH_SILU;
    few.eps = static_cast<float>(v.eps);
    const dim3 grid(ceil_div(few.inner, WARP), ceil_div(few.outer, FEW_WARPS),
                    static_cast<unsigned>(v.batches));
#define WITH(LAGS)                                                                   \
    GPO_LAUNCH(call, grid, FEW_WARPS *WARP, 0, (causal_conv1d_few_outputs<T, LAGS>), \
               few)
    static_assert(FEW_OUTPUT_LAGS == 8);
    return v.lags <= 4 ? WITH(4) : WITH(8);
#undef WITH
}

GPO_EVERY_FLOAT32(GPO_CONV_OF, conv_few_outputs)
