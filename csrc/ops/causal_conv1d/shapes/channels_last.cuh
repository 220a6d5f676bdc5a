/*
 * channels_last.cuh  How threads share the channels and steps of arrays whose channels
 * are neighbours in memory (layout BTC), in both kernels for them.
 */
#ifndef GPO_CAUSAL_CONV1D_CHANNELS_LAST_CUH
#define GPO_CAUSAL_CONV1D_CHANNELS_LAST_CUH

#include "short_filters.cuh"

/*
 * A thread has W neighbouring channels and walks along the steps of a stretch; threads of
 * a block are (stretches, 1 << shift chunks of channels), neighbours in the latter.
 */
struct last_work {
    int shift;
    divider blocks;    /* of channels */
    divider stretches; /* of a row */
    int64_t length;    /* of a stretch */
    int64_t parts;     /* forward: stretches of all rows; backward: shares of them */
    int64_t share;     /* stretches of a part */
    int64_t tasks;     /* blocks of threads */
    segment_marks marks;
};

/*
 * Where segments begin around SLOTS steps: bit k is step k - (LAGS - 1), counted from the
 * first of them.  A row's first step and those after its last one are begins.
 */
template <int LAGS>
struct slot_marks {
    unsigned bits;

    /* How many steps before slot k are in its segment; 32: all that matter. */
    __device__ __forceinline__ int back(int k) const
    {
        return __clz(static_cast<int>(bits << (32 - LAGS - k)));
    }

    /* How many steps after the one that is LAGS - 1 before slot k are in its segment. */
    __device__ __forceinline__ int ahead(int k) const
    {
        return __clz(static_cast<int>(__brev(bits >> (k + 1))));
    }
};

/* Channels of a thread: their taps and a window of steps stay in registers. */
template <typename T, int LAGS>
constexpr int
last_width(int registers, int bytes)
{
    const int most = registers * 4 / (LAGS * static_cast<int>(sizeof(value_type<T>)));
    const int size = bytes / static_cast<int>(sizeof(T));
    return most < 1 ? 1 : most < size ? most : size;
}

/* Steps in the window: enough for the lags, and for the loads that are under way. */
template <int LAGS, int W>
constexpr int WINDOW_STEPS = W == 1 && LAGS < 8 ? 8 : LAGS;

/* Steps that are loaded ahead, a divisor of those of the window. */
template <typename T, int W>
constexpr int STEPS_AHEAD = W > 1           ? 4
                            : sizeof(T) < 8 ? 8
                                            : 2;

/* Whether chunks of W channels are aligned, with their strides. */
template <int W, typename T>
bool
has_chunks(const row_view<T> &rows, int64_t channels)
{
    return rows.c == 1 && channels % W == 0 && rows.b % W == 0 && rows.t % W == 0 &&
           reinterpret_cast<uintptr_t>(rows.p) % (W * sizeof(T)) == 0;
}

/* The split of the channels into blocks with at most an eighth of idle threads, or one. */
inline void
split_channels(last_work *work, int64_t chunks)
{
    int shift = 0;
    while (shift < 5 && int64_t{1} << shift < chunks) {
        shift++;
    }
    while (int64_t{1} << shift < SHORT_BLOCK &&
           ceil_div(chunks, int64_t{2} << shift) * (int64_t{2} << shift) <=
               chunks + chunks / 8) {
        shift++;
    }
    work->shift = shift;
    work->blocks = divider_of(ceil_div(chunks, int64_t{1} << shift));
}

/* Stretches of `least` to MOST_STEPS_SUMMED steps, enough for `wanted` threads. */
inline void
split_steps(last_work *work, int64_t wanted, int64_t least, int64_t chunks,
            int64_t batches, int64_t steps)
{
    const int64_t pieces = ceil_div(wanted, chunks * (batches > 0 ? batches : 1));
    int64_t length = ceil_div(steps / pieces, STEPS_TOGETHER) * STEPS_TOGETHER;
    length = length < least ? least : length;
    work->length = length < MOST_STEPS_SUMMED ? length : MOST_STEPS_SUMMED;
    work->stretches = divider_of(ceil_div(steps, work->length));
    work->parts = batches * work->stretches.by;
    work->share = 1;
}

inline void
count_tasks(last_work *work)
{
    work->tasks = work->blocks.by * ceil_div(work->parts, SHORT_BLOCK >> work->shift);
}

/* Where a thread is: its first channel, its part, and its chunk in the block. */
struct last_place {
    int64_t first; /* channel of the block */
    int64_t part;
    int chunk;

    __device__ __forceinline__ last_place(const last_work &work, int64_t task,
                                          int width)
        : chunk(static_cast<int>(threadIdx.x) & ((1 << work.shift) - 1))
    {
        const int64_t group = work.blocks.of(task);
        first = (task - group * work.blocks.by) * width << work.shift;
        part = group * (SHORT_BLOCK >> work.shift) + (threadIdx.x >> work.shift);
    }
};

/*
 * The taps of a block's channels through shared memory, so that neighbouring threads read
 * those of neighbouring channels, and the threads of other stretches share them.
 */
template <int LAGS, int W, typename T>
__device__ __forceinline__ void
load_block_taps(value_type<T> (&tap)[LAGS][W], value_type<T> *staged,
                const conv_view<T> &v, const last_place &at, int shift)
{
    const int channels = W << shift, lags = static_cast<int>(v.lags);
    __syncthreads(); /* the taps staged before have been read */
    for (int i = threadIdx.x; i < channels; i += SHORT_BLOCK) {
        if (at.first + i < v.channels) {
            const T *const w = v.w + (at.first + i) * v.w_c;
#pragma unroll
            for (int s = 0; s < LAGS; s++) {
                if (s < lags) {
                    staged[s * (W * SHORT_BLOCK) + i] = value_of(w[s * v.w_s]);
                }
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
#pragma unroll
        for (int i = 0; i < W; i++) {
            const bool there = s < lags && at.first + at.chunk * W + i < v.channels;
            tap[s][i] = there ? staged[s * (W * SHORT_BLOCK) + at.chunk * W + i]
                              : value_type<T>(0);
        }
    }
}

#endif
