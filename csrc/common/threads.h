/* Our own threads in the application's process. They have a small stack and block the application's signals. */
#ifndef MPICOLOC_THREADS_H
#define MPICOLOC_THREADS_H

#include <pthread.h>

/* Start a thread that blocks all signals except `taken` (0: no exception). Blocked signals go to the process's other
   threads. Returns 0 or an errno. */
int mc_thread_start(pthread_t *thread, size_t stack_bytes, int taken, void *(*run)(void *), void *data);

#endif
