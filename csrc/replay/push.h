/* Putting an event into the queue: inline, as it happens twice a hop. */
#ifndef RP_PUSH_H
#define RP_PUSH_H

#include "replay/sim.h"

static inline void rp_push(rp_sim *sim, int64_t t_ps, enum rp_event_kind kind, uint32_t id, uint32_t payload)
{
    rp_queue *q = &sim->queue;
    uint64_t within = (uint64_t)t_ps & ((UINT64_C(1) << q->shift) - 1);
    uint64_t key = within << (RP_ID_BITS + RP_KIND_BITS) | (uint64_t)kind << RP_ID_BITS | id;
    rp_push_later(sim, t_ps, (rp_event){key, payload, RP_NIL});
}

#endif
