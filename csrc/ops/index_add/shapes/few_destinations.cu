/*
 * few_destinations.cu  Many rows for each of few destinations, summed in float64.
 * As v5, but atomics to few addresses would be serialized in L2: each block adds its
 * part of the source to a table in shared memory (tables.cuh), as in v2, and sends each
 * sum once.
 * Cost:  reads the source once; a table of sums per block; 8 bytes for each element of
 *        x, written twice and read.
 */
#include "../float64_sums.cuh"
#include "../tables.cuh"

template <typename T>
__global__ void
__launch_bounds__(TABLE_BLOCK)
    index_add_few_destinations_kernel(index_add_view<T> a, index_add_table t,
                                      double *sums)
{
    constexpr int ITEMS = 4; /* rows in flight */
    GPO_DYN_SHARED(double, table);
    const unsigned unit = blockIdx.x / t.slices;
    const int64_t slice = blockIdx.x - unit * t.slices;
    const int64_t o = unit / t.tiles, tile = unit % t.tiles;
    const int64_t begin = slice * t.rows;
    const int64_t end = begin + t.rows < a.count ? begin + t.rows : a.count;
    const int places = static_cast<int>(a.length) * t.columns;
    const int tid = threadIdx.x, rows = TABLE_BLOCK / t.lanes, mine = tid / t.lanes;
    const int column = tid % t.lanes, copy = mine % t.copies;
    const int64_t c = tile * t.columns + column;
    const bool is_column = column < t.columns && c < a.inner;

    for (int i = tid; i < places * t.copies; i += TABLE_BLOCK) {
        table[i] = 0;
    }
    __syncthreads();
    const T *const from = a.source + o * a.by_outer + c * a.by_inner;
    for (int64_t first = begin + mine; is_column && first < end;
         first += ITEMS * rows) {
        T v[ITEMS] = {};
        int64_t entry[ITEMS] = {};
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t s = first + j * rows;
            if (s < end) {
                entry[j] = entry_of(a.index, s);
                v[j] = from[s * a.by_row];
            }
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t s = first + j * rows;
            const int64_t k = s < end ? destination_of(a.index, entry[j], s) : -1;
            if (k >= 0) {
                atomic_add(
                    &table[(static_cast<int>(k) * t.columns + column) * t.copies +
                           copy],
                    wide_scaled(v[j], a.wide_alpha));
            }
        }
    }
    __syncthreads();
    for (int i = tid; i < places; i += TABLE_BLOCK) {
        double sum = 0;
        for (int j = 0; j < t.copies; j++) {
            sum += table[i * t.copies + j];
        }
        const int64_t k = i / t.columns, at = tile * t.columns + i % t.columns;
        if (sum != 0 && at < a.inner) {
            atomic_add(sums + (o * a.length + k) * a.inner + at, sum);
        }
    }
}

struct index_add_tables : index_add_wide_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        index_add_table t;
        size_t bytes = 0;
        if (!plan_table(call, sizeof(double), &t, &bytes)) {
            return gpo_fail(&call->error, GPO_EVARIANT,
                            "the sums of index_add() do not fit into shared memory");
        }
        const index_add_range all = {0, a.outer * a.length * a.inner};
        void *memory = nullptr;
        gpo_status status = gpo_scratch(call, all.n * sizeof(double), &memory);
        double *const sums = static_cast<double *>(memory);
        if (!status) {
            status = index_add_clear_sums(call, all, sums);
        }
        if (!status) {
            gpo_allow_shared(index_add_few_destinations_kernel<T>, bytes);
            status = GPO_LAUNCH(call, table_grid(a.outer, t), TABLE_BLOCK, bytes,
                                (index_add_few_destinations_kernel<T>), a, t, sums);
        }
        return status ? status : index_add_round_sums(call, a, all, sums);
    }
};

template <typename T>
gpo_status
index_add_few_destinations(gpo_call *call)
{
    return index_add_with<index_add_tables, T>(call);
}

template gpo_status index_add_few_destinations<f16>(gpo_call *call);
template gpo_status index_add_few_destinations<bf16>(gpo_call *call);
template gpo_status index_add_few_destinations<float>(gpo_call *call);
