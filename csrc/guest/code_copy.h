/* A change of code by replacing its page: no memory that is executed changes, so nobody executes a half-written word. */
#ifndef MPICOLOC_CODE_COPY_H
#define MPICOLOC_CODE_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Put these n bytes, which lie in one page, where those expected are. Threads that run there meanwhile execute the old
   or the new ones. 0: other bytes are there, or the page may not be replaced. Async-signal-safe. */
int mc_code_exchange(uint64_t address, const void *expected, const void *wanted, size_t n);

#endif
