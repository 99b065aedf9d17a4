/* What the processor counts for a rank over its whole run: features of the job, not a meter. */
#ifndef MPICOLOC_PMU_H
#define MPICOLOC_PMU_H

#include "common/mpicoloc.h"

/* MPICOLOC_COUNTERS is not off. By default that is also 0 where the program has loaded a library to count by itself,
   which may take it for granted that it has the processor's counters for itself. */
int mc_pmu_is_wanted(void);

/* Begin to count the events that MPICOLOC_COUNTERS asks for and the kernel allows, for the calling thread and all that
   comes from it. Not before the keeper was started, which would be counted too and says whether this is safe. */
void mc_pmu_start(void);

/* Write down what was counted, and count no more. */
void mc_pmu_stop(mc_segment *segment);

/* In a forked child: the descriptors are copies. Its work counts for its parent all the same. */
void mc_pmu_forget(void);

/* 1 if no filter of system calls (seccomp) ends a process for what the above do, whatever the kernel answers: a forked
   child tries it all. For a process of our own, as the application may look after its children. */
int mc_pmu_is_safe(void);

#endif
