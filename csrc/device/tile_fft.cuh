/*
 * tile_fft.cuh  Complex Fourier transforms of several sequences by a block of threads,
 * in float or double, for transforms that go through memory in two steps.
 *
 * A tile is 16 numbers per thread, of sequences of N = 2^4 to 2^12 numbers.  A pass is a
 * butterfly of 16 points per thread (the last one of 2 to 16), between passes the tile
 * is in shared memory (Stockham's order): results are in natural order, and a thread
 * has the same elements of its sequence before and after, j + e N / 16 for e < 16.
 * Order: roots of unity, butterflies, the tile.
 */
#ifndef GPO_TILE_FFT_CUH
#define GPO_TILE_FFT_CUH

#include "number.cuh"

#include <cmath>

constexpr int TILE_VALUES = 16; /* of a thread */
constexpr int TILE_THREADS = 256;
constexpr int TILE_NUMBERS = TILE_VALUES * TILE_THREADS;
/* Blocks of threads on an SM: the numbers of a thread are 32 or 64 registers. */
template <typename Real>
constexpr int TILE_BLOCKS = sizeof(Real) == 4 ? 3 : 2;

/* ---- roots of unity ---- */

__device__ __forceinline__ float
multiply_add(float a, float b, float c)
{
    return fmaf(a, b, c);
}

__device__ __forceinline__ double
multiply_add(double a, double b, double c)
{
    return fma(a, b, c);
}

template <typename Real>
__device__ __forceinline__ complex<Real>
turned_by(complex<Real> a, complex<Real> w)
{
    return {multiply_add(a.re, w.re, -a.im * w.im),
            multiply_add(a.re, w.im, a.im * w.re)};
}

template <typename Real>
__device__ __forceinline__ complex<Real>
conjugate(complex<Real> a)
{
    return {a.re, -a.im};
}

/* An inverse transform is a forward one of numbers whose parts are exchanged. */
template <typename Real>
__device__ __forceinline__ complex<Real>
exchanged(complex<Real> a)
{
    return {a.im, a.re};
}

__device__ __forceinline__ void
sine_and_cosine(float half_turns, float *sine, float *cosine)
{
    sincospif(half_turns, sine, cosine);
}

__device__ __forceinline__ void
sine_and_cosine(double half_turns, double *sine, double *cosine)
{
#ifdef __CUDACC__
    sincospi(half_turns, sine, cosine);
#else
    *sine = std::sin(3.14159265358979323846 * half_turns);
    *cosine = std::cos(3.14159265358979323846 * half_turns);
#endif
}

/*
 * exp(-2 pi i k / 2^log), 3 <= log <= 26.  What is left of k beside whole quarter turns
 * has at most 24 bits, so the angle is exact in float.
 */
template <typename Real>
__device__ __forceinline__ complex<Real>
root_of_unity(int k, int log)
{
    const int quarter = (k + (1 << (log - 3))) >> (log - 2);
    const Real rest = static_cast<Real>(k - (quarter << (log - 2)));
    Real s, c;
    sine_and_cosine(rest * (static_cast<Real>(2) / static_cast<Real>(1 << log)), &s,
                    &c);
    switch (quarter & 3) {
        case 0:
            return {c, -s};
        case 1:
            return {-s, -c};
        case 2:
            return {-c, s};
        default:
            return {s, c};
    }
}

/* exp(2 pi i k / 64) for 0 <= k < 16; a compile-time constant if k is. */
template <typename Real>
__device__ __forceinline__ complex<Real>
small_root(int k)
{
    constexpr double COSINE[17] = {1.0,
                                   0.99518472667219688624,
                                   0.98078528040323044913,
                                   0.95694033573220886494,
                                   0.92387953251128675613,
                                   0.88192126434835502971,
                                   0.83146961230254523708,
                                   0.77301045336273696081,
                                   0.70710678118654752440,
                                   0.63439328416364549822,
                                   0.55557023301960222474,
                                   0.47139673682599764856,
                                   0.38268343236508977173,
                                   0.29028467725446236764,
                                   0.19509032201612826785,
                                   0.09801714032956060199,
                                   0.0};
    return {static_cast<Real>(COSINE[k]), static_cast<Real>(COSINE[16 - k])};
}

/* ---- butterflies ---- */

/* a + w b and a - w b, w = exp(-2 pi i k / 16), k < 8 a constant. */
template <typename Real>
__device__ __forceinline__ void
tile_butterfly(complex<Real> &a, complex<Real> &b, int k)
{
    if (k == 0) {
        const complex<Real> difference = a - b;
        a = a + b;
        b = difference;
        return;
    }
    if (k == 4) {
        const complex<Real> difference = {a.re - b.im, a.im + b.re};
        a = {a.re + b.im, a.im - b.re};
        b = difference;
        return;
    }
    const complex<Real> root = small_root<Real>(4 * (k % 4));
    const Real re = k < 4 ? root.re : -root.im, im = k < 4 ? -root.im : -root.re;
    const complex<Real> sum = {
        multiply_add(re, b.re, multiply_add(-im, b.im, a.re)),
        multiply_add(re, b.im, multiply_add(im, b.re, a.im)),
    };
    b = {multiply_add(static_cast<Real>(2), a.re, -sum.re),
         multiply_add(static_cast<Real>(2), a.im, -sum.im)};
    a = sum;
}

template <int R, int SIZE, typename Real>
__device__ __forceinline__ void
tile_levels(complex<Real> (&v)[R])
{
    if constexpr (SIZE <= R) {
#pragma unroll
        for (int i = 0; i < R / 2; i++) {
            const int k = i % (SIZE / 2), at = i / (SIZE / 2) * SIZE + k;
            tile_butterfly(v[at], v[at + SIZE / 2], k * (16 / SIZE));
        }
        tile_levels<R, 2 * SIZE>(v);
    }
}

/* v[k] = sum over r of v[r] exp(-2 pi i r k / R). */
template <int R, typename Real>
__device__ __forceinline__ void
tile_points(complex<Real> (&v)[R])
{
    complex<Real> turned[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        int r = 0;
#pragma unroll
        for (int bit = 1; bit < R; bit *= 2) {
            r = 2 * r + (i & bit ? 1 : 0);
        }
        turned[r] = v[i];
    }
    tile_levels<R, 2>(turned);
#pragma unroll
    for (int i = 0; i < R; i++) {
        v[i] = turned[i];
    }
}

/* The last pass of a transform: 16 / R butterflies of R points. */
template <int R, typename Real>
__device__ __forceinline__ void
last_points(complex<Real> (&v)[TILE_VALUES])
{
    constexpr int EACH = TILE_VALUES / R;
#pragma unroll
    for (int c = 0; c < EACH; c++) {
        complex<Real> part[R];
#pragma unroll
        for (int r = 0; r < R; r++) {
            part[r] = v[c + r * EACH];
        }
        tile_points(part);
#pragma unroll
        for (int r = 0; r < R; r++) {
            v[c + r * EACH] = part[r];
        }
    }
}

/* v[k] *= low[k % 4] high[k / 4], whose first elements are not read as they are 1. */
template <typename Real>
__device__ __forceinline__ void
turn_by_powers(complex<Real> (&v)[TILE_VALUES], const complex<Real> (&low)[4],
               const complex<Real> (&high)[4])
{
#pragma unroll
    for (int k = 1; k < TILE_VALUES; k++) {
        const complex<Real> w = k < 4        ? low[k % 4]
                                : k % 4 == 0 ? high[k / 4]
                                             : turned_by(high[k / 4], low[k % 4]);
        v[k] = turned_by(v[k], w);
    }
}

/* ---- the tile ---- */

/* Where a block of threads has its sequences, each of 2^log numbers, side by side. */
template <typename Real>
struct fourier_tile {
    complex<Real> *numbers; /* shared memory: the tile, a 16th of it for padding */
    complex<Real> *roots;   /* after them, see root() */
    int log;
    int own;        /* j: the thread has elements own + e N / 16 ... */
    int base, step; /* ... at `base + step i` for element i of its sequence */

    /* Numbers of shared memory for the transform of 2^log points. */
    static constexpr int shared(int log)
    {
        return TILE_NUMBERS / 16 * 17 + (1 << log) / 16 * 9;
    }

    /*
     * Sequences are columns (neighbours have the same element of neighbouring
     * sequences) or rows of the tile.  A barrier must follow.
     */
    __device__ __forceinline__ fourier_tile(complex<Real> *space, int points_log,
                                            bool is_columns)
        : numbers(space), roots(space + TILE_NUMBERS / 16 * 17), log(points_log)
    {
        const int thread = static_cast<int>(threadIdx.x);
        const int threads = 1 << (log - 4), sequences = TILE_THREADS / threads;
        own = is_columns ? thread / sequences : thread % threads;
        base = is_columns ? thread % sequences : thread / threads << log;
        step = is_columns ? sequences : 1;
        for (int k = thread; k < 1 << (log - 1); k += TILE_THREADS) {
            roots[k + (k >> 3)] = root_of_unity<Real>(k, log);
        }
    }

    __device__ __forceinline__ int element(int e) const
    {
        return own + (e << (log - 4));
    }

    /* exp(-2 pi i k / N), k < N / 2; padding lets lanes read every 8th of them. */
    __device__ __forceinline__ complex<Real> root(int k) const
    {
        return roots[k + (k >> 3)];
    }

    __device__ __forceinline__ complex<Real> &at(int element) const
    {
        const int i = base + step * element;
        return numbers[i + (i >> 4)];
    }

    /* v[e] = the sum over i of x[i] exp(-2 pi i k / N), k = element(e). */
    __device__ __forceinline__ void forward(complex<Real> (&v)[TILE_VALUES]) const
    {
#pragma unroll 1
        for (int done = 0; log - done > 4; done += 4) {
            tile_points(v);
            const int low = own & ((1 << done) - 1), high = own - low;
            const complex<Real> one = root(high), two = root(2 * high);
            const complex<Real> four = root(4 * high), eight = root(8 * high);
            turn_by_powers(v, {one, one, two, turned_by(two, one)},
                           {one, four, eight, turned_by(eight, four)});
            const int to = low + (high << 4);
            __syncthreads();
#pragma unroll
            for (int k = 0; k < TILE_VALUES; k++) {
                at(to + (k << done)) = v[k];
            }
            __syncthreads();
#pragma unroll
            for (int e = 0; e < TILE_VALUES; e++) {
                v[e] = at(element(e));
            }
        }
        switch ((log - 1) & 3) {
            case 0:
                last_points<2>(v);
                break;
            case 1:
                last_points<4>(v);
                break;
            case 2:
                last_points<8>(v);
                break;
            default:
                last_points<16>(v);
                break;
        }
    }

    /* N times the inverse. */
    __device__ __forceinline__ void inverse(complex<Real> (&v)[TILE_VALUES]) const
    {
#pragma unroll
        for (int e = 0; e < TILE_VALUES; e++) {
            v[e] = exchanged(v[e]);
        }
        forward(v);
#pragma unroll
        for (int e = 0; e < TILE_VALUES; e++) {
            v[e] = exchanged(v[e]);
        }
    }
};

#endif
