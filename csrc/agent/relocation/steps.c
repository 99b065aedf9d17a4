#include "agent/relocation/steps.h"

#include "agent/relocation/polling.h"
#include "common/mpicoloc.h"

enum { N_REGISTERS = 16 };

/* Writes to each general register by the instructions of a loop. */
typedef struct writes {
    int n[N_REGISTERS], is_surely_stepped[N_REGISTERS];
    int64_t step[N_REGISTERS];
    uint64_t skipped_until; /* a jump can skip the instructions before this address */
} writes;

static void add(writes *all, const mc_effects *it, uint64_t at)
{
    for (int i = 0; i < N_REGISTERS; i++)
        all->n[i] += (int)(it->writes >> i & 1);
    if (it->step) {
        all->step[it->stepped] = it->step;
        all->is_surely_stepped[it->stepped] = at >= all->skipped_until;
    }
    if (it->kinds & MC_BRANCHES && it->target > at && it->target > all->skipped_until)
        all->skipped_until = it->target;
}

/* A jump out of the loop ends the loop, so it does not skip any instruction of a pass that continues. */
static void add_jump(writes *all, const mc_effects *it, uint64_t at, const mc_loop *around)
{
    mc_effects inside = *it;
    if (it->target > around->jump || it->target < around->begin)
        inside.target = 0;
    add(all, &inside, at);
}

int mc_loop_step(mc_decoder *decoder, const uint8_t *code, size_t n, uint64_t base, uint64_t address,
                 mc_stepped_loop *out)
{
    const mc_code view = {decoder, code, n, base};
    mc_loop around;
    mc_effects it;
    writes all = {.n = {0}};
    uint64_t at;
    int has_passed = 0;
    if (!mc_loop_around(&view, address, &around))
        return MC_E_ARG;
    for (at = around.begin; at <= around.jump && mc_code_effects(&view, at, &it); at += it.n_bytes) {
        int is_back = it.kinds & MC_BRANCHES && it.target <= at && it.target >= around.begin;
        int is_inner = is_back && at < around.jump;
        if (it.kinds & (MC_UNCLEAR | MC_RETURNS) || is_inner)
            return MC_E_ARG;
        has_passed |= at == address;
        add_jump(&all, &it, at, &around);
    }
    if (at <= around.jump || !has_passed)
        return MC_E_ARG;
    for (int i = 0; i < N_REGISTERS; i++)
        if (all.n[i] == 1 && all.is_surely_stepped[i]) {
            *out = (mc_stepped_loop){around.begin, at - around.begin, all.step[i], i};
            return MC_OK;
        }
    return MC_E_ARG;
}
