/* The exception of a breakpoint that a hypervisor delivers without its reason must not kill the program. */
#ifndef MPICOLOC_TRAP_H
#define MPICOLOC_TRAP_H

/* From now on this process survives such an exception. Other causes of SIGTRAP have the effect that they had before.
   On a real machine this does nothing. */
void mc_trap_guard(void);

/* The same; and the calling thread does not block SIGTRAP. */
void mc_trap_guard_thread(void);

/* 1 if a thread may have breakpoints: the machine is real, or the thread handles SIGTRAP. tid 0: the calling thread. */
int mc_trap_is_guarded(int tid);

#endif
