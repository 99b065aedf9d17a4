#include "agent/relocation/walk.h"

#include "agent/relocation/relocate.h"
#include "common/mpicoloc.h"

uint64_t mc_context_begin(uint64_t offset)
{
    uint64_t word = offset - offset % MC_WORD_BYTES;
    return word > MC_CONTEXT_BYTES ? word - MC_CONTEXT_BYTES : 0;
}

mc_walk mc_walk_from(uint64_t address)
{
    return (mc_walk){.n_spans = 1, .begin = {address}, .end = {address}, .at = address};
}

static int has_been(const mc_walk *way, uint64_t address)
{
    for (int i = 0; i < way->n_spans; i++)
        if (address >= way->begin[i] && address < way->end[i])
            return 1;
    return 0;
}

int mc_walk_on(mc_walk *way, const mc_instruction *instruction)
{
    way->at += instruction->n_bytes;
    way->end[way->n_spans - 1] = way->at;
    if (instruction->traits & MC_JUMPS) {
        if (way->n_spans == MC_N_SPANS)
            return 0;
        way->at = instruction->target;
        if (has_been(way, way->at))
            return 0;
        way->begin[way->n_spans] = way->end[way->n_spans] = way->at;
        way->n_spans++;
    }
    return instruction->traits & (MC_GOES_ON | MC_JUMPS) && !has_been(way, way->at);
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
    mc_walk way = mc_walk_from(from);
    mc_instruction it;
    int n_found = 0;
    while (n_found < n_max && mc_instruction_at(decoder, code, n, base, way.at, &it) == MC_OK) {
        int is_near = it.target >= base && it.target <= from && way.at - it.target < MC_LOOP_BYTES;
        if (it.traits & MC_FORKS && is_near && !has_head(heads, n_found, it.target))
            heads[n_found++] = it.target;
        if (!mc_walk_on(&way, &it))
            break;
    }
    return n_found;
}
