/* Rules for instructions that may be replaced by a jump, and what the stub is. Exit code: number of failed checks. */
#include "agent/relocation/relocate.h"
#include "common/mpicoloc.h"

#include "../support/check.h"

#include <string.h>

enum { BASE = 0x400000, STUB = 0x500000, OFFSET = -64, N_CODE = 64, CANNOT = 77 };

static mc_decoder *decoder;

/* Code of the given bytes at an address with this remainder modulo 16, then NOPs; the address of its begin. */
typedef struct sample {
    uint8_t bytes[N_CODE];
    uint64_t address;
} sample;

static sample make_sample(unsigned remainder, const char *bytes, size_t n)
{
    sample made = {.address = BASE + remainder};
    memset(made.bytes, 0x90, sizeof made.bytes);
    memcpy(made.bytes + remainder, bytes, n);
    return made;
}

#define CODE_AT(remainder, text) make_sample(remainder, text, sizeof(text) - 1)
#define CODE(text) CODE_AT(0, text)

static int relocate(const sample *code, uint64_t stub, mc_patch_code *patch)
{
    return mc_relocate(decoder, code->bytes, N_CODE, BASE, code->address, stub, OFFSET, patch);
}

/* Both functions must agree. */
static int is_admitted(sample code)
{
    mc_patch_code patch;
    uint64_t found[N_CODE];
    int status = relocate(&code, STUB, &patch);
    int n = mc_replaceable(decoder, code.bytes, N_CODE, BASE, code.address, N_CODE, found);
    CHECK((n > 0 && found[0] == code.address) == (status == MC_OK));
    return status == MC_OK;
}

#define MOV_IMM "\xb8\x01\x02\x03\x04"                     /* mov $0x4030201, %eax */
#define MOV_MEM "\x8b\x83\x00\x01\x00\x00"                 /* mov 0x100(%rbx), %eax */
#define ADD "\x01\xc8"                                     /* add %ecx, %eax */
#define JNE "\x75\x02"                                     /* jne */
#define FMA "\xc4\xe2\xf5\xb8\x05\x10\x20\x00\x00"         /* vfmadd231pd 0x2010(%rip), %ymm1, %ymm0 */
#define RIP_IMM "\xc7\x05\x10\x00\x00\x00\x07\x00\x00\x00" /* movl $7, 0x10(%rip) */

static void test_flags(void)
{
    CHECK(is_admitted(CODE(MOV_IMM ADD)));
    CHECK(is_admitted(CODE(MOV_MEM "\x48\x8d\x04\x08" ADD))); /* lea between */
    CHECK(is_admitted(CODE("\x81\xc1\x00\x01\x00\x00" JNE))); /* add $256, %ecx: its own flags are read */
    CHECK(is_admitted(CODE(FMA "\xff\xc0")));                 /* inc keeps CF, as the stub does */
    CHECK(is_admitted(CODE(FMA "\xf7\xd8")));                 /* neg */
    CHECK(is_admitted(CODE(FMA "\xc5\xf9\x2e\xc1")));         /* vucomisd */
    CHECK(is_admitted(CODE(MOV_IMM "\xc1\xe1\x03"
                                   "\x0f\xaf\xc1" ADD)));      /* shl, imul: undefined, but nobody reads */
    CHECK(!is_admitted(CODE(MOV_IMM "\xc5\xfb\xc2\xd2\x05"))); /* vcmpnltsd, by its name in Capstone vcomisd */
    CHECK(!is_admitted(CODE(MOV_IMM JNE)));
    CHECK(!is_admitted(CODE(MOV_IMM)));                    /* nothing writes them */
    CHECK(!is_admitted(CODE(MOV_IMM "\xc1\xe1\x03" JNE))); /* shl leaves some undefined */
    CHECK(!is_admitted(CODE(MOV_IMM "\xd3\xe1" JNE)));     /* shl %cl may leave all */
    CHECK(!is_admitted(CODE(MOV_IMM "\x0f\xaf\xc1"
                                    "\x70\x02")));                 /* imul, jo */
    CHECK(!is_admitted(CODE(MOV_IMM "\x0f\xbc\xc1" JNE)));         /* bsf */
    CHECK(!is_admitted(CODE(MOV_IMM "\x0f\x44\xc1" ADD)));         /* cmove */
    CHECK(!is_admitted(CODE(MOV_IMM "\x0f\x94\xc0" ADD)));         /* sete */
    CHECK(!is_admitted(CODE(MOV_IMM "\x9c" ADD)));                 /* pushf */
    CHECK(!is_admitted(CODE(MOV_IMM "\x9f" ADD)));                 /* lahf */
    CHECK(!is_admitted(CODE(MOV_IMM "\x66\x0f\x38\xf6\xc1" ADD))); /* adcx */
    CHECK(!is_admitted(CODE(MOV_IMM "\xf3\x0f\x38\xf6\xc1" ADD))); /* adox reads OF */
    CHECK(!is_admitted(CODE(MOV_IMM "\xda\xc9" ADD)));             /* fcmove */
    CHECK(!is_admitted(CODE(MOV_IMM "\x0f\xc7\x0b" JNE)));         /* cmpxchg8b writes ZF only */
    CHECK(!is_admitted(CODE(MOV_IMM "\xe8\x00\x00\x00\x00" ADD))); /* call */
    CHECK(!is_admitted(CODE(MOV_IMM "\xc3" ADD)));                 /* ret */
    CHECK(!is_admitted(CODE(MOV_IMM "\xeb\x00" ADD)));             /* jmp */
    CHECK(!is_admitted(CODE(MOV_IMM "\x0f\x05" ADD)));             /* syscall */
    CHECK(!is_admitted(CODE(MOV_IMM "\x06" ADD)));                 /* no instruction */
}

static void test_instructions(void)
{
    CHECK(!is_admitted(CODE("\x8b\x43\x08\x90" ADD)));                             /* 3 bytes */
    CHECK(!is_admitted(CODE("\xc5\xfb\x58\xc1" ADD)));                             /* 4 */
    CHECK(is_admitted(CODE("\xc5\xfb\xc2\xd2\x05" ADD)));                          /* vcmpnltsd */
    CHECK(is_admitted(CODE("\xc5\xfb\x58\x43\x08" ADD)));                          /* vaddsd 8(%rbx) */
    CHECK(is_admitted(CODE("\x62\xf1\xf5\x48\x58\x43\x01" ADD)));                  /* vaddpd zmm */
    CHECK(is_admitted(CODE("\xf2\x0f\x10\x43\x08" ADD)));                          /* movsd of SSE */
    CHECK(is_admitted(CODE("\xf3\x48\x0f\xb8\x43\x08" ADD)));                      /* popcnt */
    CHECK(is_admitted(CODE("\x48\xb8\x01\x02\x03\x04\x05\x06\x07\x08" ADD)));      /* movabs */
    CHECK(is_admitted(CODE("\x48\x8b\x44\x24\x08" ADD)));                          /* mov 8(%rsp) */
    CHECK(!is_admitted(CODE("\x48\x8d\x64\x24\x08" ADD)));                         /* lea 8(%rsp), %rsp */
    CHECK(!is_admitted(CODE("\x48\x81\xec\x00\x10\x00\x00" ADD)));                 /* sub $4096, %rsp */
    CHECK(!is_admitted(CODE("\x48\x8b\xa3\x00\x10\x00\x00" ADD)));                 /* mov 0x1000(%rbx), %rsp */
    CHECK(!is_admitted(CODE("\x68\x00\x10\x00\x00" ADD)));                         /* push */
    CHECK(!is_admitted(CODE("\xff\xb3\x00\x10\x00\x00" ADD)));                     /* push of memory */
    CHECK(!is_admitted(CODE("\x64\x48\x8b\x04\x25\x28\x00\x00\x00" ADD)));         /* mov %fs:0x28 */
    CHECK(!is_admitted(CODE("\x65\x48\x8b\x04\x25\x28\x00\x00\x00" ADD)));         /* gs */
    CHECK(!is_admitted(CODE("\x2e\x8b\x83\x00\x01\x00\x00" ADD)));                 /* cs */
    CHECK(!is_admitted(CODE("\x67\x8b\x83\x00\x01\x00\x00" ADD)));                 /* 32-bit address */
    CHECK(!is_admitted(CODE("\x67\x8b\x05\x00\x01\x00\x00" ADD)));                 /* of eip */
    CHECK(!is_admitted(CODE("\xf0\x83\x83\x00\x01\x00\x00\x01" ADD)));             /* lock add: jumped past by some */
    CHECK(!is_admitted(CODE("\xf3\xc7\x83\x00\x01\x00\x00\x07\x00\x00\x00" ADD))); /* xrelease mov */
    CHECK(!is_admitted(CODE("\xf2\x81\xc1\x00\x01\x00\x00" ADD)));                 /* repne add */
    CHECK(!is_admitted(CODE("\x66\x66\x66\x8b\x43\x08" ADD)));                     /* prefixes of no use */
    CHECK(!is_admitted(CODE("\xf3\x66\x48\x48\xa5" ADD)));                         /* rep movs */
    CHECK(!is_admitted(CODE("\x0f\x1f\x44\x00\x00" ADD)));                         /* nop */
    CHECK(!is_admitted(CODE("\xd9\x83\x00\x01\x00\x00" ADD)));                     /* flds */
    CHECK(!is_admitted(CODE("\xd9\xab\x00\x01\x00\x00" ADD)));                     /* fldcw */
    CHECK(!is_admitted(CODE("\x0f\xae\x83\x00\x01\x00\x00" ADD)));                 /* fxsave */
    CHECK(!is_admitted(CODE("\x0f\xae\x93\x00\x01\x00\x00" ADD)));                 /* ldmxcsr */
    CHECK(!is_admitted(CODE("\x0f\x6f\x83\x00\x01\x00\x00" ADD)));                 /* movq to an MMX register */
    CHECK(!is_admitted(CODE("\x8e\x9b\x00\x01\x00\x00" ADD)));                     /* mov to ds */
    CHECK(!is_admitted(CODE("\xe8\x00\x00\x00\x00" ADD)));                         /* call */
    CHECK(!is_admitted(CODE("\xe9\x00\x00\x00\x00" ADD)));                         /* jmp */
    CHECK(!is_admitted(CODE("\x0f\x85\x00\x00\x00\x00" ADD)));                     /* jne */
    CHECK(!is_admitted(CODE("\xc7\xf8\x00\x00\x00\x00" ADD)));                     /* xbegin */
    CHECK(!is_admitted(CODE("\x0f\xc7\x8b\x00\x01\x00\x00" ADD)));                 /* cmpxchg8b */
}

static void test_alignment(void)
{
    unsigned n_switched = __builtin_cpu_supports("avx") ? 16 : 8;
    for (unsigned remainder = 0; remainder < 16; remainder++) {
        int is_in_a_word = remainder % n_switched <= n_switched - 5;
        CHECK(is_admitted(CODE_AT(remainder, MOV_IMM ADD)) == is_in_a_word);
        CHECK(is_admitted(CODE_AT(remainder, FMA ADD)) == is_in_a_word);
    }
}

/* A word that is not within the code that was read is not switched. */
static void test_ends_of_code(void)
{
    sample code = CODE_AT(2, MOV_IMM ADD);
    mc_patch_code patch;
    uint64_t found[1];
    const uint8_t *at = code.bytes;
    CHECK(mc_relocate(decoder, at, 16, BASE, code.address, STUB, OFFSET, &patch) == MC_OK);
    CHECK(mc_relocate(decoder, at, 15, BASE, code.address, STUB, OFFSET, &patch) == MC_E_ARG);
    CHECK(mc_relocate(decoder, at + 2, 60, BASE + 2, code.address, STUB, OFFSET, &patch) == MC_E_ARG);
    CHECK(mc_replaceable(decoder, at + 2, 60, BASE + 2, code.address, 1, found) == 0);
    CHECK(mc_replaceable(decoder, at, 0, BASE, code.address, 1, found) == 0);
    CHECK(mc_replaceable(decoder, at, N_CODE, BASE, BASE - 1, 1, found) == 0);
    CHECK(mc_replaceable(decoder, at, N_CODE, BASE, code.address, 0, found) == 0);
}

static void test_patch(void)
{
    sample code = CODE_AT(2, MOV_MEM ADD);
    mc_patch_code patch;
    static const uint8_t stub[] = {0x64, 0x48, 0xff, 0x04, 0x25, 0xc0, 0xff, 0xff, 0xff, /* incq %fs:-64 */
                                   0x8b, 0x83, 0x00, 0x01, 0x00, 0x00,                   /* as it was */
                                   0xe9, 0xf4, 0xff, 0xef, 0xff};                        /* behind it */
    static const uint8_t after[] = {0x90, 0x90, 0xe9, 0xf9, 0xff, 0x0f, 0x00, 0x00,
                                    0x01, 0xc8, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90};
    CHECK(relocate(&code, STUB, &patch) == MC_OK);
    CHECK(patch.address == BASE + 2 && patch.word_address == BASE && patch.n_bytes == 6);
    CHECK(patch.n_stub == sizeof stub && memcmp(patch.stub, stub, sizeof stub) == 0);
    CHECK(memcmp(patch.before, code.bytes, sizeof patch.before) == 0);
    CHECK(memcmp(patch.after, after, sizeof patch.after) == 0);
}

static int32_t number_at(const uint8_t *at)
{
    int32_t number;
    memcpy(&number, at, sizeof number);
    return number;
}

/* The operand stays where it was; with an immediate behind, it counts from behind that. */
static void test_rip_relative(void)
{
    enum { COUNT = 9 };
    mc_patch_code patch;
    sample code = CODE(FMA ADD);
    CHECK(relocate(&code, STUB, &patch) == MC_OK);
    CHECK(STUB + COUNT + 9 + number_at(patch.stub + COUNT + 5) == BASE + 9 + 0x2010);
    code = CODE(RIP_IMM ADD);
    CHECK(relocate(&code, STUB, &patch) == MC_OK);
    CHECK(STUB + COUNT + 10 + number_at(patch.stub + COUNT + 2) == BASE + 10 + 0x10);
    CHECK(number_at(patch.stub + COUNT + 6) == 7);
}

static void test_reach(void)
{
    mc_patch_code patch;
    const uint64_t far = 0x7fffff00;
    sample plain = CODE(MOV_MEM ADD), relative = CODE(FMA ADD);
    sample away = CODE("\xc4\xe2\xf5\xb8\x05\x00\x00\x00\x80" ADD); /* -2 GiB */
    CHECK(relocate(&plain, BASE + far, &patch) == MC_OK);
    CHECK(relocate(&plain, BASE - far, &patch) == MC_OK);
    CHECK(relocate(&plain, BASE + far + 0x200, &patch) == MC_E_ARG);
    CHECK(relocate(&plain, BASE - far - 0x200, &patch) == MC_E_ARG);
    CHECK(relocate(&relative, BASE - far, &patch) == MC_E_ARG);
    CHECK(relocate(&relative, BASE + far, &patch) == MC_OK);
    CHECK(relocate(&away, BASE + 0x1000, &patch) == MC_E_ARG);
    CHECK(relocate(&away, BASE - 0x1000, &patch) == MC_OK);
}

/* Past conditional jumps, along others, not into what the walk has seen. */
static void test_walk(void)
{
    static const uint8_t code[N_CODE] = {
        0x75, 0x10,                   /* 0: jne */
        0xeb, 0x04,                   /* 2: jmp 8 */
        0xff, 0xff, 0xff, 0xff,       /* 4: no instruction */
        0xb8, 1,    2,    3,    4,    /* 8: mov */
        0x01, 0xc8,                   /* 13: add */
        0x90,                         /* 15 */
        0xb9, 1,    2,    3,    4,    /* 16: mov, after which flags are read */
        0x0f, 0x94, 0xc0,             /* 21: sete */
        0xba, 1,    2,    3,    4,    /* 24: mov */
        0x90, 0x90, 0x90,             /* 29 */
        0x81, 0xc1, 1,    0,    0, 0, /* 32: add */
        0xeb, 0xdc,                   /* 38: jmp 4 bytes into the walk */
    };
    uint64_t found[8];
    CHECK(mc_replaceable(decoder, code, N_CODE, BASE, BASE, 8, found) == 3);
    CHECK(found[0] == BASE + 8 && found[1] == BASE + 24 && found[2] == BASE + 32);
    CHECK(mc_replaceable(decoder, code, N_CODE, BASE, BASE, 2, found) == 2);
    CHECK(mc_replaceable(decoder, code, N_CODE, BASE, BASE + 4, 8, found) == 0);
    CHECK(mc_replaceable(decoder, code, N_CODE, BASE, BASE + 24, 8, found) == 2);
}

/* The begins of loops lie before what is inside them. */
static void test_loop_heads(void)
{
    const uint8_t code[N_CODE] = {
        0x4c, 0x8b, 0x5c, 0x24, 0x20, /* 0: mov 0x20(%rsp), %r11 */
        0x48, 0x83, 0xc7, 0x01,       /* 5: add $1, %rdi */
        0x45, 0x39, 0xcd,             /* 9: cmp %r9d, %r13d */
        0x75, 0xf7,                   /* 12: jne 5 */
        0x75, 0x02,                   /* 14: jne 18: forward */
        0x75, 0xf3,                   /* 16: jne 5: the same loop */
        0x41, 0x39, 0xfa,             /* 18: cmp %edi, %r10d */
        0x75, 0xe9,                   /* 21: jne 0 */
        0xff, 0xc1,                   /* 23: inc %ecx */
        0x75, 0xfc,                   /* 25: jne 23: behind the others */
        0xc3,                         /* 27: ret */
    };
    uint64_t heads[4];
    CHECK(mc_loop_heads(decoder, code, N_CODE, BASE, BASE + 9, 4, heads) == 2);
    CHECK(heads[0] == BASE + 5 && heads[1] == BASE);
    CHECK(mc_loop_heads(decoder, code, N_CODE, BASE, BASE + 9, 1, heads) == 1 && heads[0] == BASE + 5);
    CHECK(mc_loop_heads(decoder, code, N_CODE, BASE, BASE, 4, heads) == 1 && heads[0] == BASE);
    CHECK(mc_loop_heads(decoder, code, N_CODE, BASE, BASE + 27, 4, heads) == 0);
    /* What lies before the bytes that were read, as code that is hardly executed, is no loop around them. */
    CHECK(mc_loop_heads(decoder, code + 2, N_CODE - 2, BASE + 2, BASE + 9, 4, heads) == 1 && heads[0] == BASE + 5);
    CHECK(mc_loop_heads(decoder, code, N_CODE, BASE, BASE - 1, 4, heads) == 0);
    CHECK(mc_loop_heads(NULL, code, N_CODE, BASE, BASE + 9, 4, heads) == 0);
}

static void test_far_heads(void)
{
    static uint8_t code[2 * MC_LOOP_BYTES];
    uint64_t heads[1];
    for (int n_more = 0; n_more < 2; n_more++) { /* jne, back to the begin */
        size_t at = MC_LOOP_BYTES - 1 + (size_t)n_more;
        int32_t distance = -(int32_t)(at + 6);
        memset(code, 0x90, sizeof code);
        memcpy(code + at, "\x0f\x85", 2);
        memcpy(code + at + 2, &distance, sizeof distance);
        CHECK(mc_loop_heads(decoder, code, sizeof code, BASE, BASE + 9, 1, heads) == !n_more);
    }
}

int main(void)
{
    mc_patch_code patch;
    sample code = CODE(MOV_IMM ADD);
    CHECK(mc_relocate(NULL, code.bytes, N_CODE, BASE, code.address, STUB, OFFSET, &patch) == MC_E_ARG);
    decoder = mc_decoder_new();
    if (!decoder)
        return n_failed ? n_failed : CANNOT;
    test_flags();
    test_instructions();
    test_alignment();
    test_ends_of_code();
    test_patch();
    test_rip_relative();
    test_reach();
    test_walk();
    test_loop_heads();
    test_far_heads();
    mc_decoder_free(decoder);
    return n_failed;
}
