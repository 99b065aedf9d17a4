/* Hardware counts of all threads of a job in windows, and the part of these counts outside MPI, for the meter ipc. */
#ifndef MPICOLOC_THREAD_COUNTS_H
#define MPICOLOC_THREAD_COUNTS_H

#include "common/mpicoloc.h"

typedef struct mc_thread_counts mc_thread_counts;

/* A thread to watch, and where it publishes its MPI calls. */
typedef struct mc_followed {
    int tid;
    int is_unpublished;       /* 1: the thread may call MPI without publishing its calls */
    const mc_lane_head *lane; /* NULL: the thread calls no MPI */
} mc_followed;

mc_thread_counts *mc_thread_counts_open(void); /* NULL: no memory */
void mc_thread_counts_close(mc_thread_counts *counts);

/* Watch exactly these threads from now on; threads that were watched before keep their counters. Returns the number of
   threads that cannot be watched, because there are too many threads or too many open files. */
int mc_thread_counts_follow(mc_thread_counts *counts, const mc_followed *threads, int n);

/* Record the counts of all watched threads at the start (0) or end (1) of a window in this span. */
void mc_thread_counts_note(mc_thread_counts *counts, int i_end, uint64_t span);

/* Counts of all watched threads from start to end of the window. Returns 1 if `outside`, the part outside MPI calls, is
   known for all threads; 0 if it is not; MC_E_PERF if the counters of a thread could not be read, so that there are no
   counts. */
int mc_thread_counts_between(const mc_thread_counts *counts, mc_ipc *all, mc_ipc *outside);

#endif
