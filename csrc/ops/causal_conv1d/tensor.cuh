/*
 * tensor.cuh  Code shared by the two kernels of v6: the type of the products,
 * contiguous rows, and the check of sizes.
 * See toeplitz.cuh for the Toeplitz product, ladder/v6_* for the kernels.
 */
#ifndef GPO_CAUSAL_CONV1D_TENSOR_CUH
#define GPO_CAUSAL_CONV1D_TENSOR_CUH

#include "limits.cuh"
#include "staging.cuh"

/* The 16-bit type of the factors. */
template <typename T>
struct tensor_half {
    using type = T;
};
template <>
struct tensor_half<float> {
    using type = f16;
};

/*
 * The convolution of conv_view or, `reversed`, its mirror in time, which gives dx:
 * out[b,c,t] = sum of w[c,s] x[b,c,t+s] over lags s < T - t.
 */
template <typename T>
struct tensor_conv : conv_view<T> {
    bool reversed;
};

/* The view, with the first step first. */
template <typename T>
tensor_conv<T>
tensor_conv_of(const conv_view<T> &view)
{
    tensor_conv<T> p = {view, view.out.t < 0};
    if (p.reversed) {
        const int64_t last = p.steps - 1;
        p.x = {p.x.p + last * p.x.t, p.x.b, p.x.c, -p.x.t};
        p.out = {p.out.p + last * p.out.t, p.out.b, p.out.c, -p.out.t};
    }
    return p;
}

/* Whether rows begin and end at multiples of 16 bytes. */
template <typename T>
bool
is_wide(const row_view<T> &rows, int64_t steps)
{
    return rows.t == 1 && packs_are_even(rows, steps);
}

/* Whether the array is (B, T, C) without gaps. */
template <typename T>
bool
is_btc(const row_view<T> &rows, int64_t channels, int64_t steps)
{
    return rows.c == 1 && rows.t == channels && rows.b == channels * steps &&
           channels > 1 && steps > 1;
}

template <typename View>
gpo_status
tensor_check(gpo_call *call, const View &v)
{
    if (tensor_counts(v.batches, v.channels, v.steps)) {
        return GPO_OK;
    }
    return gpo_fail(&call->error, GPO_EVARIANT,
                    "%s(): v6 takes fewer than 2**30 steps, batches and tiles of 8 "
                    "batches x 256 steps; v5 takes any number",
                    call->op->name);
}

/* The rows, or if they are (B, T, C) a transposed copy with contiguous rows. */
template <typename T>
gpo_status
tensor_rows(gpo_call *call, int64_t batches, int64_t channels, int64_t steps,
            row_view<const T> *rows)
{
    if (batches == 0 || !is_btc(*rows, channels, steps)) {
        return GPO_OK;
    }
    void *memory;
    gpo_status status =
        gpo_scratch(call, batches * channels * steps * sizeof(T), &memory);
    if (!status) {
        T *const turned = static_cast<T *>(memory);
        status = swap_axes(call, rows->p, turned, batches, steps, channels);
        *rows = {turned, channels * steps, steps, 1};
    }
    return status;
}

/* Where results go: `out`, or if that is (B, T, C) workspace, transposed later. */
template <typename T>
gpo_status
tensor_results(gpo_call *call, int64_t batches, int64_t channels, int64_t steps,
               row_view<T> *out)
{
    if (!is_btc(*out, channels, steps)) {
        return GPO_OK;
    }
    void *memory = nullptr;
    const gpo_status status =
        gpo_scratch(call, batches * channels * steps * sizeof(T), &memory);
    *out = {static_cast<T *>(memory), channels * steps, steps, 1};
    return status;
}

/*
 * Runs launch(call, p) for the forward pass, or for dx, whose rows have their last step
 * first.  The values of a row must be contiguous, so a (B, T, C) array is transposed
 * into a workspace of its size; arrays of other strides are left as they are.
 */
template <typename T, typename Launch>
gpo_status
with_tensor_rows(gpo_call *call, const conv_view<T> &view, Launch launch)
{
    tensor_conv<T> p = tensor_conv_of(view);
    gpo_status status = tensor_check(call, view);
    status = status ? status : tensor_rows(call, p.batches, p.channels, p.steps, &p.x);
    const row_view<T> out = p.out;
    status =
        status ? status : tensor_results(call, p.batches, p.channels, p.steps, &p.out);
    status = status ? status : launch(call, p);
    if (!status && p.out.p != out.p) {
        const T *const turned = p.out.p;
        status = swap_axes(call, turned, out.p, p.batches, p.channels, p.steps);
    }
    return status;
}

#endif
