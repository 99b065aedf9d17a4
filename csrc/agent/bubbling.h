/* Bubbles in shutters of this job: threads of the agent's process press on memory while its co-runners stand still. */
#ifndef MPICOLOC_BUBBLING_H
#define MPICOLOC_BUBBLING_H

#include "agent/shutter/board_view.h"

typedef struct mc_bubbling mc_bubbling;

/* NULL: not wanted, or not possible. `why` (MC_TEXT_LEN bytes, which stay) tells the reason as long as there are none. */
mc_bubbling *mc_bubbling_open(char *why);
void mc_bubbling_close(mc_bubbling *bubbling);
/* Draw the bubble of the shutter that begins at t0, and let it press from t0 to t1 on processors that no rank of this
   job may use. Returns its level; 0: none. */
double mc_bubbling_begin(mc_bubbling *bubbling, const mc_board_view *view, uint64_t t0, uint64_t t1);
/* Whether it began by t_latest on every processor. */
int mc_bubbling_has_pressed(const mc_bubbling *bubbling, uint64_t t_latest);

#endif
