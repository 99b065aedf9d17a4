/* Division of a shutter's time. */
#ifndef MPICOLOC_INTERVALS_H
#define MPICOLOC_INTERVALS_H

#include <stdint.h>

enum {
    MC_APART_NS = 1500000, /* gap between the pauses and the windows that meters count beside them */
    MC_LEAD_NS = 10000000, /* an agent that counts nothing before an instant wakes this long before it */
    /* Windows in which places are counted end this long before an instant: the job was up to 7 % slower in windows in
       which agents woke. */
    MC_QUIET_NS = MC_LEAD_NS + 2000000
};

static inline uint64_t mc_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t mc_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Co-runners must be paused within this time after the shutter's start. */
static inline uint64_t mc_guard_ns(uint64_t duration_ns)
{
    return mc_min(500000, duration_ns / 8);
}

/* The sampling window begins this long after the pauses begin. Meanwhile caches refill, and ranks that co-runners had
   delayed catch up; only then does the job run as it would alone. */
static inline uint64_t mc_settle_ns(uint64_t duration_ns)
{
    return mc_min(15000000, duration_ns / 4);
}

/* The sampling window ends this long before the pauses do, so that no co-runner is back before its end. */
static inline uint64_t mc_margin_ns(uint64_t duration_ns)
{
    return mc_min(200000, duration_ns / 16);
}

#endif
