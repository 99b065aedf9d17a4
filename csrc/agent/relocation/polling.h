/* Loops in which a thread only waits. Passes of such loops are not progress. */
#ifndef MPICOLOC_POLLING_H
#define MPICOLOC_POLLING_H

#include "agent/relocation/decoder.h"

/* A loop, from its first instruction to the jump back. */
typedef struct mc_loop {
    uint64_t begin, jump;
} mc_loop;

/* Find the loop around the address: walk straight on, past all jumps, to the first jump that leads to the address or
   before it. Returns 0 if there is none. */
int mc_loop_around(const mc_code *code, uint64_t address, mc_loop *found);
/* Effects of the instruction at this address. 0: the address is not in this code, or no instruction begins there. */
int mc_code_effects(const mc_code *code, uint64_t address, mc_effects *out);

/* 1: the innermost loop around the instruction at `address` only waits. Such a loop has a `pause`, or it loads but
   stores nothing and carries no register from one pass to the next, so that each pass repeats the last until another
   thread changes memory. 0: the loop makes progress or is not understood, or there is no loop in the n bytes of `code`
   at `base`. The address must be the start of an instruction. */
int mc_polls(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address);

#endif
