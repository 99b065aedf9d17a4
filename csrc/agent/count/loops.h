/* Passes of loops, by samples of the register that each pass steps: between two samples of a thread in one loop it has
   made (difference / step) passes. */
#ifndef MPICOLOC_LOOPS_H
#define MPICOLOC_LOOPS_H

#include "agent/code/sample_ring.h"
#include "common/mpicoloc.h"

enum { MC_N_LOOPS = 8 };

/* The unit of a loop whose samples have told nothing several times: it is not counted any more. */
#define MC_TELLS_NOTHING UINT64_MAX

/* Samples of one place, in each window. */
typedef struct mc_loop_windows {
    uint64_t n_samples[MC_N_COUNT_WINDOWS];
    double sampled_ns[MC_N_COUNT_WINDOWS];                         /* that these stand for */
    double passes[MC_N_COUNT_WINDOWS], ran_ns[MC_N_COUNT_WINDOWS]; /* between samples that follow each other */
    uint64_t n_pairs[2], n_back[2]; /* of both periods of samples; against the step, as the loop began anew */
    double period_passes[2], period_ns[2];
} mc_loop_windows;

typedef struct mc_loops {
    mc_loop_windows rows[MC_N_LOOPS];
    const mc_place_set *set;
    int i_first, n; /* places of the set that are loops */
    struct {
        int i_row, i_window;
        uint64_t value, ran_ns;
    } last; /* sample of the present thread; i_row -1: in no loop */
} mc_loops;

/* Where and when a sample was taken. */
typedef struct mc_sample_place {
    uint64_t offset;
    int i_path; /* of the file; -1: elsewhere */
    int i_window, period;
    double stands_for_ns;
} mc_sample_place;

/* Number among the registers that are sampled, of one as in mc_effects: the stack pointer is missing. */
static inline int mc_sampled_register(int reg)
{
    return reg < 8 ? reg : reg - 1;
}

/* Places of a set that a jump counts; loops stand behind them. */
uint64_t mc_loops_first(const mc_place_set *set);

/* 1: this place is a loop, and the instruction lies in it. */
int mc_loop_holds(const mc_place *place, uint64_t offset, uint64_t i_path);

void mc_loops_begin(mc_loops *loops, const mc_place_set *set);
/* The next sample does not follow the last one: it is of another thread, or code elsewhere ran between them. */
void mc_loops_cut(mc_loops *loops);

/* The next sample of the thread. */
void mc_loops_add(mc_loops *loops, const mc_thread_sample *sample, const mc_sample_place *where);

/* Passes of loop i_row in a window; below 0: not known. */
double mc_loops_passes(const mc_loops *loops, int i_row, int i_window);
/* 1: there were samples in the loop, and they do not tell its passes. */
int mc_loops_fail(const mc_loops *loops, int i_row);

#endif
