/* Partial shutters: some co-runners go on, so that it can be seen what each of them costs. */
#ifndef MPICOLOC_PARTIAL_H
#define MPICOLOC_PARTIAL_H

#include "agent/shutter/board_view.h"

/* Jobs that go on in partial shutter `i` of this job, a bit for each slot: neither none nor all co-runners. Two
   shutters that follow each other complete each other. 0: there are less than two co-runners. */
uint64_t mc_partial_spared(const mc_board_view *view, uint64_t i);

#endif
