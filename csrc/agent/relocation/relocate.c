#include "agent/relocation/relocate.h"

#include "agent/relocation/walk.h"
#include "common/mpicoloc.h"

#include <string.h>

enum { DISPLACEMENT_BYTES = 4, JUMP = 0xe9 };

/* incq %fs:offset, without the offset. */
static const uint8_t count_one[] = {0x64, 0x48, 0xff, 0x04, 0x25};
enum { N_COUNT = sizeof count_one + DISPLACEMENT_BYTES };

typedef struct code_view {
    const uint8_t *bytes;
    size_t n;
    uint64_t base;
} code_view;

static int inside(const code_view *code, uint64_t address)
{
    return address - code->base < code->n;
}

static int decode_at(mc_decoder *decoder, const code_view *code, uint64_t address, mc_instruction *out)
{
    if (!inside(code, address))
        return MC_E_ARG;
    size_t offset = (size_t)(address - code->base);
    return mc_decode(decoder, code->bytes + offset, code->n - offset, address, out);
}

int mc_instruction_at(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address,
                      mc_instruction *out)
{
    return decode_at(decoder, &(code_view){code, n, base}, address, out);
}

/* Of memory, that one store can change so that nobody sees half of it. */
static uint64_t switched_bytes(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx") ? MC_WORD_BYTES : MC_WORD_BYTES / 2;
#else
    return MC_WORD_BYTES / 2;
#endif
}

/* Also whether the word can be read as a whole. */
static int fits_a_jump(const code_view *code, uint64_t address, const mc_instruction *instruction)
{
    uint64_t word = address - address % MC_WORD_BYTES, n_switched = switched_bytes();
    if (!(instruction->traits & MC_MOVES) || instruction->n_bytes < MC_JUMP_BYTES)
        return 0;
    return address % n_switched + MC_JUMP_BYTES <= n_switched && inside(code, word) &&
           code->n - (size_t)(word - code->base) >= MC_WORD_BYTES;
}

/* Candidates wait until the flags are written; they are dropped where the flags may be read. */
int mc_replaceable(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max,
                   uint64_t *addresses)
{
    const code_view view = {code, n, base};
    mc_instruction instruction;
    mc_walk way = mc_walk_from(from);
    int n_found = 0, n_waiting = 0;
    while (n_found < n_max && decode_at(decoder, &view, way.at, &instruction) == MC_OK) {
        if (!(instruction.traits & MC_SPARES_FLAGS))
            n_waiting = 0;
        else if (n_found + n_waiting < n_max && fits_a_jump(&view, way.at, &instruction))
            addresses[n_found + n_waiting++] = way.at;
        if (instruction.traits & MC_SETS_FLAGS) {
            n_found += n_waiting;
            n_waiting = 0;
        }
        if (!mc_walk_on(&way, &instruction))
            break;
    }
    return n_found;
}

/* Nothing reads the flags before all are written. */
static int are_flags_dead(mc_decoder *decoder, const code_view *code, uint64_t address)
{
    mc_instruction instruction;
    while (decode_at(decoder, code, address, &instruction) == MC_OK && instruction.traits & MC_SPARES_FLAGS) {
        if (instruction.traits & MC_SETS_FLAGS)
            return 1;
        address += instruction.n_bytes;
    }
    return 0;
}

/* A displacement that leads to `to` from an instruction that ends at `from`; MC_E_ARG: out of reach. */
static int put_displacement(uint8_t *at, uint64_t from, uint64_t to)
{
    int64_t displacement = (int64_t)(to - from);
    int32_t told = (int32_t)displacement;
    if (told != displacement)
        return MC_E_ARG;
    memcpy(at, &told, sizeof told);
    return MC_OK;
}

static int put_jump(uint8_t *at, uint64_t address, uint64_t to)
{
    at[0] = JUMP;
    return put_displacement(at + 1, address + MC_JUMP_BYTES, to);
}

static int put_moved(uint8_t *at, uint64_t address, const mc_instruction *instruction, const uint8_t *bytes,
                     uint64_t from)
{
    int32_t displacement;
    memcpy(at, bytes, instruction->n_bytes);
    if (!instruction->rip_at)
        return MC_OK;
    memcpy(&displacement, bytes + instruction->rip_at, sizeof displacement);
    uint64_t target = from + instruction->n_bytes + (uint64_t)(int64_t)displacement;
    return put_displacement(at + instruction->rip_at, address + instruction->n_bytes, target);
}

static int make_stub(const mc_instruction *instruction, const uint8_t *bytes, uint64_t stub_address, int32_t fs_offset,
                     mc_patch_code *out)
{
    uint8_t *at = out->stub;
    memcpy(at, count_one, sizeof count_one);
    memcpy(at + sizeof count_one, &fs_offset, sizeof fs_offset);
    at += N_COUNT;
    if (put_moved(at, stub_address + N_COUNT, instruction, bytes, out->address) != MC_OK)
        return MC_E_ARG;
    at += instruction->n_bytes;
    uint64_t jump_address = stub_address + (uint64_t)(at - out->stub);
    if (put_jump(at, jump_address, out->address + instruction->n_bytes) != MC_OK)
        return MC_E_ARG;
    out->n_stub = (uint32_t)(at + MC_JUMP_BYTES - out->stub);
    return MC_OK;
}

int mc_relocate(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address,
                uint64_t stub_address, int32_t fs_offset, mc_patch_code *out)
{
    const code_view view = {code, n, base};
    mc_instruction instruction;
    if (decode_at(decoder, &view, address, &instruction) != MC_OK || !fits_a_jump(&view, address, &instruction) ||
        !are_flags_dead(decoder, &view, address))
        return MC_E_ARG;
    uint64_t word_address = address - address % MC_WORD_BYTES;
    *out = (mc_patch_code){.address = address, .word_address = word_address, .n_bytes = instruction.n_bytes};
    memcpy(out->before, code + (word_address - base), MC_WORD_BYTES);
    memcpy(out->after, out->before, MC_WORD_BYTES);
    if (put_jump(out->after + (address - word_address), address, stub_address) != MC_OK)
        return MC_E_ARG;
    return make_stub(&instruction, code + (address - base), stub_address, fs_offset, out);
}
