/* Bubbles in shutters: threads of the agent's process put pressure on memory while co-runners are paused. In some
   shutters the probe runs instead, and its pace shows how much pressure the job itself causes. If the kernel confines a
   job to its own processors, a paused co-runner runs the bubbles for the job, on the processors of the co-runner's
   ranks. */
#ifndef MPICOLOC_BUBBLING_H
#define MPICOLOC_BUBBLING_H

#include "agent/shutter/board_view.h"

typedef struct mc_bubbling mc_bubbling;

/* Returns NULL if bubbles are not wanted or not possible. As long as no bubble has run, `why` (MC_TEXT_LEN bytes that
   outlive the object) holds the reason. Fills `curve` from the calibration. */
mc_bubbling *mc_bubbling_open(char *why, mc_probe_curve *curve);
void mc_bubbling_close(mc_bubbling *bubbling);
/* Fraction of the shutters in which a bubble or the probe is wanted. */
double mc_bubbling_frac(const mc_bubbling *bubbling);

/* Record the lack of coordinators as the reason for having no bubbles, or withdraw that reason. */
void mc_bubbling_lacks_coordinators(mc_bubbling *bubbling, int lacks);

/* ---- shutters of this job ---- */

/* Draw whether a bubble or the probe runs in the next shutter, on processors that ranks of this job cannot use.
   Returns 0 if none was drawn or none can run. */
int mc_bubbling_draw(mc_bubbling *bubbling, const mc_board_view *view);
/* Draw a level or the probe for a shutter on all nodes of the job. Returns the drawn bubble, encoded as in mc_common,
   or 0 if nothing can run yet. Sets *is_wanted if the bubble is to run even in a shutter with co-runners. */
uint64_t mc_bubbling_draw_for_all(mc_bubbling *bubbling, uint64_t *is_wanted);
/* Prepare the bubble or probe that was drawn for all nodes. Returns 0 if it cannot run here. */
int mc_bubbling_take(mc_bubbling *bubbling, const mc_board_view *view, uint64_t bubble);
/* The request to co-runners for the drawn bubble. The request is empty if this process runs the bubble. */
mc_press_request mc_bubbling_request(const mc_bubbling *bubbling);
/* Run the bubble or probe that was drawn in this shutter. */
void mc_bubbling_begin(mc_bubbling *bubbling, const mc_reservation *shutter);
/* Whether a bubble or the probe was started for the shutter that began at t0. */
int mc_bubbling_was_told(const mc_bubbling *bubbling, uint64_t t0);
/* Get the level of the bubble, or the slowdown of the probe beside the job. Both are 0 if the bubble or probe began
   late or did not have its processors to itself. acks: the acknowledgements of all co-runners that were asked to run
   bubbles. If one of them has not acknowledged, n_acks is 0. */
void mc_bubbling_result(const mc_bubbling *bubbling, const mc_ack *acks, int n_acks, double *level,
                        double *probe_slowdown);

/* ---- shutters of others ---- */

/* Number of bubbles that this job can run for others on the processors of its ranks. */
mc_press_offer mc_bubbling_offer(mc_bubbling *bubbling, const mc_job_ranks *ranks);
/* Run bubbles in the shutter of job i_live if that job requests it. Call this only after the ranks have been told to
   pause. Returns 1 if bubbles run. */
int mc_bubbling_serve(mc_bubbling *bubbling, const mc_reservation *shutter, const mc_board_view *view, int i_live,
                      const mc_job_ranks *ranks);
/* Wait for the bubbles to end, but only until shortly before the end of the shutter. */
void mc_bubbling_await(const mc_bubbling *bubbling, const mc_reservation *shutter, int *wake);
/* Report in the acknowledgement whether the bubbles ran as requested. Waits no longer than until the shutter's end. */
void mc_bubbling_answer(const mc_bubbling *bubbling, const mc_reservation *shutter, mc_ack *ack, int *wake);

#endif
