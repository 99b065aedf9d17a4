/* A change of code under threads that may come by: they execute what was there or what comes, never half of it. */
#ifndef MPICOLOC_CODE_EXCHANGE_H
#define MPICOLOC_CODE_EXCHANGE_H

#include "common/mpicoloc.h"

#include <stddef.h>
#include <stdint.h>

enum { MC_CODE_WORD_BYTES = MC_N_HALVES * sizeof(uint64_t) };

/* Put an aligned word where the one expected is: by one store, if the page may be written, or where MC_CODE_IN_PLACE
   is 0 by mc_code_exchange. 0: another word is there, or it cannot be done so. Async-signal-safe. */
int mc_code_exchange_word(uint64_t address, const uint64_t expected[], const uint64_t wanted[]);

/* Put these n bytes, which lie in one page, where those expected are, by a copy of the page: no memory that is executed
   changes. 0: other bytes are there, or the page may not be replaced. Async-signal-safe. */
int mc_code_exchange(uint64_t address, const void *expected, const void *wanted, size_t n);

#endif
