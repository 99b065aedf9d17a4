/* The jumps and stubs of a set of places, for each rank: programs are loaded at different addresses. */
#ifndef MPICOLOC_STUBS_H
#define MPICOLOC_STUBS_H

#include "agent/count/places.h"
#include "agent/shutter/ranks.h"

/* Write them into the ranks' segments, for ranks that are not patched. Places that cannot be replaced in one of the
   ranks are taken out of the set. MC_OK; MC_E_GONE: no place or no memory in reach is left; MC_E_FULL: a rank
   is still patched. */
int mc_stubs_make(mc_place_set *set, mc_decoder *decoder, mc_program_files *files, const mc_counts *counts,
                  mc_job_ranks *ranks);

#endif
