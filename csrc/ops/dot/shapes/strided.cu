/*
 * strided.cu  Arrays with gaps between their elements, or that run backwards.
 * Elements are not contiguous, so each is loaded alone, 8 of each array in flight; the
 * sums are v3's.  v3 sends complex arrays here whose address is not a multiple of the
 * element size: no peeling aligns those to 16 bytes.
 * Cost:  reads the sectors of the elements once; 16 loads in flight per thread.
 */
#include "../parts.cuh"

template <typename S>
__global__ void
__launch_bounds__(BLOCK, BLOCKS_PER_SM)
    dot_strided_kernel(dot_view<typename S::T> a, block_parts<typename S::Part> parts,
                       typename S::T *out)
{
    using T = typename S::T;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;

    typename S::Fold fold;
    for (; k + (LOADS - 1) * step < a.n; k += LOADS * step) {
        T p[LOADS], q[LOADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            p[u] = element(a.x + (k + u * step) * a.x_stride);
            q[u] = element(a.y + (k + u * step) * a.y_stride);
        }
        typename S::Acc acc = {};
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            acc = S::multiply_add(acc, p[u], q[u]);
        }
        fold.add(S::widen(acc));
    }
#pragma unroll 1
    for (; k < a.n; k += step) {
        fold.add(S::widen(S::multiply_add({}, element(a.x + k * a.x_stride),
                                          element(a.y + k * a.y_stride))));
    }
    finish<S>(fold.value(), parts, out);
}

template <typename T>
gpo_status
dot_strided(gpo_call *call)
{
    using S = sum_of<T>;
    using E = typename S::T;
    dot_view<E> a = view_of<E>(call);
    if (reinterpret_cast<uintptr_t>(a.x) % sizeof(E) != 0) { /* as in v3 */
        a = {a.y, a.x, a.n, a.y_stride, a.x_stride};
    }
    const unsigned grid = resident_grid(call, ceil_div(a.n, BLOCK * LOADS));
    block_parts<typename S::Part> parts;
    const gpo_status status = parts_for(call, grid, &parts);
    return status ? status
                  : GPO_LAUNCH(call, grid, BLOCK, 0, (dot_strided_kernel<S>), a, parts,
                               static_cast<E *>(call->out[0].data));
}

#define INSTANTIATE(T) template gpo_status dot_strided<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
