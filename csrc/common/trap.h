/* A breakpoint's exception that a hypervisor delivers without its reason harms nobody. */
#ifndef MPICOLOC_TRAP_H
#define MPICOLOC_TRAP_H

/* From now on this process goes on after such a one; what else sends SIGTRAP has the effect that it had before. On a
   machine that is not virtual it does nothing. */
void mc_trap_guard(void);

/* The same, and the calling thread does not block it. */
void mc_trap_guard_thread(void);

/* Whether a thread may have breakpoints: the machine is real, or the thread handles SIGTRAP. 0: the calling one. */
int mc_trap_is_guarded(int tid);

#endif
