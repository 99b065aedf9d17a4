/* Hits of a breakpoint in and around a shutter, thread by thread. The kernel has noted the instant of every hit, so
   that the agent, which would be in the way of the ranks, need not look at the edges;
   what is kept of them are sums over the threads. */
#ifndef MPICOLOC_HITS_H
#define MPICOLOC_HITS_H

#include "common/mpicoloc.h"

/* BEGIN is from the pause's begin until sampling, END just after the pause. */
enum { MC_SPAN_BEFORE, MC_SPAN_BEGIN, MC_SPAN_DURING, MC_SPAN_END, MC_SPAN_AFTER, MC_N_SPANS };

typedef struct mc_passes {
    uint64_t t0[MC_N_SPANS], t1[MC_N_SPANS], n[MC_N_SPANS], n_all;
    mc_edge begin, end; /* distances; their n and window_ns are those of the spans */
    uint64_t ran_ns;    /* of the threads that came by in co-run, */
    uint64_t n_threads; /* and their number */
} mc_passes;

/* One thread's, in ns from the begin of the first span. */
typedef struct mc_track {
    const mc_passes *all;
    uint64_t n[MC_N_SPANS], n_all;
    double last_before, last_far, last_near, first_near, first_far, last_after; /* hits next to the edges */
    double age, lead; /* integrals over instants before and after, of the time since a hit and until one */
} mc_track;

void mc_track_begin(mc_track *track, const mc_passes *all);
/* Hits come in the order of time. */
void mc_track_hit(mc_track *track, uint64_t t);
void mc_track_end(mc_track *track, mc_passes *all, uint64_t ran_ns);

#endif
