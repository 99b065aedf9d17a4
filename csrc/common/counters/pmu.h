/* What the processor counts for a rank over its whole run. These are features of the job, not a meter. */
#ifndef MPICOLOC_PMU_H
#define MPICOLOC_PMU_H

#include "common/mpicoloc.h"

/* 1 unless MPICOLOC_COUNTERS is off. By default also 0 if the program has loaded a library that counts by itself, as
   such a library may rely on having the counters alone. */
int mc_pmu_is_wanted(void);

/* Count the events that MPICOLOC_COUNTERS names and the kernel allows: for the calling thread, and for all threads
   and processes that it starts. Call it after the keeper was started: the keeper would be counted too, and it knows
   whether counting is safe. */
void mc_pmu_start(void);

/* Write down what was counted, and count no more. */
void mc_pmu_stop(mc_segment *segment);

/* In a forked child: forget the descriptors, which are copies. The child's work still counts for its parent. */
void mc_pmu_forget(void);

/* 1 if no system-call filter (seccomp) kills a process for what these functions do, whatever the kernel answers: a
   forked child tries it all. Only for processes of our own: an application might wait for its children. */
int mc_pmu_is_safe(void);

#endif
