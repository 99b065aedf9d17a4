#include "agent/relocation/encoding.h"

#include "common/mpicoloc.h"

enum { REX_MASK = 0xf0, REX = 0x40, REX_W = 8, TWO_BYTES = 0x0f, VEX2 = 0xc5, VEX3 = 0xc4, EVEX = 0x62 };

static const uint8_t prefix_of[256] = {
    [0x66] = MC_PREFIX_66,    [0xf2] = MC_PREFIX_F2,    [0xf3] = MC_PREFIX_F3,    [0xf0] = MC_PREFIX_LOCK,
    [0x26] = MC_PREFIX_OTHER, [0x2e] = MC_PREFIX_OTHER, [0x36] = MC_PREFIX_OTHER, [0x3e] = MC_PREFIX_OTHER,
    [0x64] = MC_PREFIX_OTHER, [0x65] = MC_PREFIX_OTHER, [0x67] = MC_PREFIX_OTHER,
};

size_t mc_encoding_prefixes(const uint8_t *bytes, size_t n, uint8_t *prefixes)
{
    size_t i = 0;
    *prefixes = 0;
    for (uint8_t prefix; i < n && (prefix = prefix_of[bytes[i]]) != 0; i++)
        *prefixes |= (uint8_t)(*prefixes & prefix ? MC_PREFIX_TWICE : prefix);
    if (i < n && (bytes[i] & REX_MASK) == REX)
        *prefixes |= (uint8_t)(MC_PREFIX_REX | (bytes[i++] & REX_W ? MC_PREFIX_REX_W : 0));
    return i;
}

/* AVX10 and APX use EVEX bits that are fixed in AVX-512: refuse instructions that use them. */
static size_t read_evex(const uint8_t *bytes, size_t n, mc_encoding *out)
{
    enum { MAP_MASK = 0x0f, FIXED_MASK = 0x04, N_BYTES = 5 };
    if (n < N_BYTES || !(bytes[2] & FIXED_MASK))
        return 0;
    out->map = bytes[1] & MAP_MASK;
    out->opcode = bytes[4];
    return N_BYTES;
}

static size_t read_vex(const uint8_t *bytes, size_t n, mc_encoding *out)
{
    enum { MAP_MASK = 0x1f, N_BYTES_2 = 3, N_BYTES_3 = 4 };
    size_t n_bytes = bytes[0] == VEX2 ? N_BYTES_2 : N_BYTES_3;
    if (n < n_bytes)
        return 0;
    out->map = bytes[0] == VEX2 ? (uint8_t)MC_MAP_0F : bytes[1] & MAP_MASK;
    out->opcode = bytes[n_bytes - 1];
    return n_bytes;
}

static size_t read_legacy(const uint8_t *bytes, size_t n, mc_encoding *out)
{
    size_t n_bytes = 1;
    out->map = MC_MAP_ONE_BYTE;
    if (bytes[0] == TWO_BYTES && n > 1) {
        out->map = bytes[1] == 0x38 ? MC_MAP_0F38 : bytes[1] == 0x3a ? MC_MAP_0F3A : MC_MAP_0F;
        n_bytes = out->map == MC_MAP_0F ? 2 : 3;
    }
    if (n < n_bytes)
        return 0;
    out->opcode = bytes[n_bytes - 1];
    return n_bytes;
}

/* Number of bytes of the opcode, with its VEX or EVEX prefix; 0: refused. */
static size_t read_opcode(const uint8_t *bytes, size_t n, mc_encoding *out)
{
    if (n == 0)
        return 0;
    out->is_vex = bytes[0] == VEX2 || bytes[0] == VEX3 || bytes[0] == EVEX;
    size_t n_bytes = bytes[0] == EVEX ? read_evex(bytes, n, out)
                     : out->is_vex    ? read_vex(bytes, n, out)
                                      : read_legacy(bytes, n, out);
    if (out->is_vex && (out->prefixes || out->map < MC_MAP_0F || out->map > MC_MAP_0F3A))
        return 0;
    return n_bytes;
}

/* Number of bytes of an immediate that is as wide as the operand, but has at most 4 bytes. */
static int operand_bytes(const mc_encoding *out)
{
    return out->prefixes & MC_PREFIX_66 && !(out->prefixes & MC_PREFIX_REX_W) ? 2 : 4;
}

/* Number of bytes after an opcode without a ModRM byte; -1: the opcode has a ModRM byte. */
static int without_modrm(const mc_encoding *out)
{
    if (out->is_vex || out->map != MC_MAP_ONE_BYTE)
        return -1;
    if ((out->opcode & 0xf8) == 0xb0) /* mov to a byte register */
        return 1;
    if ((out->opcode & 0xf8) == 0xb8) /* mov */
        return out->prefixes & MC_PREFIX_REX_W ? 8 : operand_bytes(out);
    if ((out->opcode & 0xfc) == 0xa0) /* mov at an absolute address */
        return 8;
    if (out->opcode == 0xa8 || ((out->opcode & 0xc7) == 0x04)) /* test, add ... cmp with al */
        return 1;
    if (out->opcode == 0xa9 || ((out->opcode & 0xc7) == 0x05)) /* the same with eax */
        return operand_bytes(out);
    return -1;
}

/* Number of bytes of the immediate that follows a ModRM byte and its operands, by opcode. */
enum {
    OPERAND = 8,     /* as wide as the operand */
    FOR_TEST = 16,   /* only `test` has an immediate, the rest of its group (not, neg, mul ...) has none */
    LEGACY_ONLY = 32 /* not with VEX */
};

static const uint8_t one_byte_immediate[256] = {
    [0x6b] = 1,
    [0x69] = OPERAND, /* imul */
    [0x80] = 1,
    [0x83] = 1,
    [0x81] = OPERAND, /* add ... cmp */
    [0xc0] = 1,
    [0xc1] = 1, /* shifts */
    [0xc6] = 1,
    [0xc7] = OPERAND, /* mov */
    [0xf6] = FOR_TEST | 1,
    [0xf7] = FOR_TEST | OPERAND,
};

static const uint8_t two_byte_immediate[256] = {
    [0x70] = 1,
    [0x71] = 1,
    [0x72] = 1,
    [0x73] = 1, /* pshuf, shifts of vectors */
    [0xc2] = 1, /* cmpps */
    [0xc4] = 1,
    [0xc5] = 1,
    [0xc6] = 1, /* pinsrw, pextrw, shufps */
    [0xa4] = LEGACY_ONLY | 1,
    [0xac] = LEGACY_ONLY | 1,
    [0xba] = LEGACY_ONLY | 1, /* shld, shrd, bt */
};

static int immediate_of(const mc_encoding *out, uint8_t modrm)
{
    if (out->map > MC_MAP_0F)
        return out->map == MC_MAP_0F3A;
    uint8_t rule = out->map == MC_MAP_0F ? two_byte_immediate[out->opcode] : one_byte_immediate[out->opcode];
    if ((rule & FOR_TEST && modrm & 0x30) || (rule & LEGACY_ONLY && out->is_vex))
        return 0;
    return rule & OPERAND ? operand_bytes(out) : rule & 1;
}

/* Number of bytes of ModRM, SIB and displacement; 0: the code ends too early. */
static size_t read_memory(const uint8_t *bytes, size_t n, mc_encoding *out)
{
    if (n == 0)
        return 0;
    unsigned mode = bytes[0] >> 6, base = bytes[0] & 7u;
    size_t n_bytes = 1;
    if (mode != 3 && base == 4) {
        if (n < 2)
            return 0;
        base = bytes[1] & 7u;
        n_bytes = 2;
    } else if (mode == 0 && base == 5) {
        out->rip_at = (uint8_t)(out->modrm_at + 1);
    }
    if (mode == 1)
        n_bytes += 1;
    else if (mode == 2 || (mode == 0 && base == 5))
        n_bytes += MC_DISPLACEMENT_BYTES;
    return n_bytes;
}

/* Number of bytes after the opcode; -1: the code ends too early. */
static int read_operands(const uint8_t *bytes, size_t n, mc_encoding *out)
{
    int n_immediate = without_modrm(out);
    if (n_immediate >= 0)
        return n_immediate;
    size_t n_memory = read_memory(bytes, n, out);
    if (!n_memory)
        return -1;
    out->modrm = bytes[0];
    return (int)n_memory + immediate_of(out, bytes[0]);
}

int mc_encoding_read(const uint8_t *bytes, size_t n, mc_encoding *out)
{
    *out = (mc_encoding){0};
    size_t at = mc_encoding_prefixes(bytes, n, &out->prefixes);
    size_t n_opcode = read_opcode(bytes + at, n - at, out);
    if (!n_opcode)
        return MC_E_ARG;
    at += n_opcode;
    out->modrm_at = (uint8_t)at;
    int n_operands = read_operands(bytes + at, n - at, out);
    if (n_operands >= 0 && at + (size_t)n_operands <= n && at + (size_t)n_operands <= MC_INSTRUCTION_MAX)
        out->n_bytes = (uint8_t)(at + (size_t)n_operands);
    return MC_OK;
}

/* Number of an operation within a group that shares an opcode. For an opcode below 64, the number is (opcode >> 3). */
enum { ADC = 2, SBB = 3 };

static unsigned group_of(const mc_encoding *encoding)
{
    return encoding->modrm >> 3 & 7u;
}

static int sets_flags_by_one_byte(const mc_encoding *encoding)
{
    enum { NOT = 2, NEG = 3 };
    unsigned group = group_of(encoding), operation = encoding->opcode >> 3;
    switch (encoding->opcode) {
    case 0x80: /* add ... cmp */
    case 0x81:
    case 0x83:
        return group != ADC && group != SBB;
    case 0x84: /* test */
    case 0x85:
    case 0xa8:
    case 0xa9:
        return 1;
    case 0xf6: /* test, not, neg, mul ... */
    case 0xf7:
        return group <= NEG && group != NOT;
    case 0xfe: /* inc, dec, call ... */
    case 0xff:
        return group <= 1;
    default: /* add ... cmp */
        return encoding->opcode < 0x40 && (encoding->opcode & 7) <= 5 && operation != ADC && operation != SBB;
    }
}

int mc_encoding_sets_flags(const mc_encoding *encoding)
{
    switch (encoding->map) {
    case MC_MAP_ONE_BYTE:
        return sets_flags_by_one_byte(encoding);
    case MC_MAP_0F: /* ucomis, comis */
        return encoding->opcode == 0x2e || encoding->opcode == 0x2f;
    case MC_MAP_0F38: /* ptest */
        return encoding->opcode == 0x17;
    default:
        return 0;
    }
}

static int reads_flags_by_one_byte(const mc_encoding *encoding)
{
    unsigned group = group_of(encoding), operation = encoding->opcode >> 3;
    switch (encoding->opcode) {
    case 0x80: /* adc, sbb */
    case 0x81:
    case 0x83:
    case 0xc0: /* rcl, rcr */
    case 0xc1:
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return group == ADC || group == SBB;
    case 0xda: /* fcmov */
    case 0xdb:
        return encoding->modrm >= 0xc0 && encoding->modrm < 0xe0;
    case 0x9c: /* pushf, lahf, cmc */
    case 0x9f:
    case 0xf5:
        return 1;
    default: /* adc, sbb; jumps; loops */
        return operation == ADC || operation == SBB || encoding->opcode >> 4 == 7 ||
               (encoding->opcode >= 0xe0 && encoding->opcode <= 0xe3);
    }
}

int mc_encoding_reads_flags(const mc_encoding *encoding)
{
    if (encoding->is_vex)
        return 0;
    switch (encoding->map) {
    case MC_MAP_ONE_BYTE:
        return reads_flags_by_one_byte(encoding);
    case MC_MAP_0F: /* cmov, jumps, set */
        return encoding->opcode >> 4 == 4 || encoding->opcode >> 4 == 8 || encoding->opcode >> 4 == 9;
    case MC_MAP_0F38: /* adcx, adox */
        return encoding->opcode == 0xf6;
    default:
        return 0;
    }
}
