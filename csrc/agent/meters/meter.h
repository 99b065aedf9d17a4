/* How the progress of this job is measured in its shutters: by ipc, by count, or by the bursts that its ranks record
   themselves. */
#ifndef MPICOLOC_METER_H
#define MPICOLOC_METER_H

#include "agent/meters/count.h"
#include "agent/meters/ipc.h"

typedef struct mc_meter {
    mc_thread_counts *thread_counts; /* NULL: the meter is not ipc */
    mc_count_meter *count;           /* NULL: it is not count, and cannot become that */
} mc_meter;

/* The best one that works here, or the one that the option names; the node file says which and why. */
void mc_meter_choose(mc_meter *meter, mc_node *node, mc_job_ranks *ranks, uint64_t t_open);
void mc_meter_close(mc_meter *meter);
/* Without a board nothing is counted, and nothing is searched for. */
void mc_meter_lose_places(mc_meter *meter);

/* Go on with the search for what is counted. t_free: the agent has nothing else to do until then. 1: something was found
   just now. */
int mc_meter_step(mc_meter *meter, int has_shutters, uint64_t t_free, uint64_t now, int *wake);

/* 1: it counts in windows beside the shutter too. */
int mc_meter_has_windows(const mc_meter *meter);
/* Length of such a window, where there are any; planned_ns: of the shutter. */
uint64_t mc_meter_around_ns(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns);
/* 1: it has something to do between shutters. */
int mc_meter_is_due(const mc_meter *meter, int has_shutters, uint64_t now);
/* 1: places are counted, or may be found yet. */
int mc_meter_may_count(const mc_meter *meter);
/* 1: it still searches for what it counts. */
int mc_meter_is_searching(const mc_meter *meter);
/* Length of the cycle that a random instant falls into, for which shutters are made long enough; 0: none is recorded,
   -1: not known. */
double mc_meter_cycle_ns(const mc_meter *meter, const mc_job_ranks *ranks);

/* Waits until the windows are over, or *wake is not 0. */
void mc_meter_measure(mc_meter *meter, mc_own_shutter *own, const mc_job_ranks *ranks, mc_node *node,
                      uint64_t around_ns, int *wake);

#endif
