/* Hardware events of a rank, counted over its whole run. They describe the job; no meter uses them. */
#ifndef MPICOLOC_PMU_H
#define MPICOLOC_PMU_H

#include "common/mpicoloc.h"

/* 1 unless MPICOLOC_COUNTERS is off. With `on`, the default, also 0 if the program has loaded a library that uses
   hardware counters, because that library may need the counters for itself alone. */
int mc_pmu_is_wanted(void);

/* Count the events that MPICOLOC_COUNTERS names and the kernel allows, in the calling thread and in all threads and
   processes that it starts. Call this after starting the keeper: the keeper must not be counted, and only the keeper
   knows whether counting is safe. */
void mc_pmu_start(void);

/* Write the counts into the segment, and stop counting. */
void mc_pmu_stop(mc_segment *segment);

/* In a forked child: forget the descriptors, which are copies. The child's work still counts for its parent. */
void mc_pmu_forget(void);

/* 1 if no system-call filter (seccomp) kills a process for calling these functions, even if the calls fail. A forked
   child tries all calls. Call this only in our own processes, because an application could wait for the child. */
int mc_pmu_is_safe(void);

#endif
