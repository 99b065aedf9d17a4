/* In a partial shutter some co-runners keep running. Such shutters show how much each co-runner slows the job. */
#ifndef MPICOLOC_PARTIAL_H
#define MPICOLOC_PARTIAL_H

#include "agent/shutter/board_view.h"

/* Jobs that keep running in partial shutter `i` of this job, one bit per slot: some co-runners, but not all. An even
   shutter and the next odd one spare complementary sets of co-runners. 0: there are fewer than two co-runners. */
uint64_t mc_partial_spared(const mc_board_view *view, uint64_t i);

#endif
