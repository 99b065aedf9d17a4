#define _GNU_SOURCE
#include "agent/meters/moved.h"

#include "common/proc.h"
#include "common/table.h"

/* The agent looks for co-runners in steps. */
static const double ALONE_MAX = 0.1;

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

static uint64_t alone_ns(const mc_node *node)
{
    uint64_t watched_ns = node->t_last > node->t_open ? node->t_last - node->t_open : 0;
    return watched_ns > node->shared_ns ? watched_ns - node->shared_ns : 0;
}

mc_moved mc_moved_until_now(const mc_job_ranks *ranks, const mc_node *node)
{
    mc_moved moved = {.paused_ns = node->paused_ns + node->counts.stopped_ns, .alone_ns = alone_ns(node)};
    for (int i = 0; i < ranks->n && !moved.t; i++) {
        const mc_rank *rank = &ranks->rows[i];
        if (!rank->alive)
            continue;
        moved.bytes = bytes_of(rank->segment);
        moved.pid = rank->pid;
        moved.t = mc_now_ns();
    }
    return moved;
}

void mc_moved_between(const mc_moved *from, const mc_moved *to, uint64_t *ns, uint64_t *bytes)
{
    int is_same = from->t && to->t > from->t && from->pid == to->pid && to->bytes >= from->bytes;
    uint64_t whole_ns = is_same ? to->t - from->t : 0, paused_ns = to->paused_ns - from->paused_ns;
    int is_shared = (double)(to->alone_ns - from->alone_ns) <= ALONE_MAX * (double)whole_ns;
    int is_known = is_same && is_shared && paused_ns < whole_ns;
    *ns = is_known ? whole_ns - paused_ns : 0;
    *bytes = is_known ? to->bytes - from->bytes : 0;
}
