/* Bubbles in shutters: threads of the agent's process press on memory while co-runners stand still. In some shutters the
   probe runs there instead, and tells by its pace how much the job presses itself. Where the kernel confines a job to its
   own processors, a co-runner that stands still presses for it, on the processors of its ranks. */
#ifndef MPICOLOC_BUBBLING_H
#define MPICOLOC_BUBBLING_H

#include "agent/shutter/board_view.h"

typedef struct mc_bubbling mc_bubbling;

/* NULL: not wanted, or not possible. `why` (MC_TEXT_LEN bytes, which stay) tells the reason as long as there are none;
   `curve` is filled in from the calibration. */
mc_bubbling *mc_bubbling_open(char *why, mc_probe_curve *curve);
void mc_bubbling_close(mc_bubbling *bubbling);
/* Part of the shutters that is wanted. */
double mc_bubbling_frac(const mc_bubbling *bubbling);

/* Say so as the reason why there are none, or no longer. */
void mc_bubbling_lacks_coordinators(mc_bubbling *bubbling, int lacks);

/* ---- shutters of this job ---- */

/* Draw whether a bubble or the probe runs in the next shutter, on processors that no rank of this job may use; 0 also if
   it cannot. */
int mc_bubbling_draw(mc_bubbling *bubbling, const mc_board_view *view);
/* A level or the probe for a shutter of all nodes of the job, as mc_common has it; 0: nothing can run yet. is_wanted: also
   beside co-runners. */
uint64_t mc_bubbling_draw_for_all(mc_bubbling *bubbling, uint64_t *is_wanted);
/* As drawn, but what was drawn for all nodes. */
int mc_bubbling_take(mc_bubbling *bubbling, const mc_board_view *view, uint64_t bubble);
/* Whom the reservation has to ask for the one that was drawn; nobody if this process runs it. */
mc_press_request mc_bubbling_request(const mc_bubbling *bubbling);
/* The one that was drawn runs in this shutter. */
void mc_bubbling_begin(mc_bubbling *bubbling, const mc_reservation *shutter);
/* Whether one was told to run in the shutter that began at t0. */
int mc_bubbling_was_told(const mc_bubbling *bubbling, uint64_t t0);
/* The bubble's level, or the probe's slowdown beside the job; both 0 unless it began in time and had its processors to
   itself. acks: of all co-runners that were asked; n_acks 0: one of them gave none. */
void mc_bubbling_result(const mc_bubbling *bubbling, const mc_ack *acks, int n_acks, double *level,
                        double *probe_slowdown);

/* ---- shutters of others ---- */

/* How many bubbles it can press on the processors of its ranks. */
mc_press_offer mc_bubbling_offer(mc_bubbling *bubbling, const mc_job_ranks *ranks);
/* Press for job i_live, whose shutter it is, if that asks this job to. Only when the ranks have been told to stand still.
   1: it presses. */
int mc_bubbling_serve(mc_bubbling *bubbling, const mc_reservation *shutter, const mc_board_view *view, int i_live,
                      const mc_job_ranks *ranks);
/* Wait for its end, when it is time for that. */
void mc_bubbling_await(const mc_bubbling *bubbling, const mc_reservation *shutter, int *wake);
/* Say in the acknowledgement how it was; waits at most until the shutter's end. */
void mc_bubbling_answer(const mc_bubbling *bubbling, const mc_reservation *shutter, mc_ack *ack, int *wake);

#endif
