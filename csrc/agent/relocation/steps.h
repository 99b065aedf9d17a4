/* Loops whose progress a register tells: each pass adds the same number to it. */
#ifndef MPICOLOC_STEPS_H
#define MPICOLOC_STEPS_H

#include "agent/relocation/decoder.h"

typedef struct mc_stepped_loop {
    uint64_t begin, n_bytes; /* from its first instruction to the end of the jump back */
    int64_t step;            /* what each pass adds */
    int reg;                 /* number of the register, as in mc_effects */
} mc_stepped_loop;

/* The innermost loop around the instruction at `address`, which must be an instruction's begin, in `code`, the n bytes at
   `base`. MC_E_ARG: there is none, it has a loop or a call in it, or no register that surely tells. */
int mc_loop_step(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address,
                 mc_stepped_loop *out);

#endif
