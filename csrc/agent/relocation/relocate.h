/* Which instruction of a running program may be replaced by a jump, and the stub that the jump leads to: it counts,
   does what the instruction does, and jumps back. On x86-64 only.

   A place is one instruction of 5 bytes or more, the first 5 of which lie in one aligned word: one store switches it,
   and the bytes behind stay. The word has 16 bytes on processors with AVX, where such a store is atomic, else 8. The
   stub uses no register and no stack, so a signal may come anywhere in it. It changes the flags OF, SF, ZF, AF and PF,
   so the code behind the place must write all of them before anything reads one.

   What no look at instructions can tell is left to the caller: files with restartable sequences (section __rseq_cs),
   code that is changed while it runs, handlers of SIGSEGV that look for their own instructions. */
#ifndef MPICOLOC_RELOCATE_H
#define MPICOLOC_RELOCATE_H

#include "agent/relocation/decoder.h"

enum { MC_STUB_MAX = 64, MC_JUMP_BYTES = 5, MC_WORD_BYTES = 16 };

/* What callers give of the code in front of an instruction, where its loop may begin. And how far a stub may be away. */
enum { MC_CONTEXT_BYTES = 256, MC_LOOP_BYTES = 1024, MC_REACH_BYTES = 1 << 30 };

typedef struct mc_patch_code {
    uint64_t address;                                    /* of the replaced instruction, in the process that runs it */
    uint64_t word_address;                               /* of the aligned 16 bytes that hold the whole jump */
    uint8_t before[MC_WORD_BYTES], after[MC_WORD_BYTES]; /* that word without and with the jump */
    uint8_t stub[MC_STUB_MAX];
    uint32_t n_stub;
    uint32_t n_bytes; /* of the replaced instruction */
} mc_patch_code;

/* Where in a file the code begins that tells of the instruction at this offset. */
uint64_t mc_context_begin(uint64_t offset);

/* Find replaceable instructions: straight on from an address that is known to be an instruction's begin, such as a
   sampled program counter, past conditional jumps, along direct jumps inside `code`, up to anything else (a call, a
   return, what is not known). `code` are the n bytes at `base` of the process, as they are without our jumps. Every
   address is proved to be an instruction's begin. Returns their number, at most n_max, in the order of the walk. */
int mc_replaceable(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max,
                   uint64_t *addresses);

/* Begins of the loops around an instruction: targets, at or before it, of the conditional jumps that a walk from it as
   that of mc_replaceable meets, in this order, so mostly inner loops first. Only those inside `code` and at most
   MC_LOOP_BYTES before the jump: callers compare as much of it with the program's memory. Returns their number. */
int mc_loop_heads(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max,
                  uint64_t *heads);

/* Make the jump and the stub of an instruction, whose begin the caller has from mc_replaceable. The counter is the 8
   bytes at this distance from each thread's pointer. MC_E_ARG: it may not be replaced, or is out of reach. */
int mc_relocate(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address,
                uint64_t stub_address, int32_t counter_offset, mc_patch_code *out);

#endif
