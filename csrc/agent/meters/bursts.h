/* How long the cycles of a job are, from one MPI call to the next: from the tables of one of its ranks. */
#ifndef MPICOLOC_BURSTS_H
#define MPICOLOC_BURSTS_H

#include "agent/shutter/ranks.h"

/* Length of the cycle that a random instant falls into; 0 when none is recorded, -1 without a rank. */
double mc_mean_cycle_ns(const mc_job_ranks *ranks);
/* The same with the cycle that is under way; 1 if it is too long to be seen in a shutter of max_ns at most. */
int mc_cycles_too_long(const mc_job_ranks *ranks, uint64_t max_ns, uint64_t now, double *mean_ns);

#endif
