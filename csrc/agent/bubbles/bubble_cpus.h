/* Sets of processors: where a job's bubbles may run, and where others' ranks are. */
#ifndef MPICOLOC_BUBBLE_CPUS_H
#define MPICOLOC_BUBBLE_CPUS_H

#include "agent/shutter/ranks.h"

typedef struct mc_cpus {
    uint64_t words[MC_N_CPU_WORDS]; /* bit i % 64 of word i / 64: processor i */
} mc_cpus;

/* Those that the slot's job may use, as it says. */
mc_cpus mc_cpus_of_slot(const mc_slot *slot);
/* Those that ranks of the own job may use. */
mc_cpus mc_cpus_of_ranks(const mc_job_ranks *ranks);
/* Those of a list such as 0-3,8; without one all that there might be. */
mc_cpus mc_cpus_of_list(const char *list);
/* Those that are online; if that is not known, all that there might be. */
mc_cpus mc_cpus_of_machine(void);

mc_cpus mc_cpus_or(mc_cpus a, mc_cpus b);
mc_cpus mc_cpus_and(mc_cpus a, mc_cpus b);
mc_cpus mc_cpus_without(mc_cpus a, mc_cpus b);
int mc_cpus_n(const mc_cpus *cpus);
/* The first one after `cpu`, which is -1 at the begin; -1: there is none. */
int mc_cpus_next(const mc_cpus *cpus, int cpu);

#endif
