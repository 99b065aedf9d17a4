/* One x86-64 instruction of another process: where the next one is, and what is known of it. Decoded by Capstone 5,
   whose library is loaded when the first decoder is made. */
#ifndef MPICOLOC_DECODER_H
#define MPICOLOC_DECODER_H

#include <stddef.h>
#include <stdint.h>

/* What is known of an instruction. */
enum {
    MC_GOES_ON = 1,      /* the next one follows; of a conditional jump: if it is not taken */
    MC_FORKS = 2,        /* a conditional jump */
    MC_JUMPS = 4,        /* always, to `target` */
    MC_SPARES_FLAGS = 8, /* reads none of OF, SF, ZF, AF, PF */
    MC_SETS_FLAGS = 16,  /* writes all five, whatever its operands are */
    MC_MOVES = 32        /* does the same at another address, once its displacement at rip_at is adjusted */
};

typedef struct mc_instruction {
    uint64_t target; /* of a jump, conditional or not; 0: not known */
    uint8_t n_bytes;
    uint8_t traits; /* 0: unknown, or it ends a straight run */
    uint8_t rip_at; /* offset of the 4 bytes that count from the instruction's end; 0: none, or not MC_MOVES */
} mc_instruction;

/* What an instruction does to registers and memory. */
enum {
    MC_LOADS = 1,
    MC_STORES = 2,   /* or may do so */
    MC_PAUSES = 4,   /* says that its loop waits */
    MC_BRANCHES = 8, /* to `target`, always or not */
    MC_RETURNS = 16, /* or jumps to where nobody knows: what is behind it does not follow */
    MC_UNCLEAR = 32  /* a call, or not known */
};

typedef struct mc_effects {
    uint64_t reads, writes; /* a bit for each register; the highest one stands for all that have none */
    uint64_t target;
    int64_t step; /* the constant that it adds to a whole general register, and does nothing else; 0: it does not */
    uint8_t n_bytes, kinds, stepped; /* that register: its bit in `writes` */
} mc_effects;

typedef struct mc_decoder mc_decoder;

/* Code to decode: n bytes at `base` of the process that runs it. */
typedef struct mc_code {
    mc_decoder *decoder;
    const uint8_t *bytes;
    size_t n;
    uint64_t base;
} mc_code;

/* NULL: another processor, no Capstone here, or no memory. */
mc_decoder *mc_decoder_new(void);
void mc_decoder_free(mc_decoder *decoder);

/* The instruction that begins with `code`; no byte beyond n is read. MC_E_ARG: there is none. */
int mc_decode(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t address, mc_instruction *out);
int mc_decode_effects(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t address, mc_effects *out);

#endif
