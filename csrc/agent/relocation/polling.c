#include "agent/relocation/polling.h"

#include "common/mpicoloc.h"

enum { N_WALK = 128 };

int mc_code_effects(const mc_code *code, uint64_t address, mc_effects *out)
{
    uint64_t offset = address - code->base;
    return offset < code->n &&
           mc_decode_effects(code->decoder, code->bytes + offset, code->n - (size_t)offset, address, out) == MC_OK;
}

int mc_loop_around(const mc_code *code, uint64_t address, mc_loop *found)
{
    mc_effects it;
    uint64_t at = address;
    for (int i = 0; i < N_WALK && mc_code_effects(code, at, &it) && !(it.kinds & MC_RETURNS); i++) {
        if (it.kinds & MC_BRANCHES && it.target <= address) {
            *found = (mc_loop){it.target, at};
            return 1;
        }
        at += it.n_bytes;
    }
    return 0;
}

/* Combined effects of all instructions of a loop. */
typedef struct sum {
    uint64_t defined; /* registers that every pass writes before it reads them */
    uint64_t kept;    /* registers that a pass may read before it writes them */
    uint64_t written;
    uint8_t kinds;
    int has_branched, has_inner_loop;
} sum;

/* A write after a conditional jump does not define its register, because the jump may skip it. */
static void add(sum *all, const mc_effects *it, const mc_loop *around, uint64_t at)
{
    all->kept |= it->reads & ~all->defined;
    all->written |= it->writes;
    if (!all->has_branched)
        all->defined |= it->writes;
    all->kinds |= it->kinds;
    if (it->kinds & MC_BRANCHES) {
        all->has_branched = 1;
        all->has_inner_loop |= it->target <= at && it->target > around->begin;
    }
}

int mc_polls(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address)
{
    const mc_code view = {decoder, code, n, base};
    mc_loop around;
    mc_effects it;
    sum all = {0};
    uint64_t at;
    int has_passed = 0;
    if (!mc_loop_around(&view, address, &around))
        return 0;
    for (at = around.begin; at <= around.jump && mc_code_effects(&view, at, &it); at += it.n_bytes) {
        has_passed |= at == address;
        add(&all, &it, &around, at);
    }
    if (at <= around.jump || !has_passed || all.has_inner_loop)
        return 0;
    if (all.kinds & MC_PAUSES)
        return 1;
    return all.kinds & MC_LOADS && !(all.kinds & (MC_STORES | MC_UNCLEAR | MC_RETURNS)) && !(all.kept & all.written);
}
