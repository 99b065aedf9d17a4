/* For how long the program's code may stay changed (csrc/guest/count/patch.c) without word from the agent: it may have
   been killed. */
#ifndef MPICOLOC_LEASE_H
#define MPICOLOC_LEASE_H

#include "common/mpicoloc.h"

/* At until_ns (CLOCK_MONOTONIC) this thread gets the gate's signal, with si_code SI_TIMER. All three functions are
   async-signal-safe; one thread at a time may begin and end a lease. 0: the kernel has no room for a timer. */
int mc_lease_begin(int signal, uint64_t until_ns);
void mc_lease_end(void);
/* The signal comes then. If the lease has ended meanwhile, nothing happens. */
void mc_lease_extend(uint64_t until_ns);

#endif
