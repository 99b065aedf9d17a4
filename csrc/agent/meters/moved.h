/* How many bytes the MPI calls of one rank move: known for all the time, where places are counted in windows only. */
#ifndef MPICOLOC_MOVED_H
#define MPICOLOC_MOVED_H

#include "agent/shutter/ranks.h"

/* Until one instant. shared_ns: time beside co-runners; paused_ns: for which that rank stood still. */
typedef struct mc_moved {
    uint64_t t, bytes, paused_ns, shared_ns;
} mc_moved;

mc_moved mc_moved_until_now(const mc_job_ranks *ranks, const mc_node *node);
/* Since the end of the last shutter; *ns is 0 if not all of that time was beside co-runners. */
void mc_moved_since(const mc_moved *from, const mc_moved *to, uint64_t *ns, uint64_t *bytes);

#endif
