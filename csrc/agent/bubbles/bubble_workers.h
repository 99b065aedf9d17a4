/* Threads that run bubbles, each pinned to a processor, and a thread that wakes them in time. All these threads belong
   to the agent's process and end with it. */
#ifndef MPICOLOC_BUBBLE_WORKERS_H
#define MPICOLOC_BUBBLE_WORKERS_H

#include "bubble/bubble.h"

enum { MC_N_BUBBLE_WORKERS = 16 };

typedef struct mc_bubble_workers mc_bubble_workers;

/* Bubbles run from t0 to t_end. A bubble is valid if it began no later than t_latest. Its work is counted from
   t_counted on. */
typedef struct mc_bubble_times {
    uint64_t t0, t_latest, t_counted, t_end;
} mc_bubble_times;

/* Work of one bubble from t_counted to t_end. */
typedef struct mc_bubble_work {
    uint64_t n_lines, cpu_ns;
} mc_bubble_work;

/* Start n workers, at most MC_N_BUBBLE_WORKERS. The workers allocate their memory after this function has returned. The
   first worker can also run the probe. Returns NULL if the threads cannot be started. */
mc_bubble_workers *mc_bubble_workers_open(int n, uint64_t first_bytes, uint64_t other_bytes);
void mc_bubble_workers_close(mc_bubble_workers *workers);
/* 1: all workers have their memory; 0: not yet; -1: a worker cannot get memory, usually because the workers together
   would take more than half of the free memory. */
int mc_bubble_workers_are_ready(const mc_bubble_workers *workers);
/* Pin worker i to a processor. Returns 0 if the kernel refuses, for example because the process is confined to other
   processors. */
int mc_bubble_workers_pin(const mc_bubble_workers *workers, int i, int cpu);

/* Start a turn of the first n workers. Returns the number of the turn, or 0 if another thread held the lock. Start
   turns in the order of their t0, because the waker sleeps until the t0 of one turn before it reads the next turn. */
uint64_t mc_bubble_workers_begin(mc_bubble_workers *workers, mc_bubble_times times, mc_bubble_setting setting, int n);
/* Wait until all workers have ended the last turn. */
void mc_bubble_workers_await(const mc_bubble_workers *workers, uint64_t until_ns, int *wake);
/* 1: i_turn was the last turn, and all its workers began in time and had their processors to themselves. *out: work of
   the first worker. */
int mc_bubble_workers_have_pressed(const mc_bubble_workers *workers, uint64_t i_turn, mc_bubble_work *out);
/* Whether a bubble that used cpu_ns of processor time had its processor to itself. */
int mc_bubble_had_processor(const mc_bubble_times *times, uint64_t cpu_ns);

#endif
