/*
 * column_packs.cuh  Packs of neighbouring columns, each column a scan of its own: how
 * the shape kernels for columns load and store them.
 */
#ifndef GPO_SCAN_COLUMN_PACKS_CUH
#define GPO_SCAN_COLUMN_PACKS_CUH

#include "prepare.cuh"

/* Columns per thread; small types take 4, not 16 bytes: each column costs registers. */
template <typename Op>
constexpr int column_pack = Op::VEC < 4 ? Op::VEC : 4;

/* Columns `column` to `column + VEC - 1` of the row that begins at x[row]. */
template <int VEC, typename Op>
__device__ __forceinline__ void
load_columns(const Op &op, const scan_view<typename Op::Out> &a, int64_t row,
             int64_t column, int64_t width, bool whole, typename Op::Raw (&raw)[VEC])
{
    if constexpr (VEC == 1) {
        raw[0] = column < width ? op.read(a.x, row + column) : op.nothing();
    }
    else if (whole) {
        op.read_pack(a.x, row + column, raw);
    }
    else {
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            raw[v] = column + v < width ? op.read(a.x, row + column + v) : op.nothing();
        }
    }
}

template <int VEC, typename Out>
__device__ __forceinline__ void
store_columns(Out *row, int64_t column, int64_t width, bool whole,
              const Out (&result)[VEC])
{
    if (VEC > 1 && whole) {
        store_together(row + column, result);
    }
    else {
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            if (column + v < width) {
                row[column + v] = result[v];
            }
        }
    }
}

/* Whether packs of `vec` columns are aligned in x and out. */
template <typename Out>
bool
are_packed(const scan_view<Out> &a, int vec, int bytes)
{
    bool packed = reinterpret_cast<uintptr_t>(a.x) % (vec * bytes) == 0 &&
                  reinterpret_cast<uintptr_t>(a.out) % (vec * sizeof(Out)) == 0 &&
                  a.stride % vec == 0 && a.step % vec == 0;
    for (int d = 0; d < a.ndim - 1; d++) {
        packed = packed && a.x_strides[d] % vec == 0 && a.out_strides[d] % vec == 0;
    }
    return packed;
}

/* Whether neighbouring columns of x are neighbours in memory. */
inline bool
has_columns_in_order(const gpo_call *call)
{
    const scan_plan &plan = *scan_plan_of(call);
    return plan.inner_ndim == 1 && plan.kept.strides[plan.kept.ndim - 1] == 1;
}

#endif
