/* A shutter of another job. This job's ranks pause, and the board records the time of the pause. */
#ifndef MPICOLOC_PAUSE_H
#define MPICOLOC_PAUSE_H

#include "agent/shutter/board_view.h"
#include "agent/shutter/duty.h"

typedef struct mc_pause {
    mc_reservation shutter; /* next shutter; epoch 0: do not pause in it */
    mc_duty duty;           /* limits the pauses, whatever other jobs write on the board */
    int is_begun;           /* the ranks were told to pause in the shutter */
    int has_ack;            /* `ack` must be written to the board */
    mc_ack ack;
} mc_pause;

/* Before the instant: read the reservation of job i_live, check the duty limit, and find the ranks that can be
   signalled. */
void mc_pause_prepare(mc_pause *pause, const mc_board_view *view, mc_job_ranks *ranks, mc_node *node, int i_live,
                      uint64_t t_instant);
/* Pause the ranks when the shutter begins. Returns 1 if all ranks were signalled in time. Here and below, the wait ends
   when *wake is not 0. */
int mc_pause_begin(mc_pause *pause, mc_job_ranks *ranks, mc_node *node, int *wake);
/* Wait until shortly before the shutter's end. */
void mc_pause_stand(const mc_pause *pause, const mc_board_view *view, mc_job_ranks *ranks, int *wake);
/* Check that the ranks stayed paused. */
void mc_pause_end(mc_pause *pause, const mc_board_view *view, const mc_job_ranks *ranks);
/* Write the result to the board. */
void mc_pause_acknowledge(const mc_pause *pause, const mc_board_view *view);

/* Pause threads that enter this gate from now on until deadline_ns; 0: do not pause them. */
void mc_gate_set(mc_gate *gate, uint64_t deadline_ns, uint64_t epoch);

/* Signal every running thread of the rank (signal 0: only count them); returns their number. *n_skipped: number of
   threads that sleep or block the signal. */
int mc_signal_running_threads(const mc_rank *rank, int signal, int *n_skipped);

#endif
