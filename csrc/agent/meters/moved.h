/* How many bytes the MPI calls of one rank move: known for all the time, where places are counted in windows only. */
#ifndef MPICOLOC_MOVED_H
#define MPICOLOC_MOVED_H

#include "agent/shutter/ranks.h"

/* Until one instant, t 0: unknown. alone_ns: time without co-runners, as of the agent's last look; paused_ns: for which
   the ranks stood still. */
typedef struct mc_moved {
    uint64_t t, bytes, paused_ns, alone_ns;
    int pid; /* of the rank */
} mc_moved;

mc_moved mc_moved_until_now(const mc_job_ranks *ranks, const mc_node *node);
/* Between two instants. *ns is without pauses, and 0 if not all of that time was beside co-runners or the rank is not
   the same. */
void mc_moved_between(const mc_moved *from, const mc_moved *to, uint64_t *ns, uint64_t *bytes);

#endif
