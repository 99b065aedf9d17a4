/* A shutter of this job: it is reserved on the board and published to the ranks, then judged and recorded. */
#ifndef MPICOLOC_OWN_SHUTTER_H
#define MPICOLOC_OWN_SHUTTER_H

#include "agent/shutter/board_view.h"

typedef struct mc_own_shutter {
    int is_open;       /* the shutter waits for its verdict; mc_node.n_shutters does not count it yet */
    int is_judged;     /* the shutter is judged on this node; the verdict of the other nodes is still missing */
    uint64_t i_common; /* number among the job's shutters on all nodes; 0: the shutter is on this node only */
    mc_reservation reservation;
    uint64_t guard_ns, t_window_end;
    uint64_t bound_ns; /* largest difference between the clocks of two nodes of the job */
    int n_others;
    mc_neighbour others[MC_N_SLOTS];
    uint64_t t_waits; /* when the ranks' waits were first read */
    mc_shutter record;
} mc_own_shutter;

/* Begin the shutter that `next` describes. Does nothing if it is too short for a sampling window. */
void mc_own_shutter_begin(mc_own_shutter *own, const mc_board_view *view, mc_job_ranks *ranks, const mc_node *node,
                          const mc_reservation *next, uint64_t i_common, uint64_t bound_ns);
/* Read how long ranks have waited for processors. Call this at t0 and, with is_end, at t1 of the record. The second
   call records the longest wait of one rank, as a fraction of the time between the calls. The longest wait counts
   because the other ranks may have waited for that rank in MPI. */
void mc_own_shutter_read_waits(mc_own_shutter *own, mc_job_ranks *ranks, int is_end);
/* Judge the shutter after its end, from the co-runners' acknowledgements on the board. Returns 1 if this call judged
   it. */
int mc_own_shutter_judge(mc_own_shutter *own, const mc_board_view *view, uint64_t now);
/* Get the acknowledgements of the co-runners that were asked to run bubbles, at most MC_N_SLOTS; returns their number.
   Returns 0 if no co-runner was asked, or if one of them has not acknowledged or has left the board. */
int mc_own_shutter_acks(const mc_own_shutter *own, const mc_board_view *view, mc_ack *out);
/* Record the shutter and its verdict, and publish them to the ranks. `verdict` is the verdict of the other nodes; a bad
   verdict of this node takes precedence. */
void mc_own_shutter_close(mc_own_shutter *own, mc_job_ranks *ranks, mc_node *node, uint64_t verdict);

#endif
