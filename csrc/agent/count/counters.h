/* The counters of a job's threads, read by the agent from the ranks' own memory. */
#ifndef MPICOLOC_COUNTERS_OF_THREADS_H
#define MPICOLOC_COUNTERS_OF_THREADS_H

#include "agent/shutter/ranks.h"
#include "common/mpicoloc.h"

/* Layout in a thread's memory (csrc/guest/count/patch.c). */
typedef struct mc_thread_count {
    uint64_t tid;
    uint64_t n[MC_N_PLACES];
} mc_thread_count;

typedef struct mc_snapshot {
    mc_thread_count *rows;
    size_t n, n_room;
    uint64_t t; /* when it was taken */
} mc_snapshot;

/* Returns MC_OK; MC_E_GONE, with errno set, if a rank's memory cannot be read; MC_E_FULL if there is no memory left. */
int mc_snapshot_take(mc_snapshot *snapshot, const mc_job_ranks *ranks);
/* Passes of each place between two snapshots, summed over the threads that are in both; returns the sum over all
   places. */
uint64_t mc_snapshot_between(const mc_snapshot *begin, const mc_snapshot *end, uint64_t sums[MC_N_PLACES]);
void mc_snapshot_free(mc_snapshot *snapshot);

#endif
