/* Pages of code that a rank replaces by copies, on processors where code is not changed in place: their mappings have no
   file's name. */
#ifndef MPICOLOC_COPIES_H
#define MPICOLOC_COPIES_H

#include "agent/loop/maps.h"
#include "agent/shutter/ranks.h"

/* As mc_maps_read, with the copies. */
int mc_copies_read_maps(mc_maps *maps, const mc_rank *rank, const mc_counts *counts);
/* The page of this place, which is at that address, will be a copy. MC_E_FULL: no room to note it. */
int mc_copies_note(mc_counting *counting, const mc_place *place, uint64_t address);

#endif
