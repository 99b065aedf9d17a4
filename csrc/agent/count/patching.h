/* The agent's side of code changes: ranks stop their own threads and write the jumps themselves
   (csrc/guest/count/patch.c). */
#ifndef MPICOLOC_PATCHING_H
#define MPICOLOC_PATCHING_H

#include "agent/shutter/ranks.h"

/* Request MC_PATCH_INSTALL or MC_PATCH_REMOVE of all ranks, and wait for limit_ns at most, or until *wake is not 0. A
   rank without a running thread is left unchanged. Adds the time for which ranks were stopped to *stopped_ns. Returns
   MC_OK; MC_E_GONE if a rank did not finish in time or no rank was asked; MC_E_ARG if a rank's code cannot be written
   or differs from its file. */
int mc_patching_change(mc_job_ranks *ranks, uint32_t request, uint64_t limit_ns, uint64_t *stopped_ns, int *wake);
/* Extend the lease of installed jumps to a second after t. Ranks remove jumps whose lease has run out. */
void mc_patching_renew(mc_job_ranks *ranks, uint64_t t);
/* 1: the jumps are still installed in all ranks. A rank removes its jumps when it ends or when the lease runs out. */
int mc_patching_lasts(const mc_job_ranks *ranks);
/* Ask all ranks to let this process read their memory. Returns MC_READER_UNKNOWN if not all have answered yet (ask
   again later), MC_READER_ALLOWED, or the answer of a rank that refuses. */
int mc_patching_ask_to_read(mc_job_ranks *ranks);
/* Whether this process may read the ranks' memory. If the kernel requires the ranks' permission, this function asks
   them for it. Returns the same values as mc_patching_ask_to_read. */
int mc_patching_may_read(mc_job_ranks *ranks);
/* 1: this rank has no jumps, and no thread is changing its code. */
int mc_patching_is_clean(const mc_rank *rank);
/* 1: at least one rank is not clean. */
int mc_patching_is_patched(const mc_job_ranks *ranks);
/* 1 if this rank's code may be changed now: the rank has a gate and can count, and no debugger is attached. */
int mc_patching_may(const mc_rank *rank);

#endif
