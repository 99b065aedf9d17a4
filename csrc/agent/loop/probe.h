/* What the kernel tells of a running thread without hardware counters: where it is,
   and how often it comes to an address. */
#ifndef MPICOLOC_PROBE_H
#define MPICOLOC_PROBE_H

#include <stddef.h>
#include <stdint.h>

/* Of a function whose address stands for all its calls. clang makes no copies, and does not know the word. */
#ifdef __clang__
#define MC_ONE_PLACE __attribute__((noinline))
#else
#define MC_ONE_PLACE __attribute__((noinline, noclone))
#endif

typedef struct mc_probe {
    int fd;
    char *ring;
    size_t ring_bytes;
} mc_probe;

/* MC_OK, or MC_E_PERF with the reason in words. Harmless where a filter of system calls ends who tries. */
int mc_probe_available(char *reason, size_t size);

/* What one hit of a breakpoint takes, measured on this thread. */
uint64_t mc_probe_hit_ns(void);

/* How many times as long a loop takes while a breakpoint stands in its 64 bytes of code, though it is never hit:
   14 times with AMD's processors of 2024, 1 with others. */
double mc_probe_line_cost(void);

/* From now on, by a thread's processor time: every 4 ms its place and the top of its stack,
   or every 0.25 ms its place. */
int mc_probe_sample(mc_probe *probe, int tid, int with_stack);

/* Count how often a thread executes the instruction at an address, from mc_probe_start on. No signal comes of it.
   The ring gets the instants of the first n_times. */
int mc_probe_hits(mc_probe *probe, int tid, uint64_t address, int n_times);

/* After n_max hits the kernel takes the breakpoint away by itself, so that one on a busy place costs little. */
int mc_probe_start(const mc_probe *probe, int n_max);

/* Hits, and the processor time that the thread used meanwhile. */
int mc_probe_read(const mc_probe *probe, uint64_t *n, uint64_t *ran_ns);

/* Each record of the ring: of samples the place, then the bytes of stack and the stack itself; of hits
   the time. */
void mc_probe_each(const mc_probe *probe, void (*found)(void *data, const uint64_t *words, size_t n), void *data);

/* What the ring has stays. */
void mc_probe_stop(const mc_probe *probe);

void mc_probe_close(mc_probe *probe);

#endif
