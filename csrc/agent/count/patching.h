/* The agent's half of a change of code: the ranks stand still for it by themselves (csrc/guest/count/patch.c). */
#ifndef MPICOLOC_PATCHING_H
#define MPICOLOC_PATCHING_H

#include "agent/shutter/ranks.h"

/* Ask all ranks for MC_PATCH_INSTALL or MC_PATCH_REMOVE, and wait for it for limit_ns at most, or until *wake is not
   0. A rank none of whose threads runs just now is left as it is. MC_OK; MC_E_GONE: a rank did not come in time, or
   none was asked. MC_E_ARG: a rank's code cannot be written, or is not as in its file. *stopped_ns grows by the time
   for which they stood still. */
int mc_patching_change(mc_job_ranks *ranks, uint32_t request, uint64_t limit_ns, uint64_t *stopped_ns, int *wake);
/* What the last change has installed stays until a second after t, if the agent says no more. */
void mc_patching_renew(mc_job_ranks *ranks, uint64_t t);
/* 1: it is still there in all ranks. A rank that ends takes it back, and one that hears nothing for a second. */
int mc_patching_lasts(const mc_job_ranks *ranks);
/* Ask all ranks to let this process read their memory. MC_READER_UNKNOWN: not all have answered yet, so ask again
   later. MC_READER_ALLOWED; else the answer of one that does not. */
int mc_patching_ask_to_read(mc_job_ranks *ranks);
/* Whether this process may read the ranks' memory, which are asked where the kernel wants them to allow it; answers as
   of mc_patching_ask_to_read. */
int mc_patching_may_read(mc_job_ranks *ranks);
/* 1: nothing is patched, and nobody is at it, in this rank. */
int mc_patching_is_clean(const mc_rank *rank);
/* 1: some rank is not clean. */
int mc_patching_is_patched(const mc_job_ranks *ranks);
/* 1 if this rank's code may be changed now: it has a gate, can count, and no debugger is attached. */
int mc_patching_may(const mc_rank *rank);

#endif
