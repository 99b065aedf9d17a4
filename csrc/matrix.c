/* Who takes part in collectives, and how often: what the traffic between ranks is reckoned from. */
#include "volume.h"

/* Members in their order as runs of equal steps; runs == NULL only counts them. */
static uint32_t split(const mc_ranks *ranks, mc_run *runs)
{
    uint32_t n_runs = 0;
    for (int i = 0, n; i < ranks->n_ranks; i += n) {
        int first = mc_world_rank(ranks, i);
        int stride = i + 1 < ranks->n_ranks ? mc_world_rank(ranks, i + 1) - first : 1;
        for (n = 1; i + n < ranks->n_ranks && mc_world_rank(ranks, i + n) == first + n * stride; n++)
            ;
        if (runs != NULL)
            runs[n_runs] = (mc_run){first, stride, n};
        n_runs++;
    }
    return n_runs;
}

/* Two threads may tell the same group at once; it then stands there twice. */
static void tell_members(mc_segment *segment, const mc_ranks *ranks, uint64_t group)
{
    uint64_t n_known = __atomic_load_n(&segment->n_members, __ATOMIC_RELAXED);
    for (uint64_t i = 0; i < n_known && i < MC_N_MEMBERS; i++)
        if (__atomic_load_n(&segment->members[i].group, __ATOMIC_RELAXED) == group)
            return;
    uint64_t i = __atomic_fetch_add(&segment->n_members, 1, __ATOMIC_RELAXED);
    if (i >= MC_N_MEMBERS) {
        __atomic_store_n(&segment->n_members, (uint64_t)MC_N_MEMBERS, __ATOMIC_RELAXED);
        return;
    }
    uint32_t n_runs = split(ranks, NULL);
    uint64_t first = __atomic_load_n(&segment->n_runs, __ATOMIC_RELAXED);
    do {
        if (first + n_runs > MC_N_RUNS)
            return;
    } while (
        !__atomic_compare_exchange_n(&segment->n_runs, &first, first + n_runs, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    split(ranks, &segment->runs[first]);
    segment->members[i].first_run = (uint32_t)first;
    segment->members[i].n_runs = n_runs;
    __atomic_store_n(&segment->members[i].group, group, __ATOMIC_RELEASE);
}

enum { NO_GROUP = 1 }; /* not all members are known ranks of this job */

/* The same on every member. */
static uint64_t hash_of(const mc_ranks *ranks)
{
    uint64_t hash = mc_mix((uint64_t)ranks->n_ranks);
    for (int i = 0; i < ranks->n_ranks; i++) {
        int rank = mc_world_rank(ranks, i);
        if (rank < 0)
            return NO_GROUP;
        hash = mc_mix(hash + (uint64_t)rank);
    }
    return hash;
}

/* Threads that ask at once find the same. */
static uint64_t group_of(mc_ranks *ranks)
{
    uint64_t group = __atomic_load_n(&ranks->group, __ATOMIC_RELAXED);
    mc_segment *segment = mc_own_segment();
    if (group != 0 || segment == NULL)
        return group;
    group = ranks->is_inter ? NO_GROUP : hash_of(ranks);
    if (group != NO_GROUP && ranks->own_rank == 0)
        tell_members(segment, ranks, group);
    __atomic_store_n(&ranks->group, group, __ATOMIC_RELAXED);
    return group;
}

void mc_record_collective(const mc_volume *v)
{
    mc_ranks *ranks = v->collective;
    if (!v->frame->is_recorded || (ranks->own_rank != 0 && v->own_bytes == 0) ||
        (ranks->n_ranks < 2 && !ranks->is_inter))
        return;
    uint64_t group = group_of(ranks);
    uint32_t i = 0;
    if (group > NO_GROUP)
        i = mc_collective_find(&mc_self.tables, group, v->frame->call, v->root, v->whole_bytes);
    mc_collective_row *row = &mc_self.tables.collectives[i];
    row->own_rank = ranks->own_rank;
    row->item_bytes = v->item_bytes;
    row->n++;
    row->bytes += v->whole_bytes;
    row->own_bytes += v->own_bytes;
}

void mc_record_part(const mc_volume *v, const mc_ranks *ranks, int i, uint64_t bytes)
{
    if (bytes == 0 || v->is_kept || !v->frame->is_recorded || ranks == NULL ||
        (i == ranks->own_rank && !ranks->is_inter))
        return;
    mc_part_row *row = &mc_self.tables.parts[mc_part_find(&mc_self.tables, mc_world_rank(ranks, i))];
    row->n++;
    row->bytes += bytes;
}
