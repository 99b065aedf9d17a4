/* The program's code, changed for the time of a measurement: jumps to stubs that count (meter count). The agent says
   what to write; a thread of this rank writes it, while all threads that ran stand still in the gate. */
#ifndef MPICOLOC_PATCH_H
#define MPICOLOC_PATCH_H

#include "common/mpicoloc.h"

/* Allow the agent of this segment to have code changed. */
void mc_patch_open(mc_segment *segment);
/* Put everything back, for good: the rank ends. */
void mc_patch_close(void);
/* In a forked child, which has inherited the jumps and is not measured. */
void mc_patch_forget(void);

/* In the gate's handler: is this pause for a change of code? */
int mc_patch_is_asked(void);
/* In the gate's handler: stand still until the change is made, or make it. */
void mc_patch_take_part(void);
/* In the gate's handler: let the agent read this thread's counters. */
void mc_patch_register_thread(void);

#endif
