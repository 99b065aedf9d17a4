/* A shutter of this job: it is reserved on the board and published to the ranks, then judged and recorded. */
#ifndef MPICOLOC_OWN_SHUTTER_H
#define MPICOLOC_OWN_SHUTTER_H

#include "agent/shutter/board_view.h"

typedef struct mc_own_shutter {
    int is_open;       /* it waits for its verdict; mc_node.n_shutters does not count it yet */
    int is_judged;     /* on this node; the other nodes' verdict is still to come */
    uint64_t i_common; /* its number among those that all nodes of the job share; 0: it is of this node alone */
    mc_reservation reservation;
    uint64_t guard_ns, t_window_end;
    uint64_t bound_ns; /* the same instant is so far apart on two nodes of the job at most */
    int n_others;
    mc_neighbour others[MC_N_SLOTS];
    uint64_t t_waits; /* when the ranks' waits were read first */
    mc_shutter record;
} mc_own_shutter;

/* Begin the one that `next` reserves. Nothing is begun where it leaves no time for a sampling window. */
void mc_own_shutter_begin(mc_own_shutter *own, const mc_board_view *view, mc_job_ranks *ranks, const mc_node *node,
                          const mc_reservation *next, uint64_t i_common, uint64_t bound_ns);
/* At t0 and, with is_end, at t1 of its record, which gets the part of the time in between for which a rank waited for a
   processor: that of the one that waited most, as the others may have waited for it in MPI. */
void mc_own_shutter_read_waits(mc_own_shutter *own, mc_job_ranks *ranks, int is_end);
/* Once it is over: judge it from what the co-runners said on the board. 1 if it was judged now. */
int mc_own_shutter_judge(mc_own_shutter *own, const mc_board_view *view, uint64_t now);
/* What those have acknowledged who were asked to press, at most MC_N_SLOTS; returns their number. 0: nobody was asked, or
   one of them has not, or is not there any more. */
int mc_own_shutter_acks(const mc_own_shutter *own, const mc_board_view *view, mc_ack *out);
/* Record it and tell the ranks. The verdict is that of the other nodes; a bad one of this node goes first. */
void mc_own_shutter_close(mc_own_shutter *own, mc_job_ranks *ranks, mc_node *node, uint64_t verdict);

#endif
