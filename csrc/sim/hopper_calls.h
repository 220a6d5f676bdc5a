/*
 * hopper_calls.h  What the C++ equivalents of device/wgmma.cuh and hopper.cuh call:
 * mbarriers and copies (copies.cpp; by tensor map see tensor_map.h), products of
 * matrices (wgmma.cpp), clusters (cluster.cpp).  Addresses of shared memory
 * are numbers, as in PTX.
 */
#ifndef GPO_SIM_HOPPER_CALLS_H
#define GPO_SIM_HOPPER_CALLS_H

#include "tensor_map.h"

namespace gpo_sim {

uint32_t shared_number(const void *p, const char *file, int line);
uint32_t shared_word(uint32_t address, const char *file, int line);
void proxy_fence();

/* ---- clusters and named barriers; a peer's address holds its rank ---- */

gpo_status launch_clusters(gpo_call *call, void (*run)(const void *),
                           const void *arguments, size_t arguments_bytes, dim3 grid,
                           dim3 block, size_t shared_bytes, const char *kernel,
                           unsigned cluster);
unsigned cluster_rank();
unsigned cluster_size();
void cluster_sync(const char *file, int line);
uint32_t peer_address(uint32_t address, unsigned rank, const char *file, int line);
uint32_t peer_word(uint32_t address, const char *file, int line);
void store_peer_word(uint32_t address, uint32_t word, const char *file, int line);
void named_barrier(unsigned id, unsigned threads, bool waits, const char *file,
                   int line);

/* ---- mbarriers ---- */

void mbarrier_init(uint32_t address, uint32_t count, const char *file, int line);
void mbarrier_end(uint32_t address, const char *file, int line);
void mbarrier_arrive(uint32_t address, uint32_t bytes, uint32_t count, const char *file,
                     int line);
bool mbarrier_test(uint32_t address, uint32_t parity, const char *file, int line);
void mbarrier_wait(uint32_t address, uint32_t parity, const char *file, int line);

/* ---- copies ---- */

void bulk_load_start(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier,
                     const char *file, int line);
void bulk_store_start(void *to, uint32_t from, uint32_t bytes, bool adds_floats,
                      const char *file, int line);
void bulk_store_wait(bool only_read, const char *file, int line);
void copy_16_start(uint32_t to, const void *from, bool wanted, const char *file,
                   int line);
void copy_16_wait();

/* ---- products: a 64 x 16 and b 16 x n, in shared memory as wgmma.cuh says ---- */

void products_fence();
void products_commit();
void products_wait(unsigned pending, const char *file, int line);
void products_settled(const float *d, unsigned n, const char *file, int line);

/* a is four words per thread, or NULL and then the descriptor a_shared. */
void product_start(float *d, unsigned n, const uint32_t *a, uint64_t a_shared,
                   uint64_t b, bool bf16, bool add, const char *file, int line);

} // namespace gpo_sim

#endif
