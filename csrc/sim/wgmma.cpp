/*
 * wgmma.cpp  Products of matrices in shared memory.  Order: starting a product, its
 * operands, making it, waiting.
 * Each warp of a warpgroup makes its own 16 of the 64 rows, when it waits for them.
 * Products and their sum are exact, then cut to a float toward zero: the hardware also
 * cuts, a few bits further down or up.
 */
#include "async.h"
#include "hopper_calls.h"
#include "tables.h"
#include "tf32_calls.h"

namespace gpo_sim {

enum {
    ROWS = 16,  /* of a warp */
    DEPTH = 16, /* the length of the sums, of floats half as many */
    CHUNK = 16, /* bytes that the swizzle keeps together */
    LINE = 128, /* bytes of a row of operands */
    WARPGROUP = 4,
};

static Products *
products_of(Fibre *self, const Site *site)
{
    Async *async = async_of(self->block, site);
    return &async->products[self->warp->index];
}

void
products_begin(Block *block)
{
    for (Products &p : block->async->products) {
        p.count = 0;
        p.done = p.waits = 0;
        memset(p.lanes, 0, sizeof p.lanes);
    }
    for (unsigned i = 0; i < block->nthreads; i++) {
        block->fibres[i].naccumulators = 0;
    }
}

/* ---- starting a product ---- */

/* The accumulator at `d`, which from now on is in flight. */
static Accumulator *
accumulator_at(Fibre *self, float *d, unsigned n, bool add, const Site *site)
{
    Async *async = self->block->async;
    if (!async->accumulators) {
        async->accumulators = (Accumulator(*)[MAX_ACCUMULATORS])calloc(
            MAX_THREADS, sizeof *async->accumulators);
        if (!async->accumulators) {
            fault(self, site, "the simulator has no memory for accumulators");
        }
    }
    self->accumulators = async->accumulators[self->linear];
    for (unsigned i = 0; i < self->naccumulators; i++) {
        Accumulator *other = &self->accumulators[i];
        if (other->at == d && other->n == n) {
            return other;
        }
        if (d < other->at + other->n && other->at < d + n) {
            fault(self, site,
                  "the accumulator overlaps that of the wgmma at line %d, which is in "
                  "flight",
                  other->site.line);
        }
    }
    if (self->naccumulators == MAX_ACCUMULATORS) {
        fault(self, site, "more than %d accumulators in flight", (int)MAX_ACCUMULATORS);
    }
    Accumulator *own = &self->accumulators[self->naccumulators++];
    own->at = d;
    own->n = n;
    own->in_flight = 0;
    own->site = *site;
    if (add) {
        memcpy(own->value, d, n * sizeof *d);
    }
    memset((void *)d, POISON, n * sizeof *d);
    return own;
}

/* The warp's product that the lane takes part in next. */
static Product *
next_product(Products *p, unsigned lane, const Site *site)
{
    const uint32_t i = p->lanes[lane].issued++ - p->done;
    if (i < p->count) {
        return &p->list[i];
    }
    if (!reserve(&p->list, &p->capacity, p->count + 1)) {
        fault(current, site, "the simulator has no memory for products");
    }
    Product *product = &p->list[p->count++];
    memset((void *)product, 0, sizeof *product);
    product->group = NO_GROUP;
    return product;
}

static void check_operands(Fibre *self, const Product *product);

enum Values { FLOAT16, BFLOAT16, TENSOR_FLOAT32 };

static void
start(float *d, unsigned n, const uint32_t *a, uint64_t a_shared, uint64_t b,
      Values values, bool add, const char *file, int line)
{
    const bool bf16 = values == BFLOAT16, tf32 = values == TENSOR_FLOAT32;
    Fibre *self = current;
    const Site site = {file, line};
    const unsigned lane = self->position.lane;
    maybe_preempt();
    Products *p = products_of(self, &site);
    if (!p->lanes[lane].fenced) {
        fault(self, &site, "wgmma without a wgmma_fence before it");
    }
    Product *product = next_product(p, lane, &site);
    if (product->met == 0) {
        product->a = a_shared;
        product->b = b;
        product->n = n;
        product->in_shared = !a;
        product->bf16 = bf16;
        product->tf32 = tf32;
        product->add = add;
        product->site = site;
    }
    else if (product->a != a_shared || product->b != b || product->n != n ||
             product->bf16 != bf16 || product->tf32 != tf32 || product->add != add ||
             product->site.line != line) {
        fault(self, &site,
              "lane %u takes part in another wgmma, or with other operands, than the "
              "lanes before it (line %d)",
              lane, product->site.line);
    }
    accumulator_at(self, d, n / 2, add, &site)->in_flight++;
    product->d[lane] = d;
    if (a) {
        memcpy(product->words[lane], a, sizeof product->words[lane]);
        product->registers[lane] = a;
    }
    product->met |= 1u << lane;
    if (product->met == self->warp->alive) {
        product->time = ++now;
        check_operands(self, product);
    }
}

void
product_start(float *d, unsigned n, const uint32_t *a, uint64_t a_shared, uint64_t b,
              bool bf16, bool add, const char *file, int line)
{
    start(d, n, a, a_shared, b, bf16 ? BFLOAT16 : FLOAT16, add, file, line);
}

void
product_of_floats_start(float *d, unsigned n, const uint32_t *a, uint64_t b, bool add,
                        const char *file, int line)
{
    start(d, n, a, 0, b, TENSOR_FLOAT32, add, file, line);
}

void
products_fence()
{
    const Site nowhere = {"", 0};
    products_of(current, &nowhere)->lanes[current->position.lane].fenced = true;
}

void
products_commit()
{
    const Site nowhere = {"", 0};
    Products *p = products_of(current, &nowhere);
    Products::Lane *lane = &p->lanes[current->position.lane];
    for (uint32_t i = lane->committed; i < lane->issued; i++) {
        if (i >= p->done) {
            p->list[i - p->done].group = lane->groups;
        }
    }
    lane->committed = lane->issued;
    lane->groups++;
}

/* ---- operands ---- */

/* The chunk of 16 bytes that is `offset` bytes behind the operand's first. */
static uintptr_t
chunk_at(const Block *block, uint64_t descriptor, unsigned offset)
{
    const unsigned at = (unsigned)(descriptor & 0x3fff) * CHUNK + offset;
    return (uintptr_t)block->shared + (at ^ (at / LINE % 8) * CHUNK);
}

/* How far apart groups of eight rows of 128 bytes are. */
static unsigned
stride_of(uint64_t descriptor)
{
    return (unsigned)(descriptor >> 32 & 0x3fff) * CHUNK;
}

/* Row r of an operand with k contiguous, k = 8 h and later; of one with k outside, row
   k = r, values 8 h and later. */
static uintptr_t
chunk_of(const Block *block, uint64_t descriptor, unsigned r, unsigned h)
{
    return chunk_at(block, descriptor,
                    r / 8 * stride_of(descriptor) + r % 8 * LINE + h * CHUNK);
}

/* Calls `use` with each chunk that the warp reads, and its row and place there. */
template <typename Use>
static void
each_chunk(const Fibre *self, const Product *product, bool of_a, Use use)
{
    const Block *block = self->block;
    const uint64_t descriptor = of_a ? product->a : product->b;
    const unsigned first = of_a ? self->warp->index % WARPGROUP * 2 : 0;
    const unsigned rows = product->in_shared ? (unsigned)DEPTH : product->n;
    const unsigned chunks = product->in_shared && !of_a ? product->n / 8 : 2;
    for (unsigned r = 0; r < rows; r++) {
        for (unsigned h = first; h < first + chunks; h++) {
            use(chunk_of(block, descriptor, r, h), r, h - first);
        }
    }
}

static void
check_operand(Fibre *self, const Product *product, bool of_a)
{
    const uint64_t descriptor = of_a ? product->a : product->b;
    const char *name = of_a ? "a" : "b";
    if (descriptor >> 62 != 1 || descriptor >> 49 & 7) {
        fault(self, &product->site,
              "operand %s: the simulator knows the 128-byte swizzle alone", name);
    }
    if ((descriptor & 0x3fff) * CHUNK % 1024 >= LINE) {
        fault(self, &product->site,
              "operand %s begins in row %u of eight; the swizzle needs row 0", name,
              (unsigned)(descriptor & 0x3fff) * CHUNK % 1024 / LINE);
    }
    each_chunk(self, product, of_a, [&](uintptr_t at, unsigned, unsigned) {
        if (!is_shared(self->block, at, CHUNK)) {
            fault(self, &product->site,
                  "operand %s reads 16 bytes at %u: not inside a shared array", name,
                  (unsigned)(at - (uintptr_t)self->block->shared));
        }
    });
    each_chunk(self, product, of_a, [&](uintptr_t at, unsigned, unsigned) {
        async_reads(self, at, CHUNK, true, &product->site);
    });
}

static void
check_operands(Fibre *self, const Product *product)
{
    check_operand(self, product, false);
    if (product->in_shared) {
        check_operand(self, product, true);
    }
}

static float
value_of_bits(uint16_t bits, bool bf16)
{
    return bf16 ? bfloat16_to_float(bits) : half_to_float(bits);
}

/* The 11 bits of a float that tensor cores read. */
static double
value_of_word(uint32_t bits)
{
    return (double)bits_float(bits & 0xffffe000u);
}

/* Reads an operand: to[k][i], i a column of b or one of the warp's rows of a. */
static void
read_operand(Fibre *self, const Product *product, bool of_a, double (*to)[2 * MAX_SUMS])
{
    each_chunk(self, product, of_a, [&](uintptr_t at, unsigned r, unsigned h) {
        uint16_t bits[8];
        async_has_read(self, at, CHUNK, product->time, "wgmma", &product->site);
        if (product->tf32) {
            uint32_t words[4];
            memcpy(words, (const void *)at, sizeof words);
            for (unsigned i = 0; i < 4; i++) {
                to[4 * h + i][r] = value_of_word(words[i]);
            }
            return;
        }
        memcpy(bits, (const void *)at, sizeof bits);
        for (unsigned i = 0; i < 8; i++) {
            const double value = (double)value_of_bits(bits[i], product->bf16);
            (product->in_shared ? to[r][8 * h + i] : to[8 * h + i][r]) = value;
        }
    });
}

/* ---- making a product ---- */

/* Cuts toward zero, as the tensor cores do; an overflow is an infinity. */
static float
cut(double x)
{
    const float nearest = (float)x;
    if (fabs((double)nearest) > fabs(x) && isfinite(nearest)) {
        return bits_float(float_bits(nearest) - 1);
    }
    return nearest;
}

/* Lane 4 g + q has rows g and g + 8, columns 8 j + 2 q and the next one. */
static void
make_product(Warp *warp, const Product *product)
{
    Fibre *any = &warp->lanes[__builtin_ctz(product->met)];
    static double a[DEPTH][2 * MAX_SUMS], b[DEPTH][2 * MAX_SUMS]; /* under the lock */
    read_operand(any, product, false, b);
    if (product->in_shared) {
        read_operand(any, product, true, a);
    }
    else if (product->tf32) {
        for (unsigned lane = 0; lane < WARP; lane++) {
            for (unsigned i = 0; i < 4; i++) {
                a[lane % 4 + i / 2 * 4][lane / 4 + i % 2 * 8] =
                    value_of_word(product->words[lane][i]);
            }
        }
    }
    else {
        for (unsigned lane = 0; lane < WARP; lane++) {
            for (unsigned i = 0; i < 8; i++) {
                const unsigned row = lane / 4 + (i / 2 % 2 ? 8 : 0);
                const unsigned k = lane % 4 * 2 + i % 2 + (i / 4 ? 8 : 0);
                const uint32_t word = product->words[lane][i / 2];
                a[k][row] = (double)value_of_bits((uint16_t)(word >> i % 2 * 16),
                                                  product->bf16);
            }
        }
    }
    static double sum[ROWS][2 * MAX_SUMS];
    memset(sum, 0, sizeof sum);
    for (unsigned k = 0; k < (product->tf32 ? DEPTH / 2 : (unsigned)DEPTH); k++) {
        for (unsigned row = 0; row < ROWS; row++) {
            const double left = a[k][row];
            for (unsigned n = 0; n < product->n; n++) {
                sum[row][n] += left * b[k][n];
            }
        }
    }
    for (unsigned lane = 0; lane < WARP; lane++) {
        Fibre *fibre = &warp->lanes[lane];
        unsigned i = 0;
        while (i < fibre->naccumulators &&
               fibre->accumulators[i].at != product->d[lane]) {
            i++;
        }
        Accumulator *own = &fibre->accumulators[i];
        for (unsigned k = 0; k < product->n / 2; k++) {
            const unsigned row = lane / 4 + (k / 2 % 2 ? 8 : 0);
            const unsigned column = k / 4 * 8 + lane % 4 * 2 + k % 2;
            const double before = product->add ? (double)own->value[k] : 0;
            own->value[k] = cut(before + sum[row][column]);
        }
        if (--own->in_flight == 0) {
            memcpy((void *)own->at, own->value, own->n * sizeof *own->at);
            *own = fibre->accumulators[--fibre->naccumulators];
        }
    }
}

/* ---- waiting ---- */

static void
check_lanes(const Warp *warp, const Products *p, const Site *site)
{
    const unsigned first = (unsigned)__builtin_ctz(warp->alive);
    for (unsigned left = warp->alive; left; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(left);
        if (p->lanes[lane].issued != p->lanes[first].issued ||
            p->lanes[lane].groups != p->lanes[first].groups) {
            fault(&warp->lanes[lane], site,
                  "lane %u has started %u wgmma in %u groups, lane %u %u in %u", lane,
                  p->lanes[lane].issued, p->lanes[lane].groups, first,
                  p->lanes[first].issued, p->lanes[first].groups);
        }
    }
}

void
products_wait(unsigned pending, const char *file, int line)
{
    Fibre *self = current;
    Warp *warp = self->warp;
    const Site site = {file, line};
    meet(0xffffffffu, EXCHANGE_ALIGNED, NULL, NULL, 0, 0, WARP, file, line);
    Products *p = products_of(self, &site);
    Products::Lane *lane = &p->lanes[self->position.lane];
    if (lane->waits++ < p->waits) {
        return; /* another lane has done it */
    }
    p->waits++;
    check_lanes(warp, p, &site);
    size_t made = 0;
    while (made < p->count && p->list[made].group != NO_GROUP &&
           p->list[made].group + pending < lane->groups) {
        make_product(warp, &p->list[made++]);
    }
    p->done += (uint32_t)made;
    p->count -= made;
    memmove((void *)p->list, p->list + made, p->count * sizeof *p->list);
}

void
products_settled(const float *d, unsigned n, const char *file, int line)
{
    const Fibre *self = current;
    for (unsigned i = 0; i < self->naccumulators; i++) {
        const Accumulator *other = &self->accumulators[i];
        if (d < other->at + other->n && other->at < d + n) {
            const Site site = {file, line};
            fault(self, &site,
                  "uses the accumulator of the wgmma at line %d before wgmma_wait",
                  other->site.line);
        }
    }
}

/* Reports a change of registers that a product in flight still reads. */
static void
check_registers(Fibre *self, uintptr_t address, size_t bytes, uintptr_t pc)
{
    const Products *p = &self->block->async->products[self->warp->index];
    const unsigned lane = self->position.lane;
    for (size_t i = 0; i < p->count; i++) {
        const Product *product = &p->list[i];
        const uintptr_t begin = (uintptr_t)product->registers[lane];
        if (begin && address < begin + sizeof product->words[lane] &&
            begin < address + bytes) {
            const Site site = line_of(pc - 1);
            fault(self, &site,
                  "changes the registers of operand a of the wgmma at line %d before "
                  "wgmma_wait",
                  product->site.line);
        }
    }
}

void
async_check_private(Fibre *self, uintptr_t address, size_t bytes, bool write,
                    uintptr_t pc)
{
    if (write) {
        check_registers(self, address, bytes, pc);
    }
    for (unsigned i = 0; i < self->naccumulators; i++) {
        const Accumulator *a = &self->accumulators[i];
        const uintptr_t begin = (uintptr_t)a->at;
        if (address < begin + a->n * sizeof *a->at && begin < address + bytes) {
            const Site site = line_of(pc - 1);
            fault(self, &site,
                  "uses the accumulator of the wgmma at line %d before wgmma_wait",
                  a->site.line);
        }
    }
}

/* The warps of a warpgroup make the same products. */
void
products_end(Block *block)
{
    const Products *p = block->async->products;
    const unsigned warps = (block->nwarps + WARPGROUP - 1) / WARPGROUP * WARPGROUP;
    for (unsigned w = 0; w < warps; w++) {
        const uint32_t own = w < block->nwarps ? p[w].lanes[0].issued : 0;
        const uint32_t first = p[w / WARPGROUP * WARPGROUP].lanes[0].issued;
        if (own != first) {
            fault(NULL, NULL,
                  "block (%u, %u, %u): warp %u has started %u wgmma, warp %u of its "
                  "warpgroup %u",
                  block->index.x, block->index.y, block->index.z, w, own,
                  w / WARPGROUP * WARPGROUP, first);
            return;
        }
    }
}

} // namespace gpo_sim
