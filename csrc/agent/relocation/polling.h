/* Loops in which a thread only waits: passes through them are no progress. */
#ifndef MPICOLOC_POLLING_H
#define MPICOLOC_POLLING_H

#include "agent/relocation/decoder.h"

/* From its first instruction to the jump back. */
typedef struct mc_loop {
    uint64_t begin, jump;
} mc_loop;

/* Straight on past all jumps, to the first one that leads back to or before the address. 0: there is none. */
int mc_loop_around(const mc_code *code, uint64_t address, mc_loop *found);
/* 0: the address is not in this code, or no instruction begins there. */
int mc_code_effects(const mc_code *code, uint64_t address, mc_effects *out);

/* 1: the innermost loop around the instruction at `address` has a `pause`, or stores nothing and keeps nothing in a
   register from one pass to the next. Then each pass does the same, until another thread changes memory. 0: it makes
   progress, or is not understood, or there is none within `code`, the n bytes at `base`. A loop is what a jump back
   to before the address closes. The address must be an instruction's begin. */
int mc_polls(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address);

#endif
