/* What the accounting of calls is tested with: a clock that the test sets, no gate, and counters that only take
   time. */
#ifndef MC_TEST_STAND_INS_H
#define MC_TEST_STAND_INS_H

#include "check.h"
#include "common/counters/pmu.h"
#include "common/counters/tally.h"
#include "guest/hooks.h"

#include <time.h>

static uint64_t clock_ns = 1000;

int clock_gettime(clockid_t id, struct timespec *now)
{
    (void)id;
    now->tv_sec = (time_t)(clock_ns / 1000000000u);
    now->tv_nsec = (long)(clock_ns % 1000000000u);
    return 0;
}

int mc_gate_install(mc_segment *segment)
{
    segment->gate.signal = 0;
    return MC_OK;
}

/* Counters take time, which the clock of this test must tell; how they count is tested elsewhere. */
enum { TALLY_NS = 7 };
static uint64_t n_tallies, tally_state;

void mc_tally_start(mc_tally *tally)
{
    tally->span = 0;
}

void mc_tally_note(mc_tally *tally, uint64_t span, int was_inside, uint64_t state)
{
    n_failed += was_inside != (state == MC_TALLY_OUTSIDE);
    tally->span = span;
    tally_state = state;
    n_tallies++;
    clock_ns += TALLY_NS;
}

void mc_tally_close(void)
{
}

void mc_tally_forget(void)
{
}

void mc_pmu_stop(mc_segment *segment)
{
    (void)segment;
}

void mc_pmu_forget(void)
{
}

#endif
