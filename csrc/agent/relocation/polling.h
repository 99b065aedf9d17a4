/* Loops in which a thread only waits: passes through them are no progress. */
#ifndef MPICOLOC_POLLING_H
#define MPICOLOC_POLLING_H

#include "agent/relocation/decoder.h"

/* 1: the innermost loop around the instruction at `address` has a `pause`, or stores nothing and keeps nothing in a
   register from one pass to the next. Then each pass does the same, until another thread changes memory. 0: it makes
   progress, or is not understood, or there is none within `code`, the n bytes at `base`. A loop is what a jump back
   to before the address closes. The address must be an instruction's begin. */
int mc_polls(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address);

#endif
