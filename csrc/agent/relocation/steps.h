/* Loops with an induction register: each pass adds the same number to the register, so the number of passes follows
   from the register's value. */
#ifndef MPICOLOC_STEPS_H
#define MPICOLOC_STEPS_H

#include "agent/relocation/decoder.h"

typedef struct mc_stepped_loop {
    uint64_t begin, n_bytes; /* the loop, from its first instruction to the end of the jump back */
    int64_t step;            /* what each pass adds */
    int reg;                 /* number of the register, as in mc_effects */
} mc_stepped_loop;

/* Find the innermost loop around the instruction at `address`, which must be the start of an instruction, in the n
   bytes of `code` at `base`. Returns MC_E_ARG if there is no loop, if the loop contains another loop or a call, or if
   no register is certain to be stepped once in each pass. */
int mc_loop_step(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address,
                 mc_stepped_loop *out);

#endif
