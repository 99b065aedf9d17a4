/* Which co-runners are asked to press in a shutter of this job, and for how many bubbles each. */
#ifndef MPICOLOC_BUBBLE_REQUESTS_H
#define MPICOLOC_BUBBLE_REQUESTS_H

#include "agent/bubbles/bubble_cpus.h"
#include "agent/shutter/board_view.h"

typedef struct mc_press_wanted {
    int n, n_level;     /* bubbles; those that make a level */
    mc_cpus own, cores; /* processors of the asking job; those that bubbles may use */
} mc_press_wanted;

/* Ask one co-runner that can press all of them, or several together: others each time (`random` is in [0, 1)), as one may
   never be able to when it comes to it. 0: nobody can, and nobody is asked. */
int mc_share_out(mc_press_request *request, const mc_board_view *view, const mc_press_wanted *wanted, double random);

#endif
