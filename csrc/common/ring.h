/* Access to a rank's ring of events, which the rank's hooks fill and the tracer empties. */
#ifndef MPICOLOC_RING_H
#define MPICOLOC_RING_H

#include "common/mpicoloc.h"

typedef uint64_t __attribute__((may_alias)) mc_word;

static inline mc_word *mc_event_tail(mc_event *event)
{
    return (mc_word *)&event->peer;
}

/* Lap mark of event i. An entry that has not been written in this lap yet has the other mark. n_events_max: a power of
   2. */
static inline uint16_t mc_event_lap(uint64_t i, uint64_t n_events_max)
{
    return i & n_events_max ? 0 : MC_EVENT_LAP;
}

#endif
