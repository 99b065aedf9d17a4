/* The ipc meter: instructions and cycles of a job's threads, in user space. */
#ifndef MPICOLOC_PERF_H
#define MPICOLOC_PERF_H

#include "mpicoloc.h"

typedef struct mc_perf mc_perf;

/* MC_OK, or MC_E_PERF with the reason in words. */
int mc_perf_available(char *reason, size_t size);

/* What an error number of perf_event_open means to a user who wanted such things. */
void mc_perf_why(const char *what, int error, char *reason, size_t size);

mc_perf *mc_perf_open(void); /* NULL: no memory */
void mc_perf_close(mc_perf *perf);

/* Watch exactly these threads from now on; counters of known ones run on. */
void mc_perf_follow(mc_perf *perf, const int *tids, int n);

/* Counts of all followed threads since they were first followed; threads that ended keep theirs. */
mc_ipc mc_perf_read(mc_perf *perf);

#endif
