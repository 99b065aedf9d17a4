/* Calls that the kernel ends early for any signal, ours too, go on as if it had not come. */
#ifndef MPICOLOC_RESTART_H
#define MPICOLOC_RESTART_H

#include <ucontext.h>

/* For a signal handler: if its signal alone broke off a system call that the kernel does not restart itself, let the
   call begin again when the handler returns. Calls that wait for signals do so only if `just_begun`: no other signal can
   have ended them before. Async-signal-safe. Returns 1 if it did. */
int mc_restart_call(ucontext_t *context, int just_begun);

#endif
