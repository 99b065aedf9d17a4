/* A walk along the code of a program, from an address that is known to be an instruction's begin. */
#ifndef MPICOLOC_WALK_H
#define MPICOLOC_WALK_H

#include "agent/relocation/decoder.h"

enum { MC_N_SPANS = 16 };

/* The pieces of code that it has been through; it ends where it would begin again. */
typedef struct mc_walk {
    int n_spans;
    uint64_t begin[MC_N_SPANS], end[MC_N_SPANS];
    uint64_t at;
} mc_walk;

mc_walk mc_walk_from(uint64_t address);
/* Behind this instruction, or where it jumps to; 0: the walk ends. */
int mc_walk_on(mc_walk *way, const mc_instruction *instruction);

#endif
