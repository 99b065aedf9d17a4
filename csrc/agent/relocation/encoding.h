/* Where the parts of an x86-64 instruction lie and what it does with flags, told from its bytes alone. A second opinion:
   it knows the encodings of instructions that are moved, and of no others. Capstone 5.0.9 takes vcmpnltsd for
   vcomisd. */
#ifndef MPICOLOC_ENCODING_H
#define MPICOLOC_ENCODING_H

#include <stddef.h>
#include <stdint.h>

enum { MC_INSTRUCTION_MAX = 15, MC_DISPLACEMENT_BYTES = 4 };

enum {
    MC_PREFIX_66 = 1,
    MC_PREFIX_F2 = 2,
    MC_PREFIX_F3 = 4,
    MC_PREFIX_LOCK = 8,
    MC_PREFIX_OTHER = 16, /* segments, address size */
    MC_PREFIX_TWICE = 32, /* one of them more than once */
    MC_PREFIX_REX = 64,
    MC_PREFIX_REX_W = 128
};

enum { MC_MAP_ONE_BYTE, MC_MAP_0F, MC_MAP_0F38, MC_MAP_0F3A };

typedef struct mc_encoding {
    uint8_t prefixes; /* bits */
    uint8_t is_vex;   /* or EVEX */
    uint8_t map, opcode;
    uint8_t modrm_at, modrm; /* what follows the opcode, whether or not it is one */
    uint8_t rip_at;          /* of a displacement that counts from the instruction's end; 0: none */
    uint8_t n_bytes;         /* 0: unknown */
} mc_encoding;

/* Prefixes only; returns their number. */
size_t mc_encoding_prefixes(const uint8_t *bytes, size_t n, uint8_t *prefixes);

/* MC_E_ARG: no opcode that is known. What is said of operands and length holds for instructions that are moved. */
int mc_encoding_read(const uint8_t *bytes, size_t n, mc_encoding *out);

/* Whether it writes OF, SF, ZF, AF and PF whatever its operands are; whether it may read a flag. */
int mc_encoding_sets_flags(const mc_encoding *encoding);
int mc_encoding_reads_flags(const mc_encoding *encoding);

#endif
