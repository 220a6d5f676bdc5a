/*
 * many_batches.cuh  Which calls shapes/many_batches.cu takes, how they are divided, and
 * what they take by estimate: for the table, its choice and the kernel's launcher.
 */
#ifndef GPO_MEAN_MATVEC_MANY_BATCHES_CUH
#define GPO_MEAN_MATVEC_MANY_BATCHES_CUH

#include "row_words.cuh"
#include "short_rows.cuh"

/* What an SM does in a us, by predicted instructions and wavefronts; not measured. */
constexpr double MANY_ISSUED_PER_US = 4200;     /* instructions of warps, of 7000 */
constexpr double MANY_ROW_INSTRUCTIONS = 40;    /* the end of a mean */
constexpr double MANY_ELEMENT_INSTRUCTIONS = 4; /* an element of a lane */
/* Products of a block, in float32 and in float64, and the part of them for many outputs:
   262,144 batches of 65 x 5 and 73 outputs took 282 us on an H100, 265,383 of 20 x 6 and
   512 outputs 1,064. */
constexpr double MANY_PRODUCTS_PER_US[2] = {30000, 15000};
constexpr double OF_WIDE = 0.4;
constexpr int64_t WIDE_OUTPUTS = 128;
constexpr double MANY_DEPTH_US[2] = {0.015, 0.025}; /* a step along the depth */
constexpr double MANY_SLOWER = 0.1;                 /* its stream of x beside v4's */
constexpr double OF_OTHERS = 0.9; /* of their estimates is this one worth its risk */

/* A block takes `share` batches, the means of `piece` at a time. */
struct many_batches_plan {
    bool fits;      /* in shared memory */
    bool is_heavy;  /* a thread has 8 by 4 results, not 4 by 2 */
    bool is_staged; /* results go through shared memory */
    int log_lanes;  /* that share a row */
    int blocks;     /* per SM */
    int64_t share, piece;
    int64_t stage_rows, slot_bytes; /* of a stage of x */
    int64_t matrix_pitch;           /* values, of the outputs of a row of the matrix */
    int64_t shared_bytes;
};

inline many_batches_plan
plan_many_batches(const gpo_call *call, int64_t room)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const int64_t bytes = gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t value = bytes == 8 ? 8 : 4;
    many_batches_plan plan = {};
    plan.is_heavy = p.outputs > MANY_HEAVY * p.cols;
    plan.is_staged = p.out_output == 1 && p.out_batch != 1 && p.outputs > 1;
    const int64_t outputs = plan.is_heavy ? MANY_HEAVY_OUTPUTS : MANY_LIGHT_OUTPUTS;
    const int64_t across = plan.is_heavy ? MANY_HEAVY_ACROSS : MANY_LIGHT_ACROSS;
    plan.log_lanes = log_lanes_of_row(p.cols, MANY_LANE_BYTES / bytes);
    const int64_t pass = THREADS >> plan.log_lanes, pass_bytes = pass * p.cols * bytes;
    const int64_t passes = pass_bytes < MANY_BYTES ? MANY_BYTES / pass_bytes : 1;
    plan.stage_rows = passes * pass;
    plan.slot_bytes = passes * pass_bytes + 16;

    const int64_t groups = ceil_div(p.outputs, outputs);
    plan.matrix_pitch = groups * outputs + 16 / value;
    const int64_t fixed =
        MANY_RING * plan.slot_bytes + p.rows * (plan.matrix_pitch + 1) * value;
    const int64_t per_batch = (p.rows + (plan.is_staged ? p.outputs | 1 : 0)) * value;
    /* Results for all threads in one turn, and more than two stages. */
    const int64_t for_threads = THREADS * across / (groups > 0 ? groups : 1);
    const int64_t for_rows = ceil_div(2 * plan.stage_rows, p.rows);
    const int64_t least = for_rows < MANY_UNIT ? MANY_UNIT : for_rows;
    int64_t wanted = for_threads > least ? for_threads : least;
    wanted = (wanted < MANY_PIECE ? wanted : MANY_PIECE) / MANY_UNIT * MANY_UNIT;
    for (plan.blocks = MANY_BLOCKS[plan.is_heavy]; plan.blocks > 0; plan.blocks--) {
        /* An SM has 1 KB more than a block may have, and takes 1 KB per block. */
        const int64_t left = (room + 1024) / plan.blocks - 1024 - fixed;
        const int64_t most = left > 0 ? left / per_batch / MANY_UNIT * MANY_UNIT : 0;
        if (most > 0) {
            plan.fits = true;
            plan.share = ceil_div(p.batches, gpo_processors(call) * plan.blocks);
            const int64_t needed = ceil_div(plan.share, MANY_UNIT) * MANY_UNIT;
            plan.piece = wanted < most ? wanted : most;
            plan.piece = needed < plan.piece ? needed : plan.piece;
            plan.shared_bytes = fixed + plan.piece * per_batch;
            break;
        }
    }
    return plan;
}

/* x is one stretch of rows of 1 to MANY_COLS elements. */
inline bool
is_for_many_batches(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    constexpr int64_t MOST = 1 << 20; /* far more than fit: the plan cannot overflow */
    return takes_short_rows(call) && p.cols <= MANY_COLS && p.rows >= 1 &&
           p.rows < MOST && p.outputs < MOST && p.batches >= 1;
}

inline bool
takes_many_batches(const gpo_call *call)
{
    return is_for_many_batches(call) &&
           plan_many_batches(call, gpo_shared_room(call)).fits;
}

/* What it takes beyond the time of x, in us; INFINITY if it does not take the call. */
inline double
many_batches_us(const gpo_call *call, const product_size &s)
{
    if (!is_for_many_batches(call)) {
        return INFINITY;
    }
    const many_batches_plan plan = plan_many_batches(call, s.room);
    if (!plan.fits) {
        return INFINITY;
    }
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const double cols = static_cast<double>(p.cols);
    const double x_us = s.batches * s.rows * cols * s.bytes / MEMORY_BYTES_PER_US;
    const double lanes = static_cast<double>(1 << plan.log_lanes);
    const double means_us =
        s.batches * s.rows *
        (lanes * MANY_ROW_INSTRUCTIONS + cols * MANY_ELEMENT_INSTRUCTIONS) /
        (WARP * MANY_ISSUED_PER_US * s.processors);
    /* The last piece of a block is not hidden by loads. */
    const double rate =
        MANY_PRODUCTS_PER_US[s.is_wide] * (p.outputs > WIDE_OUTPUTS ? OF_WIDE : 1);
    const double per_batch = s.rows * static_cast<double>(plan.matrix_pitch) / rate;
    const double share = static_cast<double>(plan.share);
    const double last = fmax(per_batch * fmin(share, static_cast<double>(plan.piece)),
                             MANY_DEPTH_US[plan.is_heavy] * s.rows);
    const double first = s.rows * s.outputs * s.bytes * plan.blocks / L2_BYTES_PER_US;
    /* A block that multiplies brings no more than its ring holds; others of its SM do. */
    const double products_us = fmax(0, per_batch * share - last);
    const double hidden_us = plan.blocks > 1 ? x_us : 0;
    return PRODUCT_US + first + last + MANY_SLOWER * x_us + fmax(0, means_us - x_us) +
           fmax(0, products_us - hidden_us + fmin(means_us, hidden_us));
}

template <typename T>
gpo_status mean_matvec_many_batches(gpo_call *call);

#endif
