/* A shutter of another job: this job's ranks stand still, and the board says when. */
#ifndef MPICOLOC_PAUSE_H
#define MPICOLOC_PAUSE_H

#include "agent/shutter/board_view.h"

/* What limits the pauses of this job, whatever others write on the board. */
typedef struct mc_pause_limits {
    uint64_t t_open; /* the duty counts from then on */
    uint64_t allowance_ns, max_ns;
    double duty_frac;
} mc_pause_limits;

typedef struct mc_pause {
    mc_reservation shutter; /* the one that comes next; epoch 0: none is obeyed */
    uint64_t total_ns;      /* stood still so far */
    uint64_t late_ns;       /* and so long after the pauses' ends, waiting for a processor: counts for the limit too */
    uint64_t t_last_end;    /* of the last pause; 0: late_ns has it already */
} mc_pause;

/* Before the instant: read what that job has reserved, and see which ranks can be signalled. */
void mc_pause_prepare(mc_pause *pause, const mc_board_view *view, mc_job_ranks *ranks, mc_node *node, int i_live,
                      uint64_t t_instant, const mc_pause_limits *limits);
/* Pause the ranks until shortly before the shutter's end; *wake ends the waiting. */
void mc_pause_take(mc_pause *pause, const mc_board_view *view, mc_job_ranks *ranks, mc_node *node, int *wake);

/* Threads that come to this gate from now on stand still until deadline_ns; 0: they do not wait. */
void mc_gate_set(mc_gate *gate, uint64_t deadline_ns, uint64_t epoch);

/* Signal every thread of the rank that runs (signal 0: only count them); returns their number. *n_skipped: threads
   that sleep or block the signal. */
int mc_signal_running_threads(const mc_rank *rank, int signal, int *n_skipped);

#endif
