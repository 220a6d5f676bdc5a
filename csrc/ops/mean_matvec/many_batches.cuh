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
/* Products of a block of each kind, in float32 and in float64; an SM has 225,000 of
   float32.  Light threads' rates are those that an H100 had, the others predicted. */
constexpr double MANY_PRODUCTS_PER_US[3][2] = {
    {30000, 15000}, {45000, 22000}, {75000, 35000}};
constexpr double MANY_DEPTH_US[3] = {0.015, 0.025, 0.05}; /* a step along the depth */
constexpr double MANY_START_US = 2.8; /* one launch, where others have two or three */
/* A result of a heavy thread, whose lanes store to rows of their own, on an SM. */
constexpr double MANY_STORE_US = 2.5e-4;
constexpr double MANY_MATRIX = 2;         /* times a copy of the matrix at L2's rate */
constexpr double MANY_SLOWER = 0.1;       /* its stream of x beside v4's... */
constexpr double MANY_ALONE_SLOWER = 0.4; /* ... with one block per SM */
constexpr double MANY_STORES = 0.4;       /* of the time of the result, not hidden */
constexpr double OF_OTHERS = 0.9; /* of their estimates is this one worth its risk */

/* What a thread has: 4 outputs of 2 batches, 8 of 4, or 8 of as many as registers hold. */
enum many_kind { MANY_LIGHT, MANY_HEAVY, MANY_WIDE };

/* A block takes `share` batches, the means of `piece` at a time. */
struct many_batches_plan {
    bool fits; /* in shared memory */
    many_kind kind;
    bool is_staged; /* results go through shared memory */
    int log_lanes;  /* that share a row */
    int blocks;     /* per SM */
    int64_t share, piece;
    int64_t stage_rows, slot_bytes; /* of a stage of x */
    int64_t matrix_pitch;           /* values, of the outputs of a row of the matrix */
    int64_t shared_bytes;
};

/* The part of a wide thread's results that exist, where a piece is `unit` batches. */
inline double
used_by_wide(int64_t groups, int64_t share, int64_t unit)
{
    constexpr int64_t WARPS = THREADS / WARP;
    return static_cast<double>(groups) /
           static_cast<double>(ceil_div(groups, WARPS) * WARPS) *
           static_cast<double>(share) /
           static_cast<double>(ceil_div(share, unit) * unit);
}

inline many_batches_plan
plan_many_batches(const gpo_call *call, int64_t room)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const int64_t bytes = gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t value = bytes == 8 ? 8 : 4;
    many_batches_plan plan = {};
    const bool is_heavy = p.outputs > MANY_HEAVY_FROM * p.cols;
    plan.kind = is_heavy ? MANY_HEAVY : MANY_LIGHT;
    plan.is_staged = p.out_output == 1 && p.out_batch != 1 && p.outputs > 1;
    static_assert(MANY_WIDE_OUTPUTS == MANY_HEAVY_OUTPUTS, "groups are the same");
    const int64_t outputs = is_heavy ? MANY_HEAVY_OUTPUTS : MANY_LIGHT_OUTPUTS;
    const int64_t across = is_heavy ? MANY_HEAVY_ACROSS : MANY_LIGHT_ACROSS;
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
    /* Results for all threads in one turn, or in as many as give a heavy one neighbours
       enough, and more than two stages. */
    const int64_t in_turn = THREADS * across / (groups > 0 ? groups : 1);
    const int64_t for_threads = !is_heavy || plan.is_staged ? in_turn
                                : in_turn > 0
                                    ? in_turn * ceil_div(MANY_HEAVY_PIECE, in_turn)
                                    : MANY_HEAVY_PIECE;
    const int64_t for_rows = ceil_div(2 * plan.stage_rows, p.rows);
    const int64_t least = for_rows < MANY_UNIT ? MANY_UNIT : for_rows;
    int64_t wanted = for_threads > least ? for_threads : least;
    wanted = (wanted < MANY_PIECE ? wanted : MANY_PIECE) / MANY_UNIT * MANY_UNIT;
    const int64_t wide = int64_t{WARP} * MANY_WIDE_ACROSS[value == 8];
    for (plan.blocks = MANY_BLOCKS[is_heavy]; plan.blocks > 0; plan.blocks--) {
        /* An SM has 1 KB more than a block may have, and takes 1 KB per block. */
        const int64_t left = (room + 1024) / plan.blocks - 1024 - fixed;
        const int64_t most = left > 0 ? left / per_batch / MANY_UNIT * MANY_UNIT : 0;
        if (most > 0) {
            plan.fits = true;
            plan.share = ceil_div(p.batches, gpo_processors(call) * plan.blocks);
            const int64_t needed = ceil_div(plan.share, MANY_UNIT) * MANY_UNIT;
            plan.piece = wanted < most ? wanted : most;
            plan.piece = needed < plan.piece ? needed : plan.piece;
            if (is_heavy && wide <= most && p.out_batch == 1 && !plan.is_staged &&
                used_by_wide(groups, plan.share, wide) >= MANY_WIDE_USED) {
                plan.kind = MANY_WIDE;
                plan.piece = wide;
            }
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

/*
 * What it takes beyond the times of x and of the result, in us; INFINITY if it does not
 * take the call.
 */
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
    const double stores_us = plan.kind == MANY_HEAVY && !plan.is_staged
                                 ? MANY_STORE_US * s.outputs * plan.blocks
                                 : 0;
    /* The last piece of a block is not hidden by loads. */
    const double product_us = s.rows * static_cast<double>(plan.matrix_pitch) /
                              MANY_PRODUCTS_PER_US[plan.kind][s.is_wide];
    const double per_batch = product_us + stores_us;
    const double share = static_cast<double>(plan.share);
    const double last = fmax(per_batch * fmin(share, static_cast<double>(plan.piece)),
                             MANY_DEPTH_US[plan.kind] * s.rows);
    /* Every block of an SM copies the matrix. */
    const double copies = fmin(plan.blocks, ceil(s.batches / s.processors));
    const double first =
        MANY_MATRIX * s.rows * s.outputs * s.bytes * copies / L2_BYTES_PER_US;
    /* A block that adds or multiplies brings no more than its ring holds, and what other
       blocks of its SM bring meanwhile has not shown in times. */
    const double products_us = fmax(0, per_batch * share - last);
    const double out_us = s.batches * s.outputs * s.bytes / MEMORY_BYTES_PER_US;
    return MANY_START_US + first + last +
           (plan.blocks > 1 ? MANY_SLOWER : MANY_ALONE_SLOWER) * x_us + means_us +
           products_us + MANY_STORES * out_us;
}

template <typename T>
gpo_status mean_matvec_many_batches(gpo_call *call);

#endif
