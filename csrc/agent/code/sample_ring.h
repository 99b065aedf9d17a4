/* Where a running thread is, sampled by the kernel without hardware counters. */
#ifndef MPICOLOC_SAMPLE_RING_H
#define MPICOLOC_SAMPLE_RING_H

#include <stddef.h>
#include <stdint.h>

typedef struct mc_sample_ring {
    int fd;
    char *map;
    size_t n_bytes;
} mc_sample_ring;

/* From now on sample the thread's program counter after every_ns of its processor time each; there is room for 4,000
   samples. MC_E_PERF, with errno set. */
int mc_sample_ring_open(mc_sample_ring *ring, int tid, uint64_t every_ns);

/* Processor time that the thread has used since. */
int mc_sample_ring_ran_ns(const mc_sample_ring *ring, uint64_t *ran_ns);

/* Call found(), if there is one, for each sample, in the order of time; returns their number. */
uint64_t mc_sample_ring_each(const mc_sample_ring *ring, void (*found)(void *data, uint64_t address), void *data);

/* Stop; the ring keeps its samples. */
void mc_sample_ring_stop(const mc_sample_ring *ring);

void mc_sample_ring_close(mc_sample_ring *ring);

#endif
