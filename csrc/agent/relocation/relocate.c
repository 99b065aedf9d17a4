#include "agent/relocation/relocate.h"

#include "common/mpicoloc.h"

#include <string.h>

enum { DISPLACEMENT_BYTES = 4, JUMP = 0xe9, N_SPANS = 16 };

/* incq %fs:offset, without the offset. */
static const uint8_t count_one[] = {0x64, 0x48, 0xff, 0x04, 0x25};
enum { N_COUNT = sizeof count_one + DISPLACEMENT_BYTES };

static int inside(const mc_code *code, uint64_t address)
{
    return address - code->base < code->n;
}

static int decode_at(const mc_code *code, uint64_t address, mc_instruction *out)
{
    size_t offset = (size_t)(address - code->base);
    return inside(code, address) &&
           mc_decode(code->decoder, code->bytes + offset, code->n - offset, address, out) == MC_OK;
}

/* State of a walk along code from the start of an instruction: the spans of code that the walk has passed. The walk
   ends before it would repeat a span. */
typedef struct walk {
    int n_spans;
    uint64_t begin[N_SPANS], end[N_SPANS];
    uint64_t at;
} walk;

static walk walk_from(uint64_t address)
{
    return (walk){.n_spans = 1, .begin = {address}, .end = {address}, .at = address};
}

static int has_been(const walk *way, uint64_t address)
{
    for (int i = 0; i < way->n_spans; i++)
        if (address >= way->begin[i] && address < way->end[i])
            return 1;
    return 0;
}

/* Advance past the instruction or to its jump target. Returns 0 at the end. */
static int walk_on(walk *way, const mc_instruction *instruction)
{
    way->at += instruction->n_bytes;
    way->end[way->n_spans - 1] = way->at;
    if (instruction->traits & MC_JUMPS) {
        if (way->n_spans == N_SPANS)
            return 0;
        way->at = instruction->target;
        if (has_been(way, way->at))
            return 0;
        way->begin[way->n_spans] = way->end[way->n_spans] = way->at;
        way->n_spans++;
    }
    return instruction->traits & (MC_GOES_ON | MC_JUMPS) && !has_been(way, way->at);
}

uint64_t mc_context_begin(uint64_t offset)
{
    uint64_t word = offset - offset % MC_WORD_BYTES;
    return word > MC_CONTEXT_BYTES ? word - MC_CONTEXT_BYTES : 0;
}

/* Number of bytes that one store changes atomically. */
static uint64_t switched_bytes(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx") ? MC_WORD_BYTES : MC_WORD_BYTES / 2;
#else
    return MC_WORD_BYTES / 2;
#endif
}

/* 1: the instruction can be moved and has room for a jump, and `code` holds its whole word. */
static int fits_a_jump(const mc_code *code, uint64_t address, const mc_instruction *instruction)
{
    uint64_t word = address - address % MC_WORD_BYTES, n_switched = switched_bytes();
    if (!(instruction->traits & MC_MOVES) || instruction->n_bytes < MC_JUMP_BYTES)
        return 0;
    return address % n_switched + MC_JUMP_BYTES <= n_switched && inside(code, word) &&
           code->n - (size_t)(word - code->base) >= MC_WORD_BYTES;
}

/* A candidate is accepted when later code has written all flags. It is dropped if code may read a flag before that. */
int mc_replaceable(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max,
                   uint64_t *addresses)
{
    const mc_code view = {decoder, code, n, base};
    mc_instruction instruction;
    walk way = walk_from(from);
    int n_found = 0, n_waiting = 0;
    while (n_found < n_max && decode_at(&view, way.at, &instruction)) {
        if (!(instruction.traits & MC_SPARES_FLAGS))
            n_waiting = 0;
        else if (n_found + n_waiting < n_max && fits_a_jump(&view, way.at, &instruction))
            addresses[n_found + n_waiting++] = way.at;
        if (instruction.traits & MC_SETS_FLAGS) {
            n_found += n_waiting;
            n_waiting = 0;
        }
        if (!walk_on(&way, &instruction))
            break;
    }
    return n_found;
}

static int has_head(const uint64_t *heads, int n, uint64_t head)
{
    for (int i = 0; i < n; i++)
        if (heads[i] == head)
            return 1;
    return 0;
}

int mc_loop_heads(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t from, int n_max,
                  uint64_t *heads)
{
    const mc_code view = {decoder, code, n, base};
    walk way = walk_from(from);
    mc_instruction it;
    int n_found = 0;
    while (n_found < n_max && decode_at(&view, way.at, &it)) {
        int is_near = it.target >= base && it.target <= from && way.at - it.target < MC_LOOP_BYTES;
        if (it.traits & MC_FORKS && is_near && !has_head(heads, n_found, it.target))
            heads[n_found++] = it.target;
        if (!walk_on(&way, &it))
            break;
    }
    return n_found;
}

/* 1: the code writes all flags before anything reads one. */
static int are_flags_dead(const mc_code *code, uint64_t address)
{
    mc_instruction instruction;
    while (decode_at(code, address, &instruction) && instruction.traits & MC_SPARES_FLAGS) {
        if (instruction.traits & MC_SETS_FLAGS)
            return 1;
        address += instruction.n_bytes;
    }
    return 0;
}

/* Write the displacement that leads to `to` from an instruction that ends at `from`; MC_E_ARG: out of reach. */
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
    const mc_code view = {decoder, code, n, base};
    mc_instruction instruction;
    if (!decode_at(&view, address, &instruction) || !fits_a_jump(&view, address, &instruction) ||
        !are_flags_dead(&view, address))
        return MC_E_ARG;
    uint64_t word_address = address - address % MC_WORD_BYTES;
    *out = (mc_patch_code){.address = address, .word_address = word_address, .n_bytes = instruction.n_bytes};
    memcpy(out->before, code + (word_address - base), MC_WORD_BYTES);
    memcpy(out->after, out->before, MC_WORD_BYTES);
    if (put_jump(out->after + (address - word_address), address, stub_address) != MC_OK)
        return MC_E_ARG;
    return make_stub(&instruction, code + (address - base), stub_address, fs_offset, out);
}
