/* What the kernel can say about a running thread without hardware counters: where it is, and how often it comes to
   an address. */
#ifndef MPICOLOC_PROBE_H
#define MPICOLOC_PROBE_H

#include <stddef.h>
#include <stdint.h>

/* For a function whose address must stand for all its calls. clang makes no copies of functions, and does not know
   `noclone`. */
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

/* MC_OK, or MC_E_PERF with the reason in words. Safe even where a system-call filter kills who tries. */
int mc_probe_available(char *reason, size_t size);

/* How long one hit of a breakpoint takes, measured on this thread. */
uint64_t mc_probe_hit_ns(void);

/* Factor by which a loop is slower while a breakpoint, never hit, is in its 64 bytes of code: 14 on AMD's processors
   of 2024, 1 on others. */
double mc_probe_line_cost(void);

/* Sample from now on, by the thread's processor time: its place and the top of its stack every 4 ms, or only its
   place every 0.25 ms. */
int mc_probe_sample(mc_probe *probe, int tid, int with_stack);
/* Only its place, every so often: the ring holds 4,000 samples. */
int mc_probe_sample_places(mc_probe *probe, int tid, uint64_t every_ns);

/* From mc_probe_start on, count how often a thread executes the instruction at this address. It causes no signal.
   The ring gets the instants of the first n_times hits. */
int mc_probe_hits(mc_probe *probe, int tid, uint64_t address, int n_times);

/* After n_max hits the kernel removes the breakpoint, so that one on a busy place costs little. */
int mc_probe_start(const mc_probe *probe, int n_max);

/* Number of hits, or nanoseconds of processor time where places are sampled; and the processor time that the thread
   used meanwhile. */
int mc_probe_read(const mc_probe *probe, uint64_t *n, uint64_t *ran_ns);

/* Call found() for each record of the ring. Samples: the place, the number of stack bytes, the stack. Hits: the
   time. */
void mc_probe_each(const mc_probe *probe, void (*found)(void *data, const uint64_t *words, size_t n), void *data);

/* Stop; the ring keeps its records. */
void mc_probe_stop(const mc_probe *probe);

void mc_probe_close(mc_probe *probe);

#endif
