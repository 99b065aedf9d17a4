/* Threads beside those of the application: with a small stack, and without its signals. */
#ifndef MPICOLOC_THREADS_H
#define MPICOLOC_THREADS_H

#include <pthread.h>

/* Signals are for the process's other threads, all but `taken`; 0: all. Returns 0 or an errno. */
int mc_thread_start(pthread_t *thread, size_t stack_bytes, int taken, void *(*run)(void *), void *data);

#endif
