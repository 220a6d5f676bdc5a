/*
 * short_rows.cuh  Which calls shapes/short_rows.cu takes: rows beside each other that
 * 16-byte loads of lanes of their own would not fill.  For the table, its choice and
 * the kernels' launchers.
 */
#ifndef GPO_MEAN_MATVEC_SHORT_ROWS_CUH
#define GPO_MEAN_MATVEC_SHORT_ROWS_CUH

#include "costs.cuh"
#include "walk.cuh"

/* x is one stretch of rows of 1 to SHORT_COLS elements, fewer than 2^30 of them. */
inline bool
takes_short_rows(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const double all = static_cast<double>(p.batches) * static_cast<double>(p.rows);
    return p.cols >= 1 && p.cols <= SHORT_COLS && (p.x_col == 1 || p.cols == 1) &&
           (p.x_row == p.cols || p.rows <= 1) &&
           (p.x_batch == p.rows * p.cols || p.batches <= 1) && all < 1 << 30;
}

/* The share of the loads of lanes that share a row, those of v4's stream, that it uses. */
inline double
used_loads(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const int64_t packs =
        ceil_div(p.cols * gpo_dtypes[call->in[0].dtype].bytes, int64_t{16});
    const row_lanes row = lanes_of(packs);
    return static_cast<double>(packs) /
           static_cast<double>(row.chunks * row.lanes << row.shift);
}

/* Whether rows are whole packs. */
inline bool
has_even_rows(const gpo_call *call)
{
    const int64_t bytes =
        mean_matvec_plan_of(call)->cols * gpo_dtypes[call->in[0].dtype].bytes;
    return bytes % 16 == 0 && reinterpret_cast<uintptr_t>(call->in[0].data) % 16 == 0;
}

/* Whether a group of lanes has a row at once, and loads its ends beside its packs. */
inline bool
has_long_rows(const gpo_call *call)
{
    const int64_t bytes =
        mean_matvec_plan_of(call)->cols * gpo_dtypes[call->in[0].dtype].bytes;
    return ceil_div(bytes, int64_t{16}) > FEWEST_LANES * SLOTS / 2;
}

/*
 * Those that are no whole packs and not long, or leave many of a group's loads unused.
 * N512 L64 M177, 534 outputs, float32 took v4 4.5 us of 28 less than short_rows, and N1024
 * L136 M103, 1024 outputs, float64 3 of 67; N3000 L116 M26 in float32 6 of 34 more.
 */
inline bool
has_uneven_rows(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const bool is_full = p.cols > 0 && used_loads(call) >= LEAST_USED;
    return takes_short_rows(call) &&
           (!is_full || !(has_even_rows(call) || has_long_rows(call)));
}

/* Which kernel finds the means, for all variants but v0 to v5. */
enum mean_rows {
    LANES_SHARE,  /* a group of lanes has a row, or several, in packs: v4's stream */
    IN_STRETCHES, /* uneven rows, copied whole (short_rows) */
    BY_ELEMENTS /* of float64 that are no whole packs: by a warp, element by element */
};

inline mean_rows
rows_of(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    return gpo_dtypes[call->in[0].dtype].bytes == 8 && p.cols >= WIDE_COLS &&
                   takes_short_rows(call) && !has_even_rows(call)
               ? BY_ELEMENTS
           : has_uneven_rows(call) ? IN_STRETCHES
                                   : LANES_SHARE;
}

/* Bytes of the matrix in rows of whole packs. */
inline double
padded_bytes(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const int size = gpo_dtypes[call->in[0].dtype].bytes;
    const int64_t pitch = ceil_div(p.rows * size, int64_t{16}) * 16;
    return static_cast<double>(p.outputs) * static_cast<double>(pitch);
}

/*
 * Its copy in us, and what the means take longer that short_rows finds together with it,
 * where v4's stream would find them.
 */
inline double
padding_us(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const double x = static_cast<double>(p.batches) * static_cast<double>(p.rows) *
                     static_cast<double>(p.cols) * gpo_dtypes[call->in[0].dtype].bytes /
                     MEMORY_BYTES_PER_US;
    return 2 * padded_bytes(call) / (L2_BYTES_PER_US * gpo_processors(call)) +
           (rows_of(call) == IN_STRETCHES ? 0 : SHORT_SLOWER * x);
}

/* The product, and whether its factors are padded; us with their copy. */
struct factors_plan {
    bool pads;
    product_plan product;
    double us;
};

/*
 * Copies the matrix, together with finding the means, so that rows of both are whole
 * packs, if that pays: by the time of the copy and that of the product.
 */
inline factors_plan
plan_factors(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const int size = gpo_dtypes[call->in[0].dtype].bytes;
    const bool is_wide = p.matrix_row == 1 && p.matrix_output * size % 16 == 0 &&
                         p.rows * size % 16 == 0 &&
                         reinterpret_cast<uintptr_t>(call->in[1].data) % 16 == 0;
    const product_plan plain = plan_product(size_of_product(call, false));
    if (!is_wide && padded_bytes(call) <= PADDED_BYTES && takes_short_rows(call) &&
        rows_of(call) != BY_ELEMENTS) {
        const product_plan padded = plan_product(size_of_product(call, true));
        const double us = padded.us + padding_us(call);
        if (us < plain.us) {
            return {true, padded, us};
        }
    }
    return {false, plain, plain.us};
}

/* The means of a call that takes_short_rows(); row n of them starts at n * v.rows. */
template <typename T>
gpo_status mean_matvec_short_means(gpo_call *call, const mean_matvec_view<T> &v);

/* The same, of factors padded to whole packs; changes *v to those. */
template <typename T>
gpo_status mean_matvec_pad_factors(gpo_call *call, mean_matvec_view<T> *v);

template <typename T>
gpo_status mean_matvec_short_rows(gpo_call *call);

#endif
