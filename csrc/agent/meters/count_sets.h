/* The sets of places of the meter count: which one is counted, and the stubs of its places. */
#ifndef MPICOLOC_COUNT_SETS_H
#define MPICOLOC_COUNT_SETS_H

#include "agent/meters/count.h"

/* NULL: none. */
const mc_place_set *mc_count_present_set(const mc_count_meter *count);
void mc_count_use_set(mc_count_meter *count, int i_set);
/* The set that fits the samples best; -1: none fits. */
int mc_count_known_set(const mc_count_meter *count);
/* MC_OK, MC_E_FULL (ranks still have other jumps) or another error. Places that cannot be counted leave the set. */
int mc_count_make_stubs(mc_count_meter *count, mc_place_set *set);
/* 0: not all of its places can be counted now. */
int mc_count_make_known_stubs(mc_count_meter *count, int i_set);
int mc_count_covers_no_more(const mc_count_meter *count, const mc_place_set *set);
/* Replace the present set by count->thinned. */
void mc_count_use_thinned(mc_count_meter *count);
/* Stubs of the present set anew, at other addresses. */
void mc_count_renew_stubs(mc_count_meter *count);

#endif
