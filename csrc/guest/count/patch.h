/* Patches of the program's code for the duration of a measurement: jumps to stubs that count (meter count). The agent
   prepares the new code. A thread of this rank writes it, while all threads that were running are paused in the
   gate. */
#ifndef MPICOLOC_PATCH_H
#define MPICOLOC_PATCH_H

#include "common/mpicoloc.h"

/* 1 while the code contains jumps. */
extern int mc_patch_has_jumps;

#ifdef __x86_64__
/* Allow the agent of this segment to request patches. */
void mc_patch_open(mc_segment *segment);
/* Restore all code and make no more patches, because the rank ends. */
void mc_patch_close(void);
/* Restore all code in a forked child, which has inherited the jumps and is not measured. */
void mc_patch_forget(void);

/* Restore all code if the agent has not renewed its lease. This is called in MPI calls. Other threads keep running
   meanwhile, as they do at the rank's end. Returns the time of the next check, 0 if none is needed. */
uint64_t mc_patch_check_lease(uint64_t now);
/* In the gate's handler, when the lease's timer expires: check the lease, and set the timer for the next check. */
void mc_patch_obey_lease(void);

/* In the gate's handler: whether this pause is for a patch. */
int mc_patch_is_asked(void);
/* In the gate's handler: wait until the patch is made, or make it. */
void mc_patch_take_part(void);
/* In the gate's handler: let the agent read the counters of this thread and, on its request, the rank's memory. */
void mc_patch_register_thread(void);
#else /* other processor architectures: no patches */
#define mc_patch_open(segment) ((void)(segment))
#define mc_patch_close() ((void)0)
#define mc_patch_forget() ((void)0)
#define mc_patch_check_lease(now) ((void)(now))
#define mc_patch_obey_lease() ((void)0)
#define mc_patch_is_asked() 0
#define mc_patch_take_part() ((void)0)
#define mc_patch_register_thread() ((void)0)
#endif

#endif
