/*
 * totals.cuh  The second kernel of v0 to v2: turns the totals of tiles into their
 * prefixes.
 */
#ifndef GPO_SCAN_TOTALS_CUH
#define GPO_SCAN_TOTALS_CUH

#include "views.cuh"

/* One block per row, which begins with `carry`; part[r * tiles + t] is tile t of row r. */
template <typename Fold, typename Part>
__global__ void
scan_totals(Part *part, int64_t tiles, int64_t first_row, Part carry)
{
    GPO_SHARED(Part, s, [2][BLOCK]);
    const unsigned tid = threadIdx.x;
    Part *row = part + (first_row + blockIdx.x) * tiles;
    for (int64_t begin = 0; begin < tiles; begin += BLOCK) {
        const int64_t i = begin + tid;
        s[0][tid] = i < tiles ? row[i] : Fold::identity();
        __syncthreads();
        int from = 0;
        for (unsigned d = 1; d < BLOCK; d *= 2) {
            const Part v = s[from][tid];
            s[1 - from][tid] = tid >= d ? Fold::combine(s[from][tid - d], v) : v;
            from = 1 - from;
            __syncthreads();
        }
        if (i < tiles) {
            row[i] = tid > 0 ? Fold::combine(carry, s[from][tid - 1]) : carry;
        }
        carry = Fold::combine(carry, s[from][BLOCK - 1]);
        __syncthreads();
    }
}

template <typename Op>
gpo_status
scan_all_totals(gpo_call *call, const Op &op, typename Op::Part *part, int64_t rows,
                int64_t tiles)
{
    using Part = typename Op::Part;
    gpo_status status = GPO_OK;
    for (int64_t row = 0; !status && row < rows; row += MAX_GRID_X) {
        status = GPO_LAUNCH(call, grid_of(rows - row), BLOCK, 0,
                            (scan_totals<typename Op::PartFold, Part>), part, tiles,
                            row, Op::widen(op.first));
    }
    return status;
}

#endif
