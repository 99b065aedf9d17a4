/* CLOCK_MONOTONIC, read from the processor's time-stamp counter where that is safe. This halves the cost, which
   matters because every timed call reads the clock twice. */
#ifndef MPICOLOC_CLOCK_H
#define MPICOLOC_CLOCK_H

#include "common/proc.h"

#if defined(__x86_64__) && !defined(MC_NO_TSC)
#include <x86intrin.h>
#define MC_HAS_TSC 1
#endif

/* Each thread has its own clock, so that no thread reads fields that another is writing. */
typedef struct mc_clock {
    uint64_t ticks, ns;       /* both read at one instant */
    uint64_t ns_per_tick_q32; /* times 2^32; 0: read the kernel's clock instead */
    uint64_t latest_ns;       /* last time returned; time never goes back, even when the rate is corrected */
    uint64_t due_ns;          /* time of the next correction */
} mc_clock;

/* Set the clock of a new thread. */
void mc_clock_start(mc_clock *clock);

/* Correct rate and offset; call it once clock->due_ns has passed. */
void mc_clock_renew(mc_clock *clock);

static inline uint64_t mc_clock_read(mc_clock *clock)
{
#ifdef MC_HAS_TSC
    if (__builtin_expect(clock->ns_per_tick_q32 != 0, 1)) {
        unsigned __int128 product = (unsigned __int128)(__rdtsc() - clock->ticks) * clock->ns_per_tick_q32;
        uint64_t now = clock->ns + (uint64_t)(product >> 32);
        clock->latest_ns = now > clock->latest_ns ? now : clock->latest_ns;
        return clock->latest_ns;
    }
#endif
    return clock->latest_ns = mc_now_ns();
}

#endif
