/* A shutter of another job: this job's ranks stand still, and the board says when. */
#ifndef MPICOLOC_PAUSE_H
#define MPICOLOC_PAUSE_H

#include "agent/shutter/board_view.h"
#include "agent/shutter/duty.h"

typedef struct mc_pause {
    mc_reservation shutter; /* the one that comes next; epoch 0: none is obeyed */
    mc_duty duty;           /* limits the pauses, whatever others write on the board */
} mc_pause;

/* Before the instant: read what that job has reserved, whether the duty limit allows it, and which ranks can be
   signalled. */
void mc_pause_prepare(mc_pause *pause, const mc_board_view *view, mc_job_ranks *ranks, mc_node *node, int i_live,
                      uint64_t t_instant);
/* Pause the ranks until shortly before the shutter's end; *wake ends the waiting. */
void mc_pause_take(mc_pause *pause, const mc_board_view *view, mc_job_ranks *ranks, mc_node *node, int *wake);

/* Threads that come to this gate from now on stand still until deadline_ns; 0: they do not wait. */
void mc_gate_set(mc_gate *gate, uint64_t deadline_ns, uint64_t epoch);

/* Signal every thread of the rank that runs (signal 0: only count them); returns their number. *n_skipped: threads
   that sleep or block the signal. */
int mc_signal_running_threads(const mc_rank *rank, int signal, int *n_skipped);

#endif
