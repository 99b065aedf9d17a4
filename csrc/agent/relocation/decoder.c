#define _GNU_SOURCE
#include "agent/relocation/decoder.h"

#include "common/mpicoloc.h"

#if defined(MC_CAPSTONE) && defined(__x86_64__)

#include "agent/relocation/encoding.h"

#include <capstone/capstone.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#if CS_API_MAJOR != 5
#error "the headers of Capstone 5 are needed"
#endif

typedef struct capstone {
    void *library;
    unsigned (*version)(int *, int *);
    const char *(*name)(csh, unsigned);
    cs_err (*open)(cs_arch, cs_mode, csh *);
    cs_err (*close)(csh *);
    cs_err (*option)(csh, cs_opt_type, size_t);
    cs_insn *(*malloc)(csh);
    void (*free)(cs_insn *, size_t);
    cs_err (*registers)(csh, const cs_insn *, cs_regs, uint8_t *, cs_regs, uint8_t *);
    bool (*decode)(csh, const uint8_t **, size_t *, uint64_t *, cs_insn *);
} capstone;

struct mc_decoder {
    capstone cs;
    csh handle;
    cs_insn *insn;
};

enum {
    IS_INTEGER = 64, /* neither prefix F2 nor F3 is part of its opcode */
    MOVES = MC_GOES_ON | MC_SPARES_FLAGS | MC_MOVES
};

#define KILLER(id) INSTRUCTION(id, MOVES | MC_SETS_FLAGS | IS_INTEGER)
#define VECTOR_KILLER(id) INSTRUCTION(id, MOVES | MC_SETS_FLAGS)
#define INTEGER(id) INSTRUCTION(id, MOVES | IS_INTEGER)
#define PREFIXED(id) INSTRUCTION(id, MOVES)
#define VECTOR(id) INSTRUCTION(id, MOVES)
#define SILENT(id) INSTRUCTION(id, MC_GOES_ON | MC_SPARES_FLAGS)
#define PASSED(id) INSTRUCTION(id, MC_GOES_ON)
#define FORK(id) INSTRUCTION(id, MC_GOES_ON | MC_FORKS)

static const uint8_t traits_of[X86_INS_ENDING] = {
#define INSTRUCTION(id, traits) [X86_INS_##id] = (traits),
#include "agent/relocation/instructions.h"
#undef INSTRUCTION
};

static const struct {
    uint16_t id;
    const char *name;
} known[] = {
#define INSTRUCTION(id, traits) {X86_INS_##id, #id},
#include "agent/relocation/instructions.h"
#undef INSTRUCTION
};

static void *load_library(void)
{
    char path[PATH_MAX];
    static const char name[] = "libcapstone.so";
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof name);
    void *library = NULL;
    if (n > 0) {
        path[n] = '\0';
        char *slash = strrchr(path, '/');
        memcpy(slash ? slash + 1 : path, name, sizeof name);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return library ? library : dlopen("libcapstone.so.5", RTLD_NOW | RTLD_LOCAL);
}

/* ISO C cannot convert the pointer that dlsym returns to a function pointer. */
#define FIND(function, name) \
    do { \
        void *found = dlsym(cs->library, name); \
        if (!found) \
            return MC_E_ABI; \
        memcpy(&(function), &found, sizeof found); \
    } while (0)

static int find_functions(capstone *cs)
{
    FIND(cs->version, "cs_version");
    FIND(cs->name, "cs_insn_name");
    FIND(cs->open, "cs_open");
    FIND(cs->close, "cs_close");
    FIND(cs->option, "cs_option");
    FIND(cs->malloc, "cs_malloc");
    FIND(cs->free, "cs_free");
    FIND(cs->registers, "cs_regs_access");
    FIND(cs->decode, "cs_disasm_iter");
    return MC_OK;
}

/* Check the numbers of instructions: if the library and its headers numbered them differently, rules would apply to the
   wrong instructions. */
static int has_our_numbers(const mc_decoder *decoder)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *name = decoder->cs.name(decoder->handle, known[i].id);
        if (!name || strcasecmp(name, known[i].name) != 0)
            return 0;
    }
    return 1;
}

static int open_decoder(mc_decoder *decoder)
{
    capstone *cs = &decoder->cs;
    int major = 0, minor = 0;
    cs->library = load_library();
    if (!cs->library || find_functions(cs) != MC_OK)
        return MC_E_GONE;
    cs->version(&major, &minor);
    if (major != CS_API_MAJOR || minor != CS_API_MINOR || cs->open(CS_ARCH_X86, CS_MODE_64, &decoder->handle))
        return MC_E_ABI;
    if (cs->option(decoder->handle, CS_OPT_DETAIL, CS_OPT_ON) || !has_our_numbers(decoder))
        return MC_E_ABI;
    decoder->insn = cs->malloc(decoder->handle);
    return decoder->insn ? MC_OK : MC_E_FULL;
}

mc_decoder *mc_decoder_new(void)
{
    mc_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder || open_decoder(decoder) == MC_OK)
        return decoder;
    mc_decoder_free(decoder);
    return NULL;
}

void mc_decoder_free(mc_decoder *decoder)
{
    if (!decoder)
        return;
    if (decoder->insn)
        decoder->cs.free(decoder->insn, 1);
    if (decoder->handle)
        decoder->cs.close(&decoder->handle);
    if (decoder->cs.library)
        dlclose(decoder->cs.library);
    free(decoder);
}

#define OTHER (UINT64_C(1) << 63)
#define LETTER(i, l) \
    case X86_REG_R##l##X: \
    case X86_REG_E##l##X: \
    case X86_REG_##l##X: \
    case X86_REG_##l##L: \
    case X86_REG_##l##H: \
        return UINT64_C(1) << (i)
#define POINTER(i, name) \
    case X86_REG_R##name: \
    case X86_REG_E##name: \
    case X86_REG_##name: \
    case X86_REG_##name##L: \
        return UINT64_C(1) << (i)
#define RANGE(i, first, last) \
    case first ... last: \
        return UINT64_C(1) << ((i) + (int)reg - (first))

/* A part of a register counts as the whole register. Flags are left out, because state that a loop keeps in flags is in
   registers too. */
static uint64_t bit_of(x86_reg reg)
{
    enum { N_GENERAL = 16, N_VECTOR = 32 };
    switch ((int)reg) {
    case X86_REG_EFLAGS:
    case X86_REG_RIP:
        return 0;
        LETTER(0, A);
        LETTER(1, B);
        LETTER(2, C);
        LETTER(3, D);
        POINTER(4, SI);
        POINTER(5, DI);
        POINTER(6, BP);
        RANGE(8, X86_REG_R8, X86_REG_R15);
        RANGE(8, X86_REG_R8B, X86_REG_R15B);
        RANGE(8, X86_REG_R8D, X86_REG_R15D);
        RANGE(8, X86_REG_R8W, X86_REG_R15W);
        RANGE(N_GENERAL, X86_REG_XMM0, X86_REG_XMM31);
        RANGE(N_GENERAL, X86_REG_YMM0, X86_REG_YMM31);
        RANGE(N_GENERAL, X86_REG_ZMM0, X86_REG_ZMM31);
        RANGE(N_GENERAL + N_VECTOR, X86_REG_K0, X86_REG_K7);
    default:
        return OTHER;
    }
}

/* 1: a general, vector or mask register. 0: the stack pointer, which signal handlers and unwinders look at, or an MMX,
   segment or system register. */
static int is_plain(x86_reg reg)
{
    uint64_t bit = bit_of(reg);
    return bit && bit != OTHER;
}

static int has_plain_operands(const cs_x86 *x86, const mc_encoding *encoding)
{
    int n_rip = 0;
    for (int i = 0; i < x86->op_count; i++) {
        const cs_x86_op *operand = &x86->operands[i];
        if (operand->type == X86_OP_REG && !is_plain(operand->reg))
            return 0;
        if (operand->type != X86_OP_MEM)
            continue;
        if (operand->mem.segment != X86_REG_INVALID || operand->mem.base == X86_REG_EIP)
            return 0;
        n_rip += operand->mem.base == X86_REG_RIP;
    }
    return n_rip == (encoding->rip_at != 0);
}

/* A prefix that has no effect on this processor may have an effect on another processor: lock elision reused such
   prefixes. */
static int has_plain_prefixes(uint8_t traits, const mc_encoding *encoding)
{
    uint8_t n_repeat = encoding->prefixes & (MC_PREFIX_F2 | MC_PREFIX_F3);
    if (encoding->prefixes & (MC_PREFIX_LOCK | MC_PREFIX_OTHER | MC_PREFIX_TWICE))
        return 0;
    return traits & IS_INTEGER ? !n_repeat : n_repeat != (MC_PREFIX_F2 | MC_PREFIX_F3);
}

/* Some string instructions share a name with SSE instructions, which never have a one-byte opcode. */
static int is_of_its_class(uint8_t traits, const mc_encoding *encoding)
{
    return traits & IS_INTEGER || encoding->is_vex || encoding->map != MC_MAP_ONE_BYTE;
}

static int may_move(uint8_t traits, const cs_insn *insn, const mc_encoding *encoding)
{
    const cs_x86 *x86 = &insn->detail->x86;
    const cs_x86_encoding *theirs = &x86->encoding;
    if (encoding->n_bytes != insn->size)
        return 0;
    if (encoding->rip_at && (theirs->disp_offset != encoding->rip_at || theirs->disp_size != MC_DISPLACEMENT_BYTES))
        return 0;
    return is_of_its_class(traits, encoding) && has_plain_prefixes(traits, encoding) &&
           has_plain_operands(x86, encoding);
}

static int reads_flags(const cs_x86 *x86)
{
    return (x86->eflags & (X86_EFLAGS_TEST_OF | X86_EFLAGS_TEST_SF | X86_EFLAGS_TEST_ZF | X86_EFLAGS_TEST_PF)) != 0;
}

/* Traits on which Capstone and mc_encoding agree. */
static uint8_t agree(uint8_t traits, const cs_insn *insn, mc_encoding *encoding)
{
    if (!(traits & MC_SPARES_FLAGS))
        return traits;
    if (mc_encoding_read(insn->bytes, insn->size, encoding) != MC_OK || mc_encoding_reads_flags(encoding) ||
        reads_flags(&insn->detail->x86))
        return MC_GOES_ON;
    if (!mc_encoding_sets_flags(encoding) || encoding->n_bytes != insn->size)
        traits &= (uint8_t)~MC_SETS_FLAGS;
    if (traits & MC_MOVES && !may_move(traits, insn, encoding))
        traits &= (uint8_t)~MC_MOVES;
    return traits;
}

/* Intel's and AMD's processors disagree on the length of a near jump with prefix 66. */
static int is_plain_jump(const cs_insn *insn)
{
    uint8_t prefixes;
    mc_encoding_prefixes(insn->bytes, insn->size, &prefixes);
    return !(prefixes & MC_PREFIX_66);
}

static uint8_t traits_at(const cs_insn *insn)
{
    return insn->id < X86_INS_ENDING ? traits_of[insn->id] : 0;
}

/* Target address of a direct jump, conditional or not; 0: it is unknown, or the instruction is no direct jump. */
static uint64_t target_of(const cs_insn *insn)
{
    const cs_x86 *x86 = &insn->detail->x86;
    int is_jump = insn->id == X86_INS_JMP || traits_at(insn) & MC_FORKS;
    int is_direct = x86->op_count == 1 && x86->operands[0].type == X86_OP_IMM && is_plain_jump(insn);
    return is_jump && is_direct ? (uint64_t)x86->operands[0].imm : 0;
}

static void tell(const cs_insn *insn, mc_instruction *out)
{
    uint8_t traits = traits_at(insn);
    mc_encoding encoding;
    *out = (mc_instruction){.n_bytes = (uint8_t)insn->size, .target = target_of(insn)};
    if (insn->id == X86_INS_JMP && out->target) {
        out->traits = MC_JUMPS;
        return;
    }
    if (traits & MC_FORKS && !is_plain_jump(insn))
        return;
    out->traits = agree(traits, insn, &encoding) & (uint8_t)~IS_INTEGER;
    out->rip_at = out->traits & MC_MOVES ? encoding.rip_at : 0;
}

int mc_decode(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t address, mc_instruction *out)
{
    size_t n_left = n < MC_INSTRUCTION_MAX ? n : MC_INSTRUCTION_MAX;
    if (!decoder || !decoder->cs.decode(decoder->handle, &code, &n_left, &address, decoder->insn))
        return MC_E_ARG;
    tell(decoder->insn, out);
    return MC_OK;
}

static uint64_t bits_of(const uint16_t *registers, uint8_t n)
{
    uint64_t bits = 0;
    for (uint8_t i = 0; i < n; i++)
        bits |= bit_of(registers[i]);
    return bits;
}

/* An operand whose use Capstone does not report counts as written. */
static void tell_operands(const cs_x86 *x86, mc_effects *out)
{
    for (int i = 0; i < x86->op_count; i++) {
        const cs_x86_op *operand = &x86->operands[i];
        int is_written = operand->access & CS_AC_WRITE || !operand->access;
        if (operand->type == X86_OP_MEM)
            out->kinds |= (uint8_t)((operand->access & CS_AC_READ ? MC_LOADS : 0) | (is_written ? MC_STORES : 0));
        else if (operand->type == X86_OP_REG && !operand->access)
            out->kinds |= MC_UNCLEAR;
    }
}

/* Report the constant that ADD, SUB, INC, DEC or LEA adds. A 32-bit operand counts too: writing it clears the upper
   half. */
static void tell_step(const cs_insn *insn, mc_effects *out)
{
    const cs_x86 *x86 = &insn->detail->x86;
    const cs_x86_op *to = &x86->operands[0], *by = &x86->operands[1];
    if (x86->op_count < 1 || to->type != X86_OP_REG || to->size < 4)
        return;
    uint64_t bit = bit_of(to->reg);
    int has_constant = x86->op_count == 2 && by->type == X86_OP_IMM;
    int moves_itself = x86->op_count == 2 && by->type == X86_OP_MEM && by->mem.index == X86_REG_INVALID &&
                       by->mem.segment == X86_REG_INVALID && by->mem.base == to->reg;
    int64_t step = insn->id == X86_INS_INC                   ? 1
                   : insn->id == X86_INS_DEC                 ? -1
                   : insn->id == X86_INS_ADD && has_constant ? by->imm
                   : insn->id == X86_INS_SUB && has_constant ? -by->imm
                   : insn->id == X86_INS_LEA && moves_itself ? by->mem.disp
                                                             : 0;
    if (step == 0 || bit == 0 || bit >= UINT64_C(1) << 16)
        return;
    out->step = step;
    out->stepped = (uint8_t)__builtin_ctzll(bit);
}

static void tell_effects(mc_decoder *decoder, mc_effects *out)
{
    const cs_insn *insn = decoder->insn;
    const cs_x86 *x86 = &insn->detail->x86;
    cs_regs reads, writes;
    uint8_t n_reads = 0, n_writes = 0;
    *out = (mc_effects){.n_bytes = (uint8_t)insn->size, .target = target_of(insn)};
    if (insn->id == X86_INS_PAUSE) {
        out->kinds = MC_PAUSES;
    } else if (out->target) {
        out->kinds = MC_BRANCHES;
    } else if (insn->id == X86_INS_JMP || insn->id == X86_INS_RET) {
        out->kinds = MC_RETURNS;
    } else if (insn->id != X86_INS_NOP) {
        if (!traits_at(insn) || decoder->cs.registers(decoder->handle, insn, reads, &n_reads, writes, &n_writes))
            out->kinds = MC_UNCLEAR;
        tell_operands(x86, out);
        out->reads = bits_of(reads, n_reads);
        out->writes = bits_of(writes, n_writes);
        if (insn->id == X86_INS_LEA) /* LEA only computes an address */
            out->kinds &= (uint8_t) ~(MC_LOADS | MC_STORES);
        tell_step(insn, out);
    }
}

int mc_decode_effects(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t address, mc_effects *out)
{
    size_t n_left = n < MC_INSTRUCTION_MAX ? n : MC_INSTRUCTION_MAX;
    if (!decoder || !decoder->cs.decode(decoder->handle, &code, &n_left, &address, decoder->insn))
        return MC_E_ARG;
    tell_effects(decoder, out);
    return MC_OK;
}

#else

mc_decoder *mc_decoder_new(void)
{
    return NULL;
}

void mc_decoder_free(mc_decoder *decoder)
{
    (void)decoder;
}

int mc_decode(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t address, mc_instruction *out)
{
    (void)decoder, (void)code, (void)n, (void)address, (void)out;
    return MC_E_ARG;
}

int mc_decode_effects(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t address, mc_effects *out)
{
    (void)decoder, (void)code, (void)n, (void)address, (void)out;
    return MC_E_ARG;
}

#endif
