/* Samples of a running thread's program counter, taken by the kernel without hardware counters. */
#ifndef MPICOLOC_SAMPLE_RING_H
#define MPICOLOC_SAMPLE_RING_H

#include <stddef.h>
#include <stdint.h>

typedef struct mc_sample_ring {
    int fd;
    char *map;
    size_t n_bytes;
    int has_registers;
} mc_sample_ring;

enum { MC_N_SAMPLED_REGISTERS = 15, MC_N_REGISTER_SAMPLES = 850 };

typedef struct mc_thread_sample {
    uint64_t address;
    /* With registers: processor time of the thread, and RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8 to R15. */
    uint64_t ran_ns;
    const uint64_t *registers; /* NULL: no registers */
} mc_thread_sample;

/* Sample the thread's program counter from now on, at intervals of every_ns of its processor time; there is room for
   4,000 samples, or 850 with registers. Returns MC_E_PERF, with errno set, if the kernel refuses. */
int mc_sample_ring_open(mc_sample_ring *ring, int tid, uint64_t every_ns, int has_registers);

/* Set the sampling interval; the next sample comes one interval from now. */
void mc_sample_ring_set_every(const mc_sample_ring *ring, uint64_t every_ns);

/* Processor time that the thread has used since the ring was opened. */
int mc_sample_ring_ran_ns(const mc_sample_ring *ring, uint64_t *ran_ns);

/* Call found() for each sample in order of time, unless found is NULL; returns the number of samples. */
uint64_t mc_sample_ring_each(const mc_sample_ring *ring, void (*found)(void *data, const mc_thread_sample *sample),
                             void *data);

/* Stop sampling. The ring keeps its samples. */
void mc_sample_ring_stop(const mc_sample_ring *ring);

void mc_sample_ring_close(mc_sample_ring *ring);

#endif
