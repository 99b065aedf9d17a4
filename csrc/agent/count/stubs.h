/* Make the jumps and stubs of a set of places. Each rank has its own jumps and stubs, because programs are loaded at
   different addresses. */
#ifndef MPICOLOC_STUBS_H
#define MPICOLOC_STUBS_H

#include "agent/count/places.h"
#include "agent/shutter/ranks.h"

/* Write jumps and stubs into the segments of the ranks. If a place cannot be replaced in one of the ranks, it is
   removed from the set. Returns MC_OK; MC_E_GONE if no place is left or no memory is in reach; MC_E_FULL if a rank
   still has jumps. */
int mc_stubs_make(mc_place_set *set, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                  mc_job_ranks *ranks);

#endif
