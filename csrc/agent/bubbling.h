/* Bubbles in shutters of this job: threads of the agent's process press on memory while its co-runners stand still. In
   some shutters the probe runs there instead, and tells by its pace how much the job presses itself. */
#ifndef MPICOLOC_BUBBLING_H
#define MPICOLOC_BUBBLING_H

#include "agent/shutter/board_view.h"

typedef struct mc_bubbling mc_bubbling;

typedef struct mc_bubble_times {
    uint64_t t0, t_counted, t1; /* it presses from t0 to t1, and what it gets done counts from t_counted on */
} mc_bubble_times;

/* NULL: not wanted, or not possible. `why` (MC_TEXT_LEN bytes, which stay) tells the reason as long as there are none;
   `curve` is filled in from the calibration. */
mc_bubbling *mc_bubbling_open(char *why, mc_probe_curve *curve);
void mc_bubbling_close(mc_bubbling *bubbling);
/* Part of the shutters that is wanted. */
double mc_bubbling_frac(const mc_bubbling *bubbling);
/* Draw whether a bubble or the probe runs in the next shutter, on processors that no rank of this job may use; 0 also if
   it cannot. */
int mc_bubbling_draw(mc_bubbling *bubbling, const mc_board_view *view);
/* Tell the one that was drawn when. */
void mc_bubbling_begin(mc_bubbling *bubbling, mc_bubble_times times);
/* Whether one was told to run in the shutter that began at t0. */
int mc_bubbling_was_told(const mc_bubbling *bubbling, uint64_t t0);
/* The bubble's level, or the probe's slowdown beside the job; both 0 unless it began by t_latest and had its processors
   to itself. */
void mc_bubbling_result(const mc_bubbling *bubbling, uint64_t t_latest, double *level, double *probe_slowdown);

#endif
