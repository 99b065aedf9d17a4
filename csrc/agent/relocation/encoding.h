/* Layout of an x86-64 instruction and its use of flags, read from its bytes alone. This is a check on Capstone, which
   has errors (5.0.9 takes vcmpnltsd for vcomisd). This code knows only the encodings of instructions that can be
   moved. */
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
    MC_PREFIX_OTHER = 16, /* segment or address-size prefix */
    MC_PREFIX_TWICE = 32, /* one of the prefixes above occurs more than once */
    MC_PREFIX_REX = 64,
    MC_PREFIX_REX_W = 128
};

enum { MC_MAP_ONE_BYTE, MC_MAP_0F, MC_MAP_0F38, MC_MAP_0F3A };

typedef struct mc_encoding {
    uint8_t prefixes; /* MC_PREFIX_* bits */
    uint8_t is_vex;   /* has a VEX or EVEX prefix */
    uint8_t map, opcode;
    uint8_t modrm_at, modrm; /* the byte after the opcode, whether or not it is ModRM */
    uint8_t rip_at;          /* offset of the RIP-relative displacement; 0: none */
    uint8_t n_bytes;         /* 0: unknown */
} mc_encoding;

/* Read the prefixes only; returns their number. */
size_t mc_encoding_prefixes(const uint8_t *bytes, size_t n, uint8_t *prefixes);

/* Returns MC_E_ARG if the opcode is unknown. The operands and the length are right only for instructions that can be
   moved. */
int mc_encoding_read(const uint8_t *bytes, size_t n, mc_encoding *out);

/* Whether the instruction writes OF, SF, ZF, AF and PF whatever its operands are, and whether it may read a flag. */
int mc_encoding_sets_flags(const mc_encoding *encoding);
int mc_encoding_reads_flags(const mc_encoding *encoding);

#endif
