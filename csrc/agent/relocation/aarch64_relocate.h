/* relocate.h for AArch64. Compiled on all processors, so that its proof runs where the tests run.

   A place is any instruction of the table in aarch64_encoding.c, so no word is too short for the branch that
   replaces it. The stub saves two registers below the stack pointer, where no program keeps anything: AAPCS64
   forbids access there, and the kernel puts the frames of signals there. (Go does keep something there: its files
   are left out.) It changes no flags. All instructions near a load-exclusive or store-exclusive are left out:
   between these, other accesses to memory may make the store fail for ever. */
#ifndef MPICOLOC_AARCH64_RELOCATE_H
#define MPICOLOC_AARCH64_RELOCATE_H

#include "agent/relocation/relocate.h"

/* As mc_replaceable and mc_relocate. Of the code in front of a place, `code` must hold MC_CONTEXT_BYTES if the file
   does. */
int mc_a64_replaceable(const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max, uint64_t *addresses);
int mc_a64_relocate(const uint8_t *code, size_t n, uint64_t base, uint64_t address, uint64_t stub_address,
                    int32_t counter_offset, mc_patch_code *out);

#endif
