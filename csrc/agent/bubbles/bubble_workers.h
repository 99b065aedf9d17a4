/* Threads that press on memory when they are told to, each on a processor of its own, and one that wakes them in time. They
   belong to the agent's process, and end with it. */
#ifndef MPICOLOC_BUBBLE_WORKERS_H
#define MPICOLOC_BUBBLE_WORKERS_H

#include "bubble/bubble.h"

enum { MC_N_BUBBLE_WORKERS = 16 };

typedef struct mc_bubble_workers mc_bubble_workers;

/* They press from t0 to t_end. It counts if they began by t_latest; what they get done, from t_counted on. */
typedef struct mc_bubble_times {
    uint64_t t0, t_latest, t_counted, t_end;
} mc_bubble_times;

/* What one of them got done while that counted. */
typedef struct mc_bubble_work {
    uint64_t n_lines, cpu_ns;
} mc_bubble_work;

/* At most MC_N_BUBBLE_WORKERS, which fetch their memory after this returns; the first one may be the probe. NULL: they cannot
   be started. */
mc_bubble_workers *mc_bubble_workers_open(int n, uint64_t first_bytes, uint64_t other_bytes);
void mc_bubble_workers_close(mc_bubble_workers *workers);
/* 1: all have their memory; 0: not yet; -1: it would take more than half of what was free. */
int mc_bubble_workers_are_ready(const mc_bubble_workers *workers);
/* Put one on a processor. 0: the kernel refuses, as where the process is confined to others. */
int mc_bubble_workers_pin(const mc_bubble_workers *workers, int i, int cpu);

/* Tell the first n to press; returns the turn's number. 0: the lock was taken. Turns are told in the order of their t0: the
   waker sleeps until that of the one before. */
uint64_t mc_bubble_workers_begin(mc_bubble_workers *workers, mc_bubble_times times, mc_bubble_setting setting, int n);
/* Wait until all have ended the turn that they were told last. */
void mc_bubble_workers_await(const mc_bubble_workers *workers, uint64_t until_ns, int *wake);
/* 1: turn i_turn was the last one, and all that were told began in time and had their processors. *out is what the first
   got done. */
int mc_bubble_workers_have_pressed(const mc_bubble_workers *workers, uint64_t i_turn, mc_bubble_work *out);
/* Whether that much processor time means that one had its processor. */
int mc_bubble_had_processor(const mc_bubble_times *times, uint64_t cpu_ns);

#endif
