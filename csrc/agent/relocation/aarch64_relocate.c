#include "agent/relocation/aarch64_relocate.h"

#include "agent/relocation/aarch64_encoding.h"
#include "agent/relocation/walk.h"
#include "common/mpicoloc.h"

#include <string.h>

/* Architecture: a loop of exclusives lies within 128 bytes. */
enum { EXCLUSIVES_BYTES = MC_CONTEXT_BYTES, COUNTER_BYTES = 8, PAGE_SHIFT = 12 };

/* The counter's offset is put into those with a 0 in these bits. */
enum {
    SAVE = (int32_t)0xa9bf47f0,         /* stp x16, x17, [sp, #-16]! */
    READ_POINTER = (int32_t)0xd53bd050, /* mrs x16, tpidr_el0 */
    ADD_PAGES = (int32_t)0x91400210,    /* add x16, x16, #0, lsl #12 */
    LOAD = (int32_t)0xf9400211,         /* ldr x17, [x16, #0] */
    ADD_ONE = (int32_t)0x91000631,      /* add x17, x17, #1 */
    STORE = (int32_t)0xf9000211,        /* str x17, [x16, #0] */
    RESTORE = (int32_t)0xa8c147f0,      /* ldp x16, x17, [sp], #16 */
    BRANCH = 0x14000000
};

typedef struct code_view {
    const uint8_t *bytes;
    size_t n;
    uint64_t base;
} code_view;

static int has(const code_view *code, uint64_t address, uint64_t n)
{
    return address >= code->base && n <= code->n && address - code->base <= code->n - n;
}

/* Little-endian also where the kernel is not: so the architecture has it. 0, which is no instruction: outside. */
static uint32_t word_at(const code_view *code, uint64_t address)
{
    if (address % MC_A64_BYTES || !has(code, address, MC_A64_BYTES))
        return 0;
    const uint8_t *at = code->bytes + (address - code->base);
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static int is_near_exclusive(const code_view *code, uint64_t address)
{
    for (int64_t distance = -EXCLUSIVES_BYTES; distance < EXCLUSIVES_BYTES; distance += MC_A64_BYTES)
        if (mc_a64_traits(word_at(code, address + (uint64_t)distance)) & MC_A64_EXCLUSIVE)
            return 1;
    return 0;
}

static int may_move(const code_view *code, uint64_t address)
{
    return mc_a64_traits(word_at(code, address)) & MC_MOVES &&
           has(code, address - address % MC_WORD_BYTES, MC_WORD_BYTES) && !is_near_exclusive(code, address);
}

static mc_instruction instruction_at(const code_view *code, uint64_t address)
{
    uint32_t word = word_at(code, address);
    uint8_t traits = mc_a64_traits(word);
    mc_instruction found = {.n_bytes = MC_A64_BYTES, .traits = traits};
    if (traits & (MC_FORKS | MC_JUMPS))
        found.target = address + (uint64_t)(traits & MC_FORKS ? mc_a64_fork_bytes(word) : mc_a64_jump_bytes(word));
    return found;
}

int mc_a64_replaceable(const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max, uint64_t *addresses)
{
    const code_view view = {code, n, base};
    mc_walk way = mc_walk_from(from);
    mc_instruction instruction;
    int n_found = 0;
    do {
        instruction = instruction_at(&view, way.at);
        if (n_found < n_max && may_move(&view, way.at))
            addresses[n_found++] = way.at;
    } while (n_found < n_max && mc_walk_on(&way, &instruction));
    return n_found;
}

static void put(uint8_t *at, uint32_t word)
{
    for (int i = 0; i < MC_A64_BYTES; i++)
        at[i] = (uint8_t)(word >> 8 * i);
}

/* MC_E_ARG: out of reach. */
static int put_branch(uint8_t *at, uint64_t address, uint64_t to)
{
    int64_t distance = (int64_t)(to - address);
    if (distance % MC_A64_BYTES || distance < -(1 << 27) || distance >= 1 << 27)
        return MC_E_ARG;
    put(at, BRANCH | ((uint32_t)(distance / MC_A64_BYTES) & 0x03ffffff));
    return MC_OK;
}

static int make_stub(uint32_t word, uint64_t stub_address, int32_t counter_offset, mc_patch_code *out)
{
    uint32_t low = (uint32_t)counter_offset & ((1u << PAGE_SHIFT) - 1), high = (uint32_t)counter_offset >> PAGE_SHIFT;
    const uint32_t add_pages = (uint32_t)ADD_PAGES | high << 10, of_low = low / COUNTER_BYTES << 10;
    const uint32_t words[] = {
        (uint32_t)SAVE,    (uint32_t)READ_POINTER,   high ? add_pages : 0, (uint32_t)LOAD | of_low,
        (uint32_t)ADD_ONE, (uint32_t)STORE | of_low, (uint32_t)RESTORE,    word};
    if (counter_offset < 0 || counter_offset % COUNTER_BYTES || high >= 1u << 12 || stub_address % MC_A64_BYTES)
        return MC_E_ARG;
    uint8_t *at = out->stub;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!words[i]) /* not needed */
            continue;
        put(at, words[i]);
        at += MC_A64_BYTES;
    }
    out->n_stub = (uint32_t)(at + MC_A64_BYTES - out->stub);
    return put_branch(at, stub_address + (uint64_t)(at - out->stub), out->address + MC_A64_BYTES);
}

int mc_a64_relocate(const uint8_t *code, size_t n, uint64_t base, uint64_t address, uint64_t stub_address,
                    int32_t counter_offset, mc_patch_code *out)
{
    const code_view view = {code, n, base};
    if (!may_move(&view, address))
        return MC_E_ARG;
    uint64_t word_address = address - address % MC_WORD_BYTES;
    *out = (mc_patch_code){.address = address, .word_address = word_address, .n_bytes = MC_A64_BYTES};
    memcpy(out->before, code + (word_address - base), MC_WORD_BYTES);
    memcpy(out->after, out->before, MC_WORD_BYTES);
    if (put_branch(out->after + (address - word_address), address, stub_address) != MC_OK)
        return MC_E_ARG;
    return make_stub(word_at(&view, address), stub_address, counter_offset, out);
}

#ifdef __aarch64__

/* The table is all that there is. */
struct mc_decoder {
    int nothing;
};

static mc_decoder the_table;

mc_decoder *mc_decoder_new(void)
{
    return &the_table;
}

void mc_decoder_free(mc_decoder *decoder)
{
    (void)decoder;
}

/* The table does not tell of registers: no loop is known to wait. */
int mc_decode_effects(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t address, mc_effects *out)
{
    (void)decoder, (void)code, (void)n, (void)address, (void)out;
    return MC_E_ARG;
}

int mc_replaceable(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max,
                   uint64_t *addresses)
{
    return decoder ? mc_a64_replaceable(code, n, base, from, n_max, addresses) : 0;
}

int mc_instruction_at(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address,
                      mc_instruction *out)
{
    const code_view view = {code, n, base};
    *out = instruction_at(&view, address);
    return decoder && has(&view, address, MC_A64_BYTES) ? MC_OK : MC_E_ARG;
}

int mc_relocate(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address,
                uint64_t stub_address, int32_t counter_offset, mc_patch_code *out)
{
    return decoder ? mc_a64_relocate(code, n, base, address, stub_address, counter_offset, out) : MC_E_ARG;
}

#endif
