/* For tests only: code is changed nearly all the time, from the program's first tenths of a second on, without
   co-runners and shutters (MPICOLOC_COUNT_ALWAYS: "change" or "stay"). Nothing is measured by it. */
#ifndef MPICOLOC_ALWAYS_H
#define MPICOLOC_ALWAYS_H

#include "agent/meters/count.h"

int mc_always_is_wanted(void);

/* In place of mc_count_step. "change": jumps are there for some milliseconds, are taken back, and after some such
   turns other places get them. "stay": they stay until nothing passes them any more. */
void mc_always_step(mc_count_meter *count, uint64_t t_free, int *wake);

#endif
