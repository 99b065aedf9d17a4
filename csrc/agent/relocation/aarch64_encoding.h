/* What an AArch64 instruction is, told from its word alone, by a table of encodings: no disassembler is needed. Compiled
   on all processors, so that its proof runs where the tests run. */
#ifndef MPICOLOC_AARCH64_ENCODING_H
#define MPICOLOC_AARCH64_ENCODING_H

#include <stdint.h>

enum { MC_A64_BYTES = 4 };

/* Beside MC_GOES_ON, MC_FORKS, MC_JUMPS and MC_MOVES of decoder.h: of a load-exclusive, store-exclusive pair, or clrex.
   What comes between may make the store fail for ever. */
enum { MC_A64_EXCLUSIVE = 64 };

/* 0: unknown, or it ends a straight run. */
uint8_t mc_a64_traits(uint32_t word);

/* How far a jump (MC_JUMPS) goes, in bytes. */
int64_t mc_a64_jump_bytes(uint32_t word);
/* The same of a conditional jump (MC_FORKS). */
int64_t mc_a64_fork_bytes(uint32_t word);

#endif
