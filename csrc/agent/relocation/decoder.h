/* Decode an x86-64 instruction of another process: find where the next instruction begins, and what this instruction
   does. Uses Capstone 5, whose library is loaded when the first decoder is made. */
#ifndef MPICOLOC_DECODER_H
#define MPICOLOC_DECODER_H

#include <stddef.h>
#include <stdint.h>

/* Traits of an instruction. */
enum {
    MC_GOES_ON = 1, /* execution continues with the next instruction, unless this is a conditional jump that is taken */
    MC_FORKS = 2,   /* a conditional jump */
    MC_JUMPS = 4,   /* always jumps to `target` */
    MC_SPARES_FLAGS = 8, /* reads none of the flags OF, SF, ZF, AF, PF */
    MC_SETS_FLAGS = 16,  /* writes all these flags, whatever its operands are */
    MC_MOVES = 32        /* has the same effect at another address, once its displacement at rip_at is adjusted */
};

typedef struct mc_instruction {
    uint64_t target; /* target of a jump, conditional or not; 0: unknown */
    uint8_t n_bytes;
    uint8_t traits; /* 0: the instruction is unknown, or ends a straight run of code */
    uint8_t rip_at; /* offset of the RIP-relative displacement; 0: none, or not MC_MOVES */
} mc_instruction;

/* Effects of an instruction on registers and memory. */
enum {
    MC_LOADS = 1,
    MC_STORES = 2,   /* stores, or may store */
    MC_PAUSES = 4,   /* is the hint that the loop around it waits */
    MC_BRANCHES = 8, /* jumps to `target`, conditionally or not */
    MC_RETURNS = 16, /* returns or jumps to an unknown target: the next instruction does not follow */
    MC_UNCLEAR = 32  /* is a call, or is unknown */
};

typedef struct mc_effects {
    uint64_t reads, writes; /* a bit for each register; the highest bit is for all other registers */
    uint64_t target;
    int64_t step; /* constant that it adds to a general register, if it does nothing else but set flags; 0: none */
    uint8_t n_bytes, kinds, stepped; /* stepped: register of `step`, as the index of its bit in `writes` */
} mc_effects;

typedef struct mc_decoder mc_decoder;

/* Code to decode: n bytes at `base` of the process that runs it. */
typedef struct mc_code {
    mc_decoder *decoder;
    const uint8_t *bytes;
    size_t n;
    uint64_t base;
} mc_code;

/* Returns NULL if the processor is not x86-64, Capstone is missing, or memory is exhausted. */
mc_decoder *mc_decoder_new(void);
void mc_decoder_free(mc_decoder *decoder);

/* Decode the instruction at `code`, reading at most n bytes. Returns MC_E_ARG if there is no valid instruction. */
int mc_decode(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t address, mc_instruction *out);
int mc_decode_effects(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t address, mc_effects *out);

#endif
