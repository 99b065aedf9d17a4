/* Calls that the kernel ends early for any signal, ours too, go on as if it had not come. */
#ifndef MPICOLOC_RESTART_H
#define MPICOLOC_RESTART_H

#include <ucontext.h>

/* For a signal handler: if its signal alone broke off a system call that the kernel does not restart itself, let the
   call begin again when the handler returns. Of calls that may wait for signals, `pause` and those whose mask lets none
   in do so only if `just_begun`, the others never. Async-signal-safe. Returns 1 if it did. */
int mc_restart_call(ucontext_t *context, int just_begun);

#endif
