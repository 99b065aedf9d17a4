/* Find instructions of a running program that can be replaced by a jump, and make the stub to which the jump leads. The
   stub counts, does what the replaced instruction does, and jumps back. This works on x86-64 only.

   A place is one instruction of 5 bytes or more whose first 5 bytes are in one aligned word, so that a single store
   puts the jump there or removes it. The bytes after these 5 do not change. On processors with AVX the word has 16
   bytes, because such a store is atomic there; on other processors it has 8 bytes. The stub uses no register and no
   stack, so a signal can interrupt it anywhere. It changes the flags OF, SF, ZF, AF and PF, so the code after the
   place must write all of them before anything reads one.

   The caller must exclude what the instructions do not show: files with restartable sequences (section __rseq_cs),
   code that changes while it runs, and SIGSEGV handlers that look up the interrupted instruction. */
#ifndef MPICOLOC_RELOCATE_H
#define MPICOLOC_RELOCATE_H

#include "agent/relocation/decoder.h"

enum { MC_STUB_MAX = 64, MC_JUMP_BYTES = 5, MC_WORD_BYTES = 16 };

/* Bytes of code that callers provide before an instruction; largest distance from a loop's jump back to its start;
   largest distance from an instruction to its stub. */
enum { MC_CONTEXT_BYTES = 256, MC_LOOP_BYTES = 1024, MC_REACH_BYTES = 1 << 30 };

typedef struct mc_patch_code {
    uint64_t address;      /* address of the replaced instruction in the process that runs it */
    uint64_t word_address; /* address of the aligned 16 bytes that hold the whole jump */
    uint8_t before[MC_WORD_BYTES], after[MC_WORD_BYTES]; /* these 16 bytes without the jump and with it */
    uint8_t stub[MC_STUB_MAX];
    uint32_t n_stub;
    uint32_t n_bytes; /* length of the replaced instruction */
} mc_patch_code;

/* File offset from which code must be read to judge the instruction at `offset`. */
uint64_t mc_context_begin(uint64_t offset);

/* Find replaceable instructions. The walk starts at `from`, which must be the start of an instruction (such as a
   sampled program counter), passes conditional jumps, follows direct jumps inside `code`, and ends at anything else: a
   call, a return, an unknown instruction. `code` is the n bytes at `base` of the process, without our jumps. Each
   address found is certain to be the start of an instruction. Returns their number, at most n_max; the addresses are in
   the order of the walk. */
int mc_replaceable(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max,
                   uint64_t *addresses);

/* Find the starts of the loops around an instruction. A walk like the walk of mc_replaceable collects the targets of
   conditional jumps, if they are at or before the instruction. So inner loops mostly come first. A target must be
   inside `code` and less than MC_LOOP_BYTES before its jump, because callers compare only that much code with the
   program's memory. Returns their number. */
int mc_loop_heads(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max,
                  uint64_t *heads);

/* Make the jump and the stub for an instruction that mc_replaceable found. The counter of each thread is the 8 bytes at
   counter_offset from its thread pointer. Returns MC_E_ARG if the instruction cannot be replaced or the stub is out of
   reach. */
int mc_relocate(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address,
                uint64_t stub_address, int32_t counter_offset, mc_patch_code *out);

#endif
