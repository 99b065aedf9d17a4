/* A walk along the code of a program, from an address that is known to be an instruction's begin. */
#ifndef MPICOLOC_WALK_H
#define MPICOLOC_WALK_H

#include "agent/relocation/decoder.h"

enum { MC_N_SPANS = 16, MC_LOOP_BYTES = 1024 };

/* The pieces of code that it has been through; it ends where it would begin again. */
typedef struct mc_walk {
    int n_spans;
    uint64_t begin[MC_N_SPANS], end[MC_N_SPANS];
    uint64_t at;
} mc_walk;

mc_walk mc_walk_from(uint64_t address);
/* Behind this instruction, or where it jumps to; 0: the walk ends. */
int mc_walk_on(mc_walk *way, const mc_instruction *instruction);

/* Begins of the loops around an instruction: targets, at or before it, of the conditional jumps that a walk from it as
   that of mc_replaceable meets, in this order, so mostly inner loops first. Only those inside `code` and at most
   MC_LOOP_BYTES before the jump: callers compare as much of it with the program's memory. Returns their number. */
int mc_loop_heads(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max,
                  uint64_t *heads);

#endif
