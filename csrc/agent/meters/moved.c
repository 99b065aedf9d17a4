#define _GNU_SOURCE
#include "agent/meters/moved.h"

#include "common/proc.h"
#include "common/table.h"

/* The node file counts the time beside co-runners in steps of the agent. */
static const double SHARED_MIN = 0.9;

/* One rank stands for all, and its first thread that calls MPI: reading a table costs its memory. */
MC_READS_TORN static uint64_t bytes_of(const mc_segment *segment)
{
    uint64_t bytes = 0;
    for (int i = 0; i < MC_N_SITES; i++) {
        const mc_site_row *site = &segment->lanes[0].sites[i];
        bytes += site->sent_bytes + site->recv_bytes;
    }
    return bytes;
}

mc_moved mc_moved_until_now(const mc_job_ranks *ranks, const mc_node *node)
{
    mc_moved moved = {.t = mc_now_ns(), .shared_ns = node->shared_ns};
    for (int i = 0; i < ranks->n; i++) {
        const mc_segment *segment = ranks->rows[i].segment;
        if (!ranks->rows[i].alive)
            continue;
        moved.bytes = bytes_of(segment);
        moved.paused_ns = __atomic_load_n(&segment->counters.paused_ns, __ATOMIC_RELAXED);
        break;
    }
    return moved;
}

void mc_moved_since(const mc_moved *from, const mc_moved *to, uint64_t *ns, uint64_t *bytes)
{
    uint64_t whole_ns = to->t - from->t, paused_ns = to->paused_ns - from->paused_ns;
    int is_shared = (double)(to->shared_ns - from->shared_ns) >= SHARED_MIN * (double)whole_ns;
    /* Another rank stands for all if the first one has ended. */
    int is_known = from->t && is_shared && to->bytes >= from->bytes && paused_ns < whole_ns;
    *ns = is_known ? whole_ns - paused_ns : 0;
    *bytes = is_known ? to->bytes - from->bytes : 0;
}
