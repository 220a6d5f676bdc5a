/*
 * large_transforms.cu  Rows of thousands to millions of steps: transforms of up to 2^24
 * points, which go through memory in two steps, the spectrum of a filter once for all
 * batches.
 * Order: the pass, sizes, what transforms may compute, columns, rows, results, launcher.
 * Cost:  a step is read twice and its result written once; two spectra of 8 bytes per
 *        step are written and read twice, in the L2 cache where a pass fits.
 * See device/large_fft.cuh for the transforms, early_steps.cu for what they may not
 * compute, large_transforms_lags.cu for the gradient of the filters.
 */
#include "../large_rows.cuh"

/* ---- the pass ---- */

/* Blocks unit .. unit + units of the batch, b * l.blocks + k, of some channels. */
struct large_pass {
    conv_view<float> v;
    spectrum_dtype dtype;
    row_blocks_plan l;
    measured_rows x, w;
    double growth;   /* square of the largest ratio of norms */
    double *before;  /* the energy of a row before each of its pieces */
    int *exponents;  /* of block k of row b * C + c */
    int *of_filters; /* exponents */
    int *starts;     /* of row b * C + c, see early_steps.cu */
    c64 *blocks, *h; /* matrices */
    int64_t channel, channels, unit, units;
    bool makes_filters;
};

/* The block of a matrix of a pass. */
struct large_block {
    int64_t b, c, k;

    __device__ __forceinline__ large_block(const large_pass &pass, int64_t matrix)
    {
        const int64_t own = quotient(matrix, pass.units);
        const int64_t unit = pass.unit + matrix - own * pass.units;
        c = pass.channel + own;
        b = quotient(unit, pass.l.blocks);
        k = unit - b * pass.l.blocks;
    }
};

/* ---- sizes ---- */

__global__ void
__launch_bounds__(MEASURE_THREADS)
    causal_conv1d_large_transforms_amounts(const __grid_constant__ measured_rows x,
                                           const __grid_constant__ measured_rows w,
                                           spectrum_dtype dtype)
{
    const int64_t first = int64_t{blockIdx.x} * MEASURE_WARPS + threadIdx.x / WARP;
    const int64_t step = int64_t{gridDim.x} * MEASURE_WARPS;
    measure_pieces(x, dtype, first, step);
    measure_pieces(w, dtype, first, step);
}

gpo_status
measure_rows(gpo_call *call, measured_rows *x, measured_rows *w, spectrum_dtype dtype)
{
    void *memory = nullptr;
    const int64_t all = x->all() + w->all();
    const gpo_status status =
        gpo_scratch(call, (all + 1) * sizeof(row_amount), &memory);
    if (status) {
        return status;
    }
    x->amounts = static_cast<row_amount *>(memory);
    w->amounts = x->amounts + x->all();
    const int64_t most = 8 * int64_t{gpo_processors(call)};
    const int64_t blocks = ceil_div(all, MEASURE_WARPS);
    return GPO_LAUNCH(call, grid_of(blocks < most ? blocks : most), MEASURE_THREADS, 0,
                      causal_conv1d_large_transforms_amounts, *x, *w, dtype);
}

/* ---- what transforms may compute ---- */

constexpr int LARGE_HEAD = 128; /* steps that early_steps.cu sums term by term */

/*
 * The square of growth_of() for transforms through memory, which err by at most
 * 0.9 log2(2N) 2^-24 norm(w) norm(x): 0.76 is the most seen (convolve's NOTES.md).
 */
static double
large_growth(int64_t steps, int log)
{
    const double passes = 0.9 * (log + 1);
    return 4 * static_cast<double>(steps) / (passes * passes);
}

/* What the threads of a block find out together about a row. */
struct row_findings {
    double sums[MEASURE_THREADS]; /* energies, then those up to a thread's pieces */
    row_amount of_warps[MEASURE_WARPS];
    earlier first_of_warps[MEASURE_WARPS];
    double head[MEASURE_WARPS];
    int last_wide; /* block */
};

struct added_doubles {
    static __device__ __forceinline__ double combine(double a, double b)
    {
        return a + b;
    }
};

/*
 * Writes the energy before each piece of a row; returns the amount of all of it, and
 * its first piece that is not 0.  A thread takes neighbouring pieces.
 */
__device__ __forceinline__ row_amount
add_up_pieces(const row_amount *amounts, int64_t pieces, double *before,
              row_findings &found, int64_t *first)
{
    const int thread = static_cast<int>(threadIdx.x);
    const int64_t each = ceil_div(pieces, MEASURE_THREADS), begin = thread * each;
    const int64_t end = begin + each < pieces ? begin + each : pieces;
    row_amount own = {0.0, NO_RANGE};
    earlier start = {WHOLE_ROW};
    for (int64_t i = begin; i < end; i++) {
        start.step = amounts[i].size.most && start.step == WHOLE_ROW
                         ? static_cast<int>(i)
                         : start.step;
        own = row_amount::combine(own, amounts[i]);
    }
    found.sums[thread] = own.energy;
    tile_values::tell(own, found.of_warps);
    tile_values::tell(start, found.first_of_warps);
    __syncthreads();
    for (int d = 1; d < MEASURE_THREADS; d *= 2) {
        const double sum = thread >= d ? found.sums[thread - d] : 0.0;
        __syncthreads();
        found.sums[thread] += sum;
        __syncthreads();
    }
    double energy = thread > 0 ? found.sums[thread - 1] : 0.0;
    for (int64_t i = begin; i < end; i++) {
        before[i] = energy;
        energy += amounts[i].energy;
    }
    *first = tile_values::told(found.first_of_warps).step;
    return tile_values::told(found.of_warps);
}

/* The first step of a row that is not 0, which is in piece `piece`. */
__device__ __forceinline__ int
start_in(spectrum_dtype dtype, const spectrum_row &row, int64_t piece,
         row_findings &found)
{
    static_assert(MEASURED == MEASURE_THREADS, "a thread per step");
    float x[1];
    const int64_t t = piece * MEASURED + threadIdx.x;
    load_row<MEASURE_THREADS>(dtype, row, t, x);
    const earlier own = {x[0] != 0.0f ? static_cast<int>(t) : WHOLE_ROW};
    __syncthreads(); /* the slots have been read */
    tile_values::tell(own, found.first_of_warps);
    __syncthreads();
    return tile_values::told(found.first_of_warps).step;
}

/* The energy of a row's head. */
__device__ __forceinline__ double
energy_of_head(spectrum_dtype dtype, const spectrum_row &row, int start,
               row_findings &found)
{
    float x[1] = {0.0f};
    if (threadIdx.x < LARGE_HEAD) {
        load_row<MEASURE_THREADS>(dtype, row, int64_t{start} + threadIdx.x, x);
    }
    const double own = static_cast<double>(x[0]) * static_cast<double>(x[0]);
    const double warp = warp_combine<added_doubles>(own);
    if (threadIdx.x % WARP == 0) {
        found.head[threadIdx.x / WARP] = warp;
    }
    __syncthreads();
    double sum = 0;
    for (int i = 0; i < MEASURE_WARPS; i++) {
        sum += found.head[i];
    }
    return sum;
}

/* The pieces of block k of a row that has so many: [first, end). */
struct block_pieces {
    int64_t first, own, end; /* own: the first with results */

    __device__ __forceinline__ block_pieces(const row_blocks_plan &l, int64_t k,
                                            int64_t pieces)
        : own(k * l.step / MEASURED)
    {
        first = own - l.lead / MEASURED;
        first = first > 0 ? first : 0;
        end = own + l.step / MEASURED;
        end = end < pieces ? end : pieces;
    }
};

/*
 * A transform may compute a result if the energy of its block is at most growth times
 * that of the inputs up to there (spectral_rows.cuh), which only grows.  So of the last
 * block that has results it may not compute, and of all before, those are left to
 * early_steps.cu in whole blocks of 512 up to where the inputs have enough; of the head
 * of a row they are left in any case.
 */
__global__ void
__launch_bounds__(MEASURE_THREADS)
    causal_conv1d_large_transforms_starts(const __grid_constant__ large_pass pass)
{
    GPO_SHARED(row_findings, found, [1]);
    const row_blocks_plan &l = pass.l;
    const measured_rows &x = pass.x, &w = pass.w;
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    const bool leads = threadIdx.x % WARP == 0;
    for (int64_t row = blockIdx.x; row < x.batches * x.channels; row += gridDim.x) {
        const int64_t b = quotient(row, x.channels), c = row - b * x.channels;
        const row_amount *const amounts = x.of(b, c);
        double *const before = pass.before + row * x.pieces;
        const spectrum_row values = row_of(pass.dtype, x.rows, b, c, x.steps);
        int64_t first;
        const row_amount all =
            add_up_pieces(amounts, x.pieces, before, found[0], &first);
        row_range taps = NO_RANGE;
        for (int64_t i = threadIdx.x; i < w.pieces; i += MEASURE_THREADS) {
            taps = row_range::combine(taps, w.of(0, c)[i].size);
        }
        const int start =
            all.size.most ? start_in(pass.dtype, values, first, found[0]) : WHOLE_ROW;
        const double head = energy_of_head(pass.dtype, values, start, found[0]);
        tile_values::tell(row_amount{0.0, taps}, found[0].of_warps);
        if (threadIdx.x == 0) {
            found[0].last_wide = -1;
        }
        __syncthreads();
        taps = tile_values::told(found[0].of_warps).size;
        for (int64_t k = warp; k < l.blocks; k += MEASURE_WARPS) {
            const block_pieces p(l, k, x.pieces);
            const row_amount own = amount_of_pieces(amounts, p.first, p.end);
            const double known = before[p.own] > head ? before[p.own] : head;
            const bool holds = own.energy <= pass.growth * known || own.energy == 0.0;
            if (leads) {
                pass.exponents[row * l.blocks + k] = own.size.exponent();
                if (!holds) {
                    atomicMax(&found[0].last_wide, static_cast<int>(k));
                }
            }
        }
        __syncthreads();
        if (warp == 0) {
            int mark = start;
            if (!all.size.is_finite() || !taps.is_finite()) {
                mark = WIDE_ROW;
            }
            else if (found[0].last_wide >= 0) {
                const block_pieces p(l, found[0].last_wide, x.pieces);
                const double energy = amount_of_pieces(amounts, p.first, p.end).energy;
                int64_t low = p.own, high = p.end; /* before[low] is too little */
                while (high - low > 1) {
                    const int64_t middle = low + (high - low) / 2;
                    (before[middle] * pass.growth < energy ? low : high) = middle;
                }
                mark = wide_up_to(high * MEASURED, x.steps);
            }
            if (leads) {
                pass.starts[row] = mark;
                if (b == 0) {
                    pass.of_filters[c] = taps.exponent();
                }
            }
        }
        __syncthreads();
    }
}

/* ---- columns ---- */

__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<float>)
    causal_conv1d_large_transforms_columns(const __grid_constant__ large_pass pass)
{
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(strip_turns<float>, turns, [1]);
    const row_blocks_plan &l = pass.l;
    const column_work work(l, space, turns[0]);
    const int64_t blocks = pass.channels * pass.units;
    const int64_t all = blocks + (pass.makes_filters ? pass.channels : 0);
    for (int64_t u = blockIdx.x; u < all << work.strips.log_strips; u += gridDim.x) {
        int64_t matrix = u;
        const int strip = work.strip_of(matrix);
        spectrum_row row;
        int64_t begin = 0;
        int exponent;
        c64 *to;
        if (matrix < blocks) {
            const large_block at(pass, matrix);
            row = row_of(pass.dtype, pass.v.x, at.b, at.c, pass.v.steps);
            begin = at.k * l.step - l.lead;
            exponent =
                pass.exponents[(at.b * pass.v.channels + at.c) * l.blocks + at.k];
            to = pass.blocks + (matrix << l.log);
        }
        else {
            const int64_t own = matrix - blocks, c = pass.channel + own;
            row = filter_of(pass.dtype, pass.v, c);
            exponent = pass.of_filters[c];
            to = pass.h + (own << l.log);
        }
        transform_columns(work, strip, pass.dtype, row, begin, exponent, to);
    }
}

/* ---- rows ---- */

__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<float>) causal_conv1d_large_transforms_rows(
    const __grid_constant__ row_products<float> products)
{
    GPO_DYN_SHARED(c64, space);
    multiply_rows(products, space);
}

/* ---- results ---- */

/* Stores the results of row (b, c) among y[e] = step t + e hop, from step `low` on. */
template <typename T>
__device__ __forceinline__ void
put_results(const conv_view<T> &v, int64_t b, int64_t c, int64_t t, int64_t hop,
            int64_t low, int64_t high, const float (&y)[TILE_VALUES])
{
#pragma unroll
    for (int e = 0; e < TILE_VALUES; e++) {
        if (t >= low && t < high) {
            v.out.row(b, c)[t * v.out.t] = v.finished(y[e], b, c, t);
        }
        t += hop;
    }
}

__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<float>)
    causal_conv1d_large_transforms_results(const __grid_constant__ large_pass pass)
{
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(strip_turns<float>, turns, [1]);
    const row_blocks_plan &l = pass.l;
    const conv_view<float> &v = pass.v;
    const column_work work(l, space, turns[0]);
    const int64_t all = pass.channels * pass.units, hop = int64_t{1} << (l.log - 4);
    __syncthreads();
    for (int64_t u = blockIdx.x; u < all << work.strips.log_strips; u += gridDim.x) {
        int64_t matrix = u;
        const int strip = work.strip_of(matrix);
        const large_block at(pass, matrix);
        const int64_t row = at.b * v.channels + at.c, low = at.k * l.step;
        const int64_t high = low + l.step < v.steps ? low + l.step : v.steps;
        float parts[2][TILE_VALUES];
        restore_columns(work, strip, pass.blocks + (matrix << l.log), parts[0],
                        parts[1]);
        const int exponent =
            pass.exponents[row * l.blocks + at.k] + pass.of_filters[at.c] - l.log;
        const float offset = offset_of(pass.dtype, v, at.c);
        const int start = pass.starts[row];
#pragma unroll
        for (int part = 0; part < 2; part++) {
            float(&y)[TILE_VALUES] = parts[part];
            const int64_t t =
                low - l.lead + work.place(strip) + (int64_t{part} << l.log);
            tile_values::scale_back(y, exponent, offset);
#pragma unroll
            for (int e = 0; e < TILE_VALUES; e++) {
                y[e] = t + e * hop < start ? offset : y[e];
            }
            with_dtype(pass.dtype, [&](auto element) {
                put_results(view_as<conv_view<decltype(element)>>(v), at.b, at.c, t,
                            hop, low, high, y);
            });
        }
    }
}

/* ---- launcher ---- */

static gpo_status
run_pass(gpo_call *call, const large_pass &pass)
{
    const row_blocks_plan &l = pass.l;
    const int log_columns = l.log - l.log_rows;
    const int64_t tiles = (int64_t{1} << l.log) / TILE_NUMBERS;
    const int64_t blocks = pass.channels * pass.units;
    const size_t of_columns = large_shared<float>(l.log_rows);
    const size_t of_rows = large_shared<float>(log_columns);
    gpo_allow_shared(causal_conv1d_large_transforms_columns, of_columns);
    gpo_allow_shared(causal_conv1d_large_transforms_results, of_columns);
    gpo_allow_shared(causal_conv1d_large_transforms_rows, of_rows);
    const int64_t matrices = blocks + (pass.makes_filters ? pass.channels : 0);
    gpo_status status =
        GPO_LAUNCH(call, resident_grid(call, matrices * tiles), TILE_THREADS,
                   of_columns, causal_conv1d_large_transforms_columns, pass);
    row_products<float> work = {pass.blocks,   pass.h, l.log, log_columns,
                                pass.channels, 0,      1,     pass.makes_filters};
    const int64_t shares = l.shares < pass.units ? l.shares : pass.units;
    if (!status && work.makes_filters && shares > 1) {
        status =
            GPO_LAUNCH(call, resident_grid(call, pass.channels * tiles), TILE_THREADS,
                       of_rows, causal_conv1d_large_transforms_rows, work);
        work.makes_filters = false;
    }
    work.each = pass.units;
    work.shares = shares;
    if (!status) {
        status = GPO_LAUNCH(call, resident_grid(call, pass.channels * tiles * shares),
                            TILE_THREADS, of_rows, causal_conv1d_large_transforms_rows,
                            work);
    }
    if (!status) {
        status = GPO_LAUNCH(call, resident_grid(call, blocks * tiles), TILE_THREADS,
                            of_columns, causal_conv1d_large_transforms_results, pass);
    }
    return status;
}

/* Allocates what the passes share: matrices, and what is known of rows and filters. */
static gpo_status
make_room(gpo_call *call, large_pass *pass)
{
    const int64_t rows = pass->x.batches * pass->x.channels;
    const int64_t doubles = rows * pass->x.pieces;
    const int64_t ints = rows * (pass->l.blocks + 1) + pass->x.channels;
    const int64_t bytes = pass->l.spectra_bytes +
                          doubles * static_cast<int64_t>(sizeof(double)) +
                          ints * static_cast<int64_t>(sizeof(int));
    void *memory = nullptr;
    const gpo_status status = gpo_scratch(call, static_cast<size_t>(bytes), &memory);
    if (status) {
        return status;
    }
    pass->blocks = static_cast<c64 *>(memory);
    pass->h = pass->blocks + (pass->l.channels * pass->l.units << pass->l.log);
    pass->before =
        reinterpret_cast<double *>(static_cast<char *>(memory) + pass->l.spectra_bytes);
    pass->starts = reinterpret_cast<int *>(pass->before + doubles);
    pass->exponents = pass->starts + rows;
    pass->of_filters = pass->exponents + rows * pass->l.blocks;
    return GPO_OK;
}

template <typename T>
gpo_status
conv_large_transforms(gpo_call *call, const conv_view<T> &view)
{
    const conv_view<float> v = view_as<conv_view<float>>(view);
    large_pass pass = {};
    pass.v = v;
    pass.dtype = SPECTRUM_DTYPE<T>;
    pass.l = plan_row_blocks(
        call, transforms_of_results(v.batches, v.channels, v.steps, v.lags));
    pass.growth = large_growth(v.steps, pass.l.log);
    pass.x = rows_to_measure(v.x, v.batches, v.channels, v.steps);
    pass.w = rows_to_measure({v.w, 0, v.w_c, v.w_s}, 1, v.channels, v.lags);
    const row_blocks_plan &l = pass.l;
    gpo_status status = measure_rows(call, &pass.x, &pass.w, pass.dtype);
    status = status ? status : make_room(call, &pass);
    if (!status) {
        status = GPO_LAUNCH(call, grid_of(v.batches * v.channels), MEASURE_THREADS, 0,
                            causal_conv1d_large_transforms_starts, pass);
    }
    const int64_t all = v.batches * l.blocks;
    for (int64_t c = 0; c < v.channels && !status; c += l.channels) {
        pass.channel = c;
        pass.channels = v.channels - c < l.channels ? v.channels - c : l.channels;
        for (int64_t unit = 0; unit < all && !status; unit += l.units) {
            pass.unit = unit;
            pass.units = all - unit < l.units ? all - unit : l.units;
            pass.makes_filters = unit == 0;
            status = run_pass(call, pass);
        }
    }
    return status ? status
                  : convolve_early(call, v, pass.dtype, LARGE_HEAD, 1, pass.starts);
}

GPO_EVERY_FLOAT32(GPO_CONV_OF, conv_large_transforms)
