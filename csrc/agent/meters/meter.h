/* A meter measures the progress of this job in its shutters. It is a row of functions; null.c has the one that
   measures nothing. */
#ifndef MPICOLOC_METER_H
#define MPICOLOC_METER_H

#include "agent/shutter/own_shutter.h"

typedef struct mc_meter {
    const struct mc_meter_ops *ops;
    void *state; /* what its functions keep */
    mc_node *node;
    mc_job_ranks *ranks;
} mc_meter;

/* Whether the meter searches for places to count. */
enum { MC_SEARCH_IMPOSSIBLE, MC_SEARCH_IDLE, MC_SEARCH_RUNNING };

/* The functions below of the same names say what these do; NULL: nothing. */
typedef struct mc_meter_ops {
    const char *name;                              /* in the option meter */
    uint64_t recorded_as;                          /* MC_METER_*, in the node file */
    int (*open)(mc_meter *meter, uint64_t t_open); /* 0: it cannot work here, and the node file says why */
    void (*close)(mc_meter *meter);
    int (*step)(mc_meter *meter, int has_shutters, uint64_t t_free, uint64_t now, int *wake);
    int (*is_due)(const mc_meter *meter, int has_shutters, uint64_t now);
    int (*search)(const mc_meter *meter);
    uint64_t (*around_ns)(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns);
    double (*cycle_ns)(const mc_meter *meter); /* NULL or 0: of what the ranks record */
    void (*measure)(mc_meter *meter, mc_own_shutter *own, uint64_t around_ns, int *wake);
} mc_meter_ops;

extern const mc_meter_ops mc_meter_ipc, mc_meter_count, mc_meter_burst, mc_meter_null;

/* The best one that works here, from the one on that the option names; the node file says which and why. */
void mc_meter_choose(mc_meter *meter, mc_node *node, mc_job_ranks *ranks, uint64_t t_open);
void mc_meter_close(mc_meter *meter);
/* From now on nothing is measured. */
void mc_meter_lose(mc_meter *meter);

/* Go on with the search for places to count. t_free: the agent has nothing else to do until then. 1: some were found just
   now. */
int mc_meter_step(mc_meter *meter, int has_shutters, uint64_t t_free, uint64_t now, int *wake);
/* 1: it has something to do between shutters. */
int mc_meter_is_due(const mc_meter *meter, int has_shutters, uint64_t now);
/* MC_SEARCH_* */
int mc_meter_search(const mc_meter *meter);

/* Length of a window beside the shutter, which itself is planned to last planned_ns; 0: it counts in none. */
uint64_t mc_meter_around_ns(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns);
/* Length of the cycle that a random instant falls into, for which shutters are made long enough; 0: none is recorded,
   -1: not known. */
double mc_meter_cycle_ns(const mc_meter *meter);
/* Measure in this shutter, if it is open. Waits until the windows are over, or *wake is not 0. */
void mc_meter_measure(mc_meter *meter, mc_own_shutter *own, uint64_t around_ns, int *wake);

#endif
