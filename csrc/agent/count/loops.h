/* Passes of loops, computed from samples of an induction register. Between two samples in the same loop, a thread makes
   as many passes as the register's difference contains steps. */
#ifndef MPICOLOC_LOOPS_H
#define MPICOLOC_LOOPS_H

#include "agent/code/sample_ring.h"
#include "common/mpicoloc.h"

enum { MC_N_LOOPS = 8 };

/* Unit of a loop that was given up, because several times its passes could not be computed from its samples. */
#define MC_TELLS_NOTHING UINT64_MAX

/* The samples of one loop, for each window. */
typedef struct mc_loop_windows {
    uint64_t n_samples[MC_N_COUNT_WINDOWS];
    double sampled_ns[MC_N_COUNT_WINDOWS];                         /* time that these samples stand for */
    double passes[MC_N_COUNT_WINDOWS], ran_ns[MC_N_COUNT_WINDOWS]; /* between consecutive samples */
    uint64_t n_pairs[2], n_back[2]; /* by sampling period: all pairs of samples; pairs with a step back */
    double period_passes[2], period_ns[2];
} mc_loop_windows;

typedef struct mc_loops {
    mc_loop_windows rows[MC_N_LOOPS];
    const mc_place_set *set;
    int i_first, n; /* the loops of the set are its n places from i_first on */
    struct {
        int i_row, i_window;
        uint64_t value, ran_ns;
    } last; /* last sample of the present thread; i_row -1: in no loop */
} mc_loops;

/* Where and when a sample was taken. */
typedef struct mc_sample_place {
    uint64_t offset;
    int i_path; /* index of the file in mc_counts.paths; -1: not listed there */
    int i_window, period;
    double stands_for_ns;
} mc_sample_place;

/* Index of a register among the sampled registers. The stack pointer is not sampled. `reg` is its number in
   mc_effects. */
static inline int mc_sampled_register(int reg)
{
    return reg < 8 ? reg : reg - 1;
}

/* Number of the set's places that are counted by jumps. These places come before the set's loops. */
uint64_t mc_loops_first(const mc_place_set *set);

/* 1: this place is a loop that contains the instruction. */
int mc_loop_holds(const mc_place *place, uint64_t offset, uint64_t i_path);

void mc_loops_begin(mc_loops *loops, const mc_place_set *set);
/* Do not pair the next sample with the last sample: the next one is of another thread, or the thread has left the loop
   in between. */
void mc_loops_cut(mc_loops *loops);

/* Add the thread's next sample. */
void mc_loops_add(mc_loops *loops, const mc_thread_sample *sample, const mc_sample_place *where);

/* Passes of loop i_row in a window; below 0: not known. */
double mc_loops_passes(const mc_loops *loops, int i_row, int i_window);
/* 1: the loop has enough samples, but its passes cannot be computed from them. */
int mc_loops_fail(const mc_loops *loops, int i_row);

#endif
