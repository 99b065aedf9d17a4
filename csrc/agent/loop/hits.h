/* Hits of a breakpoint in and around a shutter, per thread. The kernel notes the instant of every hit. So the agent
   need not wake at the edges, where it would disturb the ranks. The results are sums over the threads. */
#ifndef MPICOLOC_HITS_H
#define MPICOLOC_HITS_H

#include "common/mpicoloc.h"

/* BEGIN is from the pause's begin to the sampling window, END just after the pause. */
enum { MC_SPAN_BEFORE, MC_SPAN_BEGIN, MC_SPAN_DURING, MC_SPAN_END, MC_SPAN_AFTER, MC_N_SPANS };

typedef struct mc_passes {
    uint64_t t0[MC_N_SPANS], t1[MC_N_SPANS], n[MC_N_SPANS], n_all;
    mc_edge begin, end; /* distances; their n and window_ns are those of the spans */
    uint64_t ran_ns;    /* processor time of the threads that had hits in co-run */
    uint64_t n_threads; /* number of those threads */
} mc_passes;

/* One thread; times are in ns from the begin of the first span. */
typedef struct mc_track {
    const mc_passes *all;
    uint64_t n[MC_N_SPANS], n_all;
    double last_before, last_far, last_near, first_near, first_far, last_after; /* the hits nearest to the edges */
    double age, lead; /* integrals over instants before and after: time since the last hit, and until the next */
} mc_track;

void mc_track_begin(mc_track *track, const mc_passes *all);
/* Call it for the hits in order of time. */
void mc_track_hit(mc_track *track, uint64_t t);
void mc_track_end(mc_track *track, mc_passes *all, uint64_t ran_ns);

#endif
