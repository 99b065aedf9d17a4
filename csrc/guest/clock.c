#define _GNU_SOURCE
#include "guest/clock.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>

enum { RENEW_NS = 250000000 };

#ifdef MC_HAS_TSC

enum {
    LONGEST_READ_TICKS = 20000, /* if reading both clocks takes longer, the thread was interrupted in between */
    SHORTEST_BASE_NS = 5000000, /* a rate that is measured over a shorter time is not accurate enough */
    N_READS = 3,
};

/* Shared by all threads: whether the counter is usable, the reading of both clocks at load time, and the latest rate
   that any thread has measured. */
static atomic_int is_usable;
static mc_clock first;
static _Atomic uint64_t latest_rate;

/* Read both clocks at nearly the same instant: of N_READS tries, the fastest counts. Returns 0 if every try was
   interrupted. */
static int read_pair(uint64_t *ticks, uint64_t *ns)
{
    uint64_t best = LONGEST_READ_TICKS;
    for (int i = 0; i < N_READS; i++) {
        uint64_t before = __rdtsc(), now = mc_now_ns(), took = __rdtsc() - before;
        if (took < best) {
            best = took;
            *ticks = before + took / 2;
            *ns = now;
        }
    }
    return best < LONGEST_READ_TICKS;
}

/* 1 if the kernel itself uses the time-stamp counter as the clock of all processors, and lets programs read the
   counter. */
static int kernel_trusts_it(void)
{
    static const char path[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    char name[16];
    int mode = 0;
    return mc_proc_read_text(path, name, sizeof name) > 0 && strcmp(name, "tsc\n") == 0 &&
           prctl(PR_GET_TSC, &mode) == 0 && mode == PR_TSC_ENABLE;
}

__attribute__((constructor)) static void read_first(void)
{
    is_usable = kernel_trusts_it() && read_pair(&first.ticks, &first.ns);
}

static uint64_t rate_since(const mc_clock *clock, uint64_t ticks, uint64_t ns)
{
    if (ns - clock->ns < SHORTEST_BASE_NS || ticks <= clock->ticks)
        return 0;
    return (uint64_t)(((unsigned __int128)(ns - clock->ns) << 32) / (ticks - clock->ticks));
}

static void renew_rate(mc_clock *clock)
{
    uint64_t ticks = 0, ns = 0, known = atomic_load_explicit(&latest_rate, memory_order_relaxed);
    if (!read_pair(&ticks, &ns))
        return;
    uint64_t rate = rate_since(clock->ticks ? clock : &first, ticks, ns);
    if (rate && known && (rate > known + known / 256 || rate < known - known / 256)) {
        /* The counter is not reliable, because the machine was suspended or migrated, or the clock was stepped. */
        atomic_store_explicit(&is_usable, 0, memory_order_relaxed);
        return;
    }
    clock->ticks = ticks;
    clock->ns = ns;
    clock->ns_per_tick_q32 = rate ? rate : known;
    if (rate)
        atomic_store_explicit(&latest_rate, rate, memory_order_relaxed);
}

#endif

void mc_clock_renew(mc_clock *clock)
{
    clock->due_ns = clock->latest_ns + RENEW_NS;
#ifdef MC_HAS_TSC
    if (atomic_load_explicit(&is_usable, memory_order_relaxed))
        renew_rate(clock);
    if (!atomic_load_explicit(&is_usable, memory_order_relaxed))
        clock->ns_per_tick_q32 = 0;
#endif
}

void mc_clock_start(mc_clock *clock)
{
    memset(clock, 0, sizeof *clock);
    clock->latest_ns = mc_now_ns();
    mc_clock_renew(clock);
}
