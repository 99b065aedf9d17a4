#include "agent/relocation/aarch64_encoding.h"

#include "agent/relocation/decoder.h"

#include <stddef.h>

/* Operands that may be the stack pointer where 31 stands. */
enum { ANY, BASE_MOVES, WRITES_RD, USES_RN, WRITES_RD_USES_RN };

enum {
    PASSES = MC_GOES_ON,
    MOVES = MC_GOES_ON | MC_MOVES,
    JUMPS = MC_JUMPS,
    FORKS = MC_GOES_ON | MC_FORKS,
    EXCLUSIVE = MC_GOES_ON | MC_A64_EXCLUSIVE,
    STACK_POINTER = 31
};

typedef struct form {
    uint32_t mask, value;
    uint8_t traits, operands;
} form;

/* The first that fits holds. PASSES before a wider MOVES: what is not allocated, or is not surely harmless. */
/* clang-format off */
static const form forms[] = {
    /* add, sub with an immediate, without and with flags */
    {0x3f800000, 0x11000000, MOVES, WRITES_RD_USES_RN},
    {0x3f800000, 0x31000000, MOVES, USES_RN},
    /* and, orr, eor, ands with an immediate */
    {0x9fc00000, 0x12400000, PASSES, ANY},
    {0x7f800000, 0x72000000, MOVES, ANY},
    {0x1f800000, 0x12000000, MOVES, WRITES_RD},
    /* movn, movz, movk */
    {0x7f800000, 0x32800000, PASSES, ANY},
    {0x9fc00000, 0x12c00000, PASSES, ANY},
    {0x1f800000, 0x12800000, MOVES, ANY},
    /* sbfm, bfm, ubfm, extr */
    {0x7f800000, 0x73000000, PASSES, ANY},
    {0x9fe08000, 0x13000000, MOVES, ANY},
    {0x9fc00000, 0x93400000, MOVES, ANY},
    {0xffe08000, 0x13800000, MOVES, ANY},
    {0xffe00000, 0x93c00000, MOVES, ANY},
    /* adr, adrp */
    {0x1f000000, 0x10000000, PASSES, ANY},

    /* and ... bics with a shifted register */
    {0x9f008000, 0x0a008000, PASSES, ANY},
    {0x1f000000, 0x0a000000, MOVES, ANY},
    /* add ... subs with a shifted register */
    {0x1fe00000, 0x0bc00000, PASSES, ANY},
    {0x9f208000, 0x0b008000, PASSES, ANY},
    {0x1f200000, 0x0b000000, MOVES, ANY},
    /* with an extended one */
    {0x1fe01800, 0x0b201800, PASSES, ANY},
    {0x1fe01400, 0x0b201400, PASSES, ANY},
    {0x3fe00000, 0x0b200000, MOVES, WRITES_RD_USES_RN},
    {0x3fe00000, 0x2b200000, MOVES, USES_RN},
    /* adc, sbc; ccmn, ccmp; csel, csinc, csinv, csneg */
    {0x1fe0fc00, 0x1a000000, MOVES, ANY},
    {0x3fe00410, 0x3a400000, MOVES, ANY},
    {0x3fe00800, 0x1a800000, MOVES, ANY},
    /* madd, msub of 32 bits. Of 64 bits only those that add nothing: behind a load, as in a stub, the first Cortex-A53
       sum up wrongly (erratum 835769) */
    {0xffe00000, 0x1b000000, MOVES, ANY},
    {0xffe07c00, 0x9b007c00, MOVES, ANY},
    {0xffe07c00, 0x9b207c00, MOVES, ANY},
    {0xffe07c00, 0x9ba07c00, MOVES, ANY},
    {0xffe0fc00, 0x9b407c00, MOVES, ANY},
    {0xffe0fc00, 0x9bc07c00, MOVES, ANY},
    /* udiv, sdiv; shifts; crc32 */
    {0x7fe0f800, 0x1ac00800, MOVES, ANY},
    {0x7fe0f000, 0x1ac02000, MOVES, ANY},
    {0xffe0ec00, 0x1ac04c00, PASSES, ANY},
    {0xffe0e000, 0x1ac04000, MOVES, ANY},
    {0xffe0ec00, 0x9ac04c00, MOVES, ANY},
    /* rbit, rev16; rev, rev32; rev of 64 bits; clz, cls */
    {0x7ffff800, 0x5ac00000, MOVES, ANY},
    {0x7ffffc00, 0x5ac00800, MOVES, ANY},
    {0xfffffc00, 0xdac00c00, MOVES, ANY},
    {0x7ffff800, 0x5ac01000, MOVES, ANY},

    /* pairs: not allocated, or of tags; then with a plain offset; then those that move the base */
    {0xfa000000, 0xe8000000, PASSES, ANY},
    {0xfe400000, 0x68000000, PASSES, ANY},
    {0xffc00000, 0x68400000, PASSES, ANY},
    {0x3a800000, 0x28000000, MOVES, ANY},
    {0x3a800000, 0x28800000, MOVES, BASE_MOVES},
    /* atomics of one instruction, swp, ldapr; stlr and ldar; cas */
    {0x3f208c00, 0x38200000, MOVES, ANY},
    {0x3f20fc00, 0x38208000, MOVES, ANY},
    {0x3ffffc00, 0x38bfc000, MOVES, ANY},
    {0x3fbffc00, 0x089ffc00, MOVES, ANY},
    {0x3fa07c00, 0x08a07c00, MOVES, ANY},
    {0x3f800000, 0x08000000, EXCLUSIVE, ANY},
    /* one register: prefetches and what is not allocated */
    {0xfe800000, 0xf8800000, PASSES, ANY},
    {0xfec00000, 0xb8c00000, PASSES, ANY},
    {0x7e800000, 0x7c800000, PASSES, ANY},
    {0xbe800000, 0xbc800000, PASSES, ANY},
    /* at an offset; at one not scaled; moving the base; with an index register */
    {0x3b000000, 0x39000000, MOVES, ANY},
    {0x3b200c00, 0x38000000, MOVES, ANY},
    {0x3b200400, 0x38000400, MOVES, BASE_MOVES},
    {0x3b204c00, 0x38204800, MOVES, ANY},
    /* of addresses that count from the instruction */
    {0x3b000000, 0x18000000, PASSES, ANY},
    /* structures of vectors, one element of them; moving the base */
    {0xbfbf0000, 0x0c000000, MOVES, ANY},
    {0xbfa00000, 0x0c800000, MOVES, BASE_MOVES},
    {0xbf9f0000, 0x0d000000, MOVES, ANY},
    {0xbf800000, 0x0d800000, MOVES, BASE_MOVES},

    /* floating point and vectors: none of this group knows an address or the stack pointer */
    {0x0e000000, 0x0e000000, MOVES, ANY},

    /* SVE: the emulator that proves the others does not know it, and movprfx belongs to what follows */
    {0x1e000000, 0x04000000, PASSES, ANY},

    /* b; b.cond; cbz, cbnz; tbz, tbnz */
    {0xfc000000, 0x14000000, JUMPS, ANY},
    {0xff000000, 0x54000000, FORKS, ANY},
    {0x7e000000, 0x34000000, FORKS, ANY},
    {0x7e000000, 0x36000000, FORKS, ANY},
    /* clrex; hints and barriers; mrs, msr; what cleans caches */
    {0xfffff0ff, 0xd503305f, EXCLUSIVE, ANY},
    {0xffffe01f, 0xd503201f, PASSES, ANY},
    {0xffd00000, 0xd5100000, PASSES, ANY},
    {0xfff80000, 0xd5080000, PASSES, ANY},

    /* the rest of data processing, and of loads and stores: the next instruction follows */
    {0x1c000000, 0x10000000, PASSES, ANY},
    {0x0e000000, 0x0a000000, PASSES, ANY},
    {0x0a000000, 0x08000000, PASSES, ANY},
};
/* clang-format on */

static int uses_stack_pointer(const form *of, uint32_t word)
{
    int rd = (int)(word & 31), rn = (int)(word >> 5 & 31);
    switch (of->operands) {
    case BASE_MOVES:
    case USES_RN:
        return rn == STACK_POINTER;
    case WRITES_RD:
        return rd == STACK_POINTER;
    case WRITES_RD_USES_RN:
        return rn == STACK_POINTER || rd == STACK_POINTER;
    default:
        return 0;
    }
}

uint8_t mc_a64_traits(uint32_t word)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if ((word & forms[i].mask) == forms[i].value)
            return uses_stack_pointer(&forms[i], word) ? PASSES : forms[i].traits;
    return 0;
}

int64_t mc_a64_jump_bytes(uint32_t word)
{
    return (int64_t)((uint64_t)word << 38) >> 36;
}

int64_t mc_a64_fork_bytes(uint32_t word)
{
    int is_test_bit = (word & 0x7e000000) == 0x36000000;
    int64_t n_words = is_test_bit ? (int64_t)((uint64_t)word << 45) >> 50 : (int64_t)((uint64_t)word << 40) >> 45;
    return n_words * MC_A64_BYTES;
}
