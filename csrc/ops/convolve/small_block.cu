/*
 * small_block.cu  v3's kernel for transforms of 512 and 1024 points, compiled
 * separately.
 */
#include "ladder/v3_spectral_blocks.cuh"

gpo_status
convolve_by_small_block(gpo_call *call, const spectral_rows &rows, bool one_filter,
                        int points)
{
    return points == 512
               ? convolve_by_block<block_fft<16, 2>, 16>(call, rows, one_filter)
               : convolve_by_block<block_fft<16, 4>, 8>(call, rows, one_filter);
}
