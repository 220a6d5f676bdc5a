/*
 * fft.cuh  A Fourier transform computed by one block of threads, in registers and
 * shared memory, for products of polynomials with real coefficients.
 *
 * N = V * V * R points, V * R threads, V values each.  A row x of N real numbers is
 * evaluated at N of the 2N roots of z^2N = -1, those with z^N = -i:
 *
 *     f[k] = sum over n of x[n] exp(-2 pi i n (k - 1/4) / N).
 *
 * The values at the other N roots are the conjugates of these.  The product of two such
 * spectra is the spectrum of the linear convolution y[n] = sum over m of a[m] b[n - m],
 * n < 2N, and its inverse is y[n] + i y[n + N]: neither zero padding nor a step that
 * separates packed real rows is needed.  The product with conj(b) is a correlation:
 * y[n] = sum over m of a[m + n] b[m] in the real part, -y[n - N] in the imaginary part.
 *
 * Each pass evaluates a polynomial at B w^k, w = exp(-2 pi i / V), by recursive
 * halving.  Its twiddle factors are B^(V/2), .., B^2, B times roots of unity, so a
 * thread reads log2(V) numbers per pass, and a butterfly is six fused operations.  The
 * inverse runs the passes backwards.  Spectra stay in the order that the passes
 * produce.
 * Order: complex numbers, butterflies, passes, the block.
 */
#ifndef GPO_FFT_CUH
#define GPO_FFT_CUH

#include "warp.cuh"

/* ---- complex numbers ---- */

__device__ __forceinline__ c64
times(c64 a, c64 b)
{
    return {fmaf(a.re, b.re, -a.im * b.im), fmaf(a.re, b.im, a.im * b.re)};
}

__device__ __forceinline__ c64
times_conjugate(c64 a, c64 b)
{
    return {fmaf(a.re, b.re, a.im * b.im), fmaf(a.im, b.re, -a.re * b.im)};
}

__device__ __forceinline__ c64
add_times(c64 sum, c64 a, c64 b)
{
    return {fmaf(-a.im, b.im, fmaf(a.re, b.re, sum.re)),
            fmaf(a.im, b.re, fmaf(a.re, b.im, sum.im))};
}

__device__ __forceinline__ c64
add_times_conjugate(c64 sum, c64 a, c64 b)
{
    return {fmaf(a.im, b.im, fmaf(a.re, b.re, sum.re)),
            fmaf(-a.re, b.im, fmaf(a.im, b.re, sum.im))};
}

/* exp(2 pi i k / 64); a compile-time constant if k is. */
__device__ __forceinline__ c64
root_of_64(int k)
{
    constexpr float COSINE[17] = {
        1.0f,          0.995184727f, 0.98078528f,  0.956940336f, 0.923879533f,
        0.881921264f,  0.831469612f, 0.773010453f, 0.707106781f, 0.634393284f,
        0.555570233f,  0.471396737f, 0.382683432f, 0.290284677f, 0.195090322f,
        0.0980171403f, 0.0f};
    const int r = k & 15;
    const float c = COSINE[r], s = COSINE[16 - r];
    switch (k >> 4 & 3) {
        case 0:
            return {c, s};
        case 1:
            return {-s, c};
        case 2:
            return {-c, -s};
        default:
            return {s, -c};
    }
}

/* exp(-2 pi i turns); fractions that are exact in float cause no rounding. */
__device__ __forceinline__ c64
root_at(float turns)
{
    c64 w;
    sincospif(-2.0f * turns, &w.im, &w.re);
    return w;
}

/* ---- butterflies ---- */

/* a + w b and a - w b. */
__device__ __forceinline__ void
butterfly(c64 &a, c64 &b, c64 w)
{
    const c64 sum = {fmaf(w.re, b.re, fmaf(-w.im, b.im, a.re)),
                     fmaf(w.re, b.im, fmaf(w.im, b.re, a.im))};
    b = {fmaf(2.0f, a.re, -sum.re), fmaf(2.0f, a.im, -sum.im)};
    a = sum;
}

/* The same for w = exp(2 pi i k / 64), where k is a constant. */
__device__ __forceinline__ void
butterfly_of_64(c64 &a, c64 &b, int k)
{
    if (k == 0) {
        const c64 difference = {a.re - b.re, a.im - b.im};
        a = {a.re + b.re, a.im + b.im};
        b = difference;
    }
    else if (k == 16) {
        const c64 difference = {a.re + b.im, a.im - b.re};
        a = {a.re - b.im, a.im + b.re};
        b = difference;
    }
    else {
        butterfly(a, b, root_of_64(k));
    }
}

template <int N>
constexpr int LOG = 1 + LOG<N / 2>;
template <>
constexpr int LOG<1> = 0;

/* ---- passes, whose input and output are in natural order ---- */

template <int N, typename Value>
__device__ __forceinline__ void
reverse_bits(Value (&v)[N])
{
    Value to[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        int r = 0;
#pragma unroll
        for (int bit = 1; bit < N; bit *= 2) {
            r = 2 * r + (i & bit ? 1 : 0);
        }
        to[r] = v[i];
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] = to[i];
    }
}

/* The butterfly levels from SIZE to LAST of sum over r of v[r] exp(2 pi i r k / N). */
template <int N, int LAST, int SIZE = 2>
__device__ __forceinline__ void
plain_levels(c64 (&v)[N])
{
    if constexpr (SIZE <= LAST) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const int k = i % (SIZE / 2), at = i / (SIZE / 2) * SIZE + k;
            butterfly_of_64(v[at], v[at + SIZE / 2], k * (64 / SIZE));
        }
        plain_levels<N, LAST, 2 * SIZE>(v);
    }
}

/* v[k] = sum over r of v[r] (B w^k)^r, w = exp(-2 pi i / N), power[i] = B^(2^i). */
template <int N, int SIZE = 2>
__device__ __forceinline__ void
evaluate_levels(c64 (&v)[N], const c64 (&power)[LOG<N>])
{
    if constexpr (SIZE <= N) {
        const c64 base = power[LOG<N / SIZE>];
#pragma unroll
        for (int k = 0; k < (SIZE + 3) / 4; k++) {
            const c64 w = k == 0 ? base : times(base, root_of_64(64 - k * (64 / SIZE)));
            const c64 turned = {w.im, -w.re};
#pragma unroll
            for (int at = k; at < N; at += SIZE) {
                butterfly(v[at], v[at + SIZE / 2], w);
                if (SIZE > 2) {
                    butterfly(v[at + SIZE / 4], v[at + SIZE / 4 + SIZE / 2], turned);
                }
            }
        }
        evaluate_levels<N, 2 * SIZE>(v, power);
    }
}

/* v[r] *= conj(B)^r; B^r = B^(r % 4) B^(r - r % 4), so that few stay in registers. */
template <int N>
__device__ __forceinline__ void
turn_back(c64 (&v)[N], const c64 (&power)[LOG<N>])
{
    const c64 third = times(power[1], power[0]);
#pragma unroll
    for (int four = 0; four < N; four += 4) {
        c64 w = {1, 0};
        bool is_one = true;
#pragma unroll
        for (int bit = LOG<N> - 1; bit >= 2; bit--) {
            if (four >> bit & 1) {
                w = is_one ? power[bit] : times(w, power[bit]);
                is_one = false;
            }
        }
        const c64 first = is_one ? power[0] : times(w, power[0]);
        const c64 second = is_one ? power[1] : times(w, power[1]);
        if (!is_one) {
            v[four] = times_conjugate(v[four], w);
        }
        v[four + 1] = times_conjugate(v[four + 1], first);
        v[four + 2] = times_conjugate(v[four + 2], second);
        v[four + 3] = times_conjugate(v[four + 3], is_one ? third : times(w, third));
    }
}

/* f[k] = sum over r of x[r] exp(-2 pi i r (k - 1/4) / N) for real x. */
template <int N>
__device__ __forceinline__ void
first_pass(float (&x)[N], c64 (&f)[N])
{
    static_assert(N >= 2 && N <= 16, "its factors are 64th roots of unity");
    reverse_bits(x);
    const c64 w = root_of_64(8);
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        const float im = w.im * x[i + 1];
        f[i] = {fmaf(w.re, x[i + 1], x[i]), im};
        f[i + 1] = {fmaf(-w.re, x[i + 1], x[i]), -im};
    }
#pragma unroll
    for (int size = 4; size <= N; size *= 2) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const int k = i % (size / 2), at = i / (size / 2) * size + k;
            butterfly(f[at], f[at + size / 2], root_of_64(64 + (16 - 64 * k) / size));
        }
    }
}

/* The same for complex numbers, in place. */
template <int N>
__device__ __forceinline__ void
first_pass(c64 (&f)[N])
{
    static_assert(N >= 2 && N <= 16, "its factors are 64th roots of unity");
    reverse_bits(f);
#pragma unroll
    for (int size = 2; size <= N; size *= 2) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const int k = i % (size / 2), at = i / (size / 2) * size + k;
            butterfly(f[at], f[at + size / 2], root_of_64(64 + (16 - 64 * k) / size));
        }
    }
}

/*
 * The sum over k of f[k] exp(2 pi i r (k - 1/4) / N) for each r: its real part, and if
 * BOTH its imaginary part.
 */
template <bool BOTH, int N>
__device__ __forceinline__ void
last_pass(c64 (&f)[N], float (&re)[N], float (&im)[N])
{
    static_assert(N >= 2 && N <= 16, "its factors are 64th roots of unity");
    reverse_bits(f);
    plain_levels<N, N / 2>(f);
#pragma unroll
    for (int r = 0; r < N; r++) {
        const c64 a = f[r % (N / 2)], b = f[r % (N / 2) + N / 2];
        const c64 u = root_of_64(64 - r * (16 / N)), w = root_of_64(r * (48 / N));
        re[r] = fmaf(-w.im, b.im, fmaf(w.re, b.re, fmaf(-u.im, a.im, u.re * a.re)));
        if (BOTH) {
            im[r] = fmaf(w.im, b.re, fmaf(w.re, b.im, fmaf(u.im, a.re, u.re * a.im)));
        }
    }
}

/* ---- the block ---- */

/*
 * Thread t holds elements t + THREADS * e of a row; of a spectrum it holds the same
 * elements in every transform.  Each group of V threads, all in one warp, computes a
 * transform of V * V points; only the pass of R points spans the block.  Columns of V
 * values plus one of padding avoid bank conflicts in both directions.
 */
template <int VALUES, int FIRST>
struct block_fft {
    static constexpr int V = VALUES, R = FIRST, THREADS = V * R, POINTS = V * V * R;
    static constexpr int TURNS = V / R; /* butterflies of a thread in the first pass */
    static constexpr int REGION = V * (V + 1), SECOND = R * REGION;
    static constexpr int THIRD = SECOND + THREADS, SHARED = THIRD + LOG<V> * THREADS;
    static_assert((V == 16 || V == 32) && V % R == 0 && R >= 2, "groups in one warp");

    c64 *block, *group;        /* shared memory: all of it, the group's region */
    const c64 *second, *third; /* in it, B^r every R numbers, B^(2^i) every THREADS */
    int thread, lane;          /* the thread's number in the block, in its group */

    /*
     * `space` is shared memory for SHARED numbers.  `own` is the thread's number among
     * the THREADS: these are the whole block, or one of several warps.
     */
    __device__ __forceinline__ explicit block_fft(c64 *space,
                                                  unsigned own = threadIdx.x)
        : thread(static_cast<int>(own))
    {
        const int first = thread / V; /* frequency, mod R */
        const float k = static_cast<float>(first) - 0.25f;
        lane = thread % V;
        block = space;
        group = space + first * REGION;
        second = space + SECOND + first;
        third = space + THIRD + thread;
        space[SECOND + first + lane * R] =
            root_at(k * static_cast<float>(lane) / (V * R));
#pragma unroll
        for (int i = 0; i < LOG<V>; i++) {
            space[THIRD + thread + i * THREADS] =
                root_at((k + static_cast<float>(R * lane)) * (1 << i) / POINTS);
        }
    }

    /* The caller puts a barrier between its last use of the shared memory and this. */
    __device__ __forceinline__ void forward(const float (&x)[V], c64 (&f)[V]) const
    {
#pragma unroll
        for (int q = 0; q < TURNS; q++) {
            float part[R];
            c64 to[R];
#pragma unroll
            for (int r = 0; r < R; r++) {
                part[r] = x[q + TURNS * r];
            }
            first_pass(part, to);
#pragma unroll
            for (int r = 0; r < R; r++) {
                block[r * REGION + q * THREADS + thread] = to[r];
            }
        }
        forward_end(f);
    }

    /*
     * The transform of by * (x - i before), where `before` are the N values before x.
     * Multiplied by a filter's spectrum and inverted, its real part is the N results at
     * x: the imaginary part of the results of `before` adds into it.
     */
    __device__ __forceinline__ void
    forward(const float (&x)[V], const float (&before)[V], float by, c64 (&f)[V]) const
    {
#pragma unroll
        for (int q = 0; q < TURNS; q++) {
            c64 part[R];
#pragma unroll
            for (int r = 0; r < R; r++) {
                part[r] = {x[q + TURNS * r] * by, -before[q + TURNS * r] * by};
            }
            first_pass(part);
#pragma unroll
            for (int r = 0; r < R; r++) {
                block[r * REGION + q * THREADS + thread] = part[r];
            }
        }
        forward_end(f);
    }

    /*
     * N times the inverse, in two parts: loads issued between them complete during the
     * second.  No barrier is needed after forward().
     */
    __device__ __forceinline__ void inverse_begin(c64 (&f)[V]) const
    {
        reverse_bits(f);
        plain_levels<V, V>(f);
        c64 power[LOG<V>];
#pragma unroll
        for (int i = 0; i < LOG<V>; i++) {
            power[i] = third[i * THREADS];
        }
        turn_back(f, power);
        __syncwarp();
#pragma unroll
        for (int r = 0; r < V; r++) {
            group[lane * (V + 1) + r] = f[r];
        }
        __syncwarp();
#pragma unroll
        for (int r = 0; r < V; r++) {
            f[r] = group[r * (V + 1) + lane];
        }
    }

    template <bool BOTH>
    __device__ __forceinline__ void inverse_end(c64 (&f)[V], float (&re)[V],
                                                float (&im)[V]) const
    {
        reverse_bits(f);
        plain_levels<V, V>(f);
        __syncwarp();
#pragma unroll
        for (int r = 0; r < V; r++) {
            group[lane + V * r] = r == 0 ? f[r] : times_conjugate(f[r], second[r * R]);
        }
        meet();
#pragma unroll
        for (int q = 0; q < TURNS; q++) {
            float part[R], other[R];
            c64 from[R];
#pragma unroll
            for (int r = 0; r < R; r++) {
                from[r] = block[r * REGION + q * THREADS + thread];
            }
            last_pass<BOTH>(from, part, other);
#pragma unroll
            for (int r = 0; r < R; r++) {
                re[q + TURNS * r] = part[r];
                if (BOTH) {
                    im[q + TURNS * r] = other[r];
                }
            }
        }
    }

    /* A barrier of the THREADS. */
    static __device__ __forceinline__ void meet()
    {
        if constexpr (THREADS == WARP) {
            __syncwarp();
        }
        else {
            __syncthreads();
        }
    }

  private:
    /* The forward transform after the first pass; its results are in shared memory. */
    __device__ __forceinline__ void forward_end(c64 (&f)[V]) const
    {
        meet();
#pragma unroll
        for (int r = 0; r < V; r++) {
            f[r] = group[lane + V * r];
        }
        reverse_bits(f);
        c64 power[LOG<V>];
#pragma unroll
        for (int i = 0; i < LOG<V>; i++) {
            power[i] = second[(1 << i) * R];
        }
        evaluate_levels(f, power);
        __syncwarp();
#pragma unroll
        for (int r = 0; r < V; r++) {
            group[r * (V + 1) + lane] = f[r];
        }
        __syncwarp();
#pragma unroll
        for (int r = 0; r < V; r++) {
            f[r] = group[lane * (V + 1) + r];
        }
        reverse_bits(f);
#pragma unroll
        for (int i = 0; i < LOG<V>; i++) {
            power[i] = third[i * THREADS];
        }
        evaluate_levels(f, power);
    }
};

#endif
