/*
 * large_block.cu  v3's kernel for transforms of 2048 and 4096 points, compiled
 * separately.
 */
#include "ladder/v3_spectral_blocks.cuh"

gpo_status
convolve_by_large_block(gpo_call *call, const spectral_rows &rows, bool one_filter,
                        int points)
{
    return points == 2048
               ? convolve_by_block<block_fft<16, 8>, 4>(call, rows, one_filter)
               : convolve_by_block<block_fft<16, 16>, 2>(call, rows, one_filter);
}
