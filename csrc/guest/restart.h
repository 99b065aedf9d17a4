/* System calls that the kernel ends early for any signal, also ours, go on as if the signal had not come. */
#ifndef MPICOLOC_RESTART_H
#define MPICOLOC_RESTART_H

#include <ucontext.h>

/* For a signal handler: if only its signal interrupted a system call that the kernel does not restart itself, make
   the call begin again when the handler returns. Calls that may wait for signals: `pause`, and those whose mask lets
   no signal in, restart only if `just_begun`; the others never. Async-signal-safe. Returns 1 if the call restarts. */
int mc_restart_call(ucontext_t *context, int just_begun);

#endif
