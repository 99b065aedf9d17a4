/* Addresses that a process does not use, for code of ours near its own. */
#ifndef MPICOLOC_GAPS_H
#define MPICOLOC_GAPS_H

#include "common/mpicoloc.h"

enum { MC_N_GAPS = 512 };

typedef struct mc_gap {
    uint64_t low, high; /* pages from low on, below high, may be taken */
} mc_gap;

typedef struct mc_gaps {
    int n;
    mc_gap rows[MC_N_GAPS];
} mc_gaps;

/* MC_OK or MC_E_GONE. */
int mc_gaps_read(mc_gaps *gaps, int pid);
/* Take a page of the kernel's size, MC_STUB_PAGE_BYTES at least, nearest to this address; 0: none is within
   reach_bytes. */
uint64_t mc_gap_take(mc_gaps *gaps, uint64_t address, uint64_t reach_bytes);

#endif
