/* A meter measures the progress of this job in its shutters. It is a table of functions; null.c has the meter that
   measures nothing. */
#ifndef MPICOLOC_METER_H
#define MPICOLOC_METER_H

#include "agent/shutter/own_shutter.h"

typedef struct mc_meter {
    const struct mc_meter_ops *ops;
    void *state; /* the meter's own state */
    mc_node *node;
    mc_job_ranks *ranks;
} mc_meter;

/* State of the meter's search for places to count. */
enum { MC_SEARCH_IMPOSSIBLE, MC_SEARCH_IDLE, MC_SEARCH_RUNNING };

/* Operations of a meter. The functions mc_meter_* below explain them. An operation that is NULL does nothing. */
typedef struct mc_meter_ops {
    const char *name;                              /* in the option meter */
    uint64_t recorded_as;                          /* MC_METER_*, in the node file */
    int (*open)(mc_meter *meter, uint64_t t_open); /* 0: the meter cannot work here, and the node file says why */
    void (*close)(mc_meter *meter);
    int (*step)(mc_meter *meter, int has_shutters, uint64_t t_free, uint64_t now, int *wake);
    int (*is_due)(const mc_meter *meter, int has_shutters, uint64_t now);
    int (*search)(const mc_meter *meter);
    uint64_t (*around_ns)(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns);
    double (*cycle_ns)(const mc_meter *meter); /* NULL, or result 0: the cycles that the ranks record are used */
    void (*measure)(mc_meter *meter, mc_own_shutter *own, uint64_t around_ns, int *wake);
} mc_meter_ops;

extern const mc_meter_ops mc_meter_ipc, mc_meter_count, mc_meter_burst, mc_meter_null;

/* Choose the best meter that works here, beginning with the one that the option names. The node file says which meter
   was chosen, and why. */
void mc_meter_choose(mc_meter *meter, mc_node *node, mc_job_ranks *ranks, uint64_t t_open);
void mc_meter_close(mc_meter *meter);
/* Stop measuring: the meter becomes `none`. */
void mc_meter_lose(mc_meter *meter);

/* Continue the search for places to count. t_free: instant until which the agent has nothing else to do. Returns 1 if
   places were found in this step. */
int mc_meter_step(mc_meter *meter, int has_shutters, uint64_t t_free, uint64_t now, int *wake);
/* 1: the meter has something to do between shutters. */
int mc_meter_is_due(const mc_meter *meter, int has_shutters, uint64_t now);
/* MC_SEARCH_* */
int mc_meter_search(const mc_meter *meter);

/* Length of the windows beside a shutter that lasts planned_ns; 0: the meter has none. */
uint64_t mc_meter_around_ns(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns);
/* Mean length of the cycle that runs at a random instant; 0: no cycle is recorded; -1: unknown. Shutters are made long
   enough for a cycle of this length. */
double mc_meter_cycle_ns(const mc_meter *meter);
/* Measure in this shutter, if it is open. This function waits until the windows are over or *wake is not 0. */
void mc_meter_measure(mc_meter *meter, mc_own_shutter *own, uint64_t around_ns, int *wake);

#endif
