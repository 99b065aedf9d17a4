/* The program's code, changed for the time of a measurement: jumps to stubs that count (meter count). The agent says
   what to write; a thread of this rank writes it, while all threads that ran stand still in the gate. */
#ifndef MPICOLOC_PATCH_H
#define MPICOLOC_PATCH_H

#include "common/mpicoloc.h"

/* 1: the code is changed now. */
extern int mc_patch_has_jumps;

#ifdef __x86_64__
/* Allow the agent of this segment to have code changed. */
void mc_patch_open(mc_segment *segment);
/* Put everything back, for good: the rank ends. */
void mc_patch_close(void);
/* In a forked child, which has inherited the jumps and is not measured. */
void mc_patch_forget(void);

/* If the agent has not renewed its lease, put everything back. Other threads run meanwhile, as at the rank's end. In MPI
   calls; returns when to look again, 0: not needed. */
uint64_t mc_patch_check_lease(uint64_t now);
/* In the gate's handler, when the lease's timer says so: the same, and ask the timer to come again if it is needed. */
void mc_patch_obey_lease(void);

/* In the gate's handler: is this pause for a change of code? */
int mc_patch_is_asked(void);
/* In the gate's handler: stand still until the change is made, or make it. */
void mc_patch_take_part(void);
/* In the gate's handler: let the agent read the counters of this thread, and the rank's memory if it asks for that. */
void mc_patch_register_thread(void);
#else /* no code is changed */
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
