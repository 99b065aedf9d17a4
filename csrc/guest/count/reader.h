/* What the agent reads in this rank's memory; and that it may, where the kernel's module Yama lets only parents do so
   (ptrace_scope 1). */
#ifndef MPICOLOC_READER_H
#define MPICOLOC_READER_H

#include "common/mpicoloc.h"

/* Where the counters are that stubs add to, from each thread's own pointer. */
int64_t mc_reader_counters_offset(void);
/* Let the agent find this thread's counters. Async-signal-safe. */
void mc_reader_register_thread(mc_counting *counting);

/* Let the process read that asks for it, unless the program has named another one: the kernel keeps one and does not
   tell which. Async-signal-safe. */
void mc_reader_allow(mc_counting *counting);
/* Take that back. */
void mc_reader_forget(void);

#endif
