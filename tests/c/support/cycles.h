/* Calls at a site, shutters, and what has been counted of them, on a clock that the test sets. */
#ifndef MC_TEST_CYCLES_H
#define MC_TEST_CYCLES_H

#include "stand_ins.h"

#include "common/table.h"
#include "guest/hooks.h"

enum { LEAD = 20, TAIL = 10 }; /* of a shutter before and after its window, ns */

/* What the MPI library calls itself does not count. */
static __attribute__((noinline)) void call_inside(void *site)
{
    mc_frame frame;
    CHECK_EQUAL(mc_enter(&frame, 8, site), 0);
    CHECK_EQUAL(mc_enter_light(&frame, 8, site, MC_STACK()), 0);
}

/* One MPI call at a site: computes for comp_ns, then is in MPI for mpi_ns. */
static void cycle(void *site, uint64_t comp_ns, uint64_t mpi_ns, uint64_t bytes)
{
    mc_frame frame;
    clock_ns += comp_ns;
    int outermost = mc_enter(&frame, 7, site);
    CHECK_EQUAL(outermost, 1);
    call_inside(site);
    clock_ns += mpi_ns;
    mc_leave(&frame, bytes, 0);
}

static mc_window *publish(mc_segment *s, uint64_t t0, uint64_t t1)
{
    mc_window *window = &s->sampling.windows[s->sampling.n_windows % MC_N_WINDOWS];
    *window = (mc_window){t0 - LEAD, t0, t1, t1 + TAIL, s->sampling.n_windows, MC_VERDICT_UNKNOWN};
    s->sampling.n_windows++;
    return window;
}

static mc_cell sum(const mc_lane *lane, int phase)
{
    mc_cell total = {0};
    for (int i = 0; i < MC_N_CYCLES; i++)
        for (int g = 0; g < MC_N_GROUPS; g++)
            mc_cell_add(&total, phase == MC_PHASE_SOLO ? &lane->cycles[i].solo[g].cell : &lane->cycles[i].corun[g]);
    return total;
}

/* Times of cut cycles: cell.n counts those of co-run. */
static mc_sample cut(const mc_lane *lane)
{
    mc_sample total = {{0, 0, 0}, 0, 0};
    for (int i = 0; i < MC_N_CYCLES; i++) {
        total.cell.n += lane->cycles[i].n_cut;
        total.cell.comp_ns += lane->cycles[i].cut_ns;
        for (int g = 0; g < MC_N_GROUPS; g++) {
            total.cut_ns += lane->cycles[i].solo[g].cut_ns;
            total.done_ns += lane->cycles[i].solo[g].done_ns;
        }
    }
    return total;
}

#endif
