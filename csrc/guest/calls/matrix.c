/* Records of collectives for each group of ranks. The traffic between ranks is computed from these records. */
#include <stdlib.h>

#include "guest/calls/volume.h"

/* Split the members' world ranks into runs of equal stride. If `runs` is NULL, only count the runs. */
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

/* Write a group's members into the segment. If two threads add the same group at once, it appears twice. */
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

enum { NO_GROUP = 1 }; /* the group has a member that is not a known rank of this job */

/* Hash of the group, the same in every member. */
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

/* The group's hash, computed at first use. Several threads may compute it at the same time, because they get the same
   hash. */
static uint64_t group_of(mc_ranks *ranks)
{
    uint64_t group = __atomic_load_n(&ranks->group, __ATOMIC_RELAXED);
    mc_segment *segment = mc_own_segment();
    if (group != 0 || segment == NULL)
        return group;
    group = hash_of(ranks);
    if (group != NO_GROUP && !ranks->is_inter && ranks->own_rank == 0)
        tell_members(segment, ranks, group);
    __atomic_store_n(&ranks->group, group, __ATOMIC_RELAXED);
    return group;
}

/* The key of a collective's row, and the amounts that one call adds to the row. */
typedef struct kind {
    uint64_t group, to_group, whole_bytes, own_bytes, item_bytes;
    uint32_t call;
    int root, own_rank;
} kind;

/* Data that a persistent collective adds at each start, kept until the request is freed. */
typedef struct mc_kept {
    uint64_t sent_bytes, recv_bytes;
    int is_counted; /* by this rank */
    kind kind;
    int n_parts, n_room;
    struct part {
        int peer;
        uint64_t bytes;
    } * parts;
} mc_kept;

/* Fill in the collective's row. Returns 0 if other ranks count this collective. */
static int kind_of(const mc_volume *v, kind *out)
{
    mc_ranks *ranks = v->collective, *own = ranks != NULL && ranks->is_inter ? ranks->own_side : ranks;
    if (own == NULL || (own->own_rank != 0 && v->own_bytes == 0) || (own->n_ranks < 2 && !ranks->is_inter))
        return 0;
    *out = (kind){.group = group_of(own),
                  .to_group = ranks->is_inter ? group_of(ranks) : 0,
                  .whole_bytes = v->whole_bytes,
                  .own_bytes = v->own_bytes,
                  .item_bytes = v->item_bytes,
                  .call = v->frame->call,
                  .root = v->root,
                  .own_rank = own->own_rank};
    return 1;
}

static void count_kind(const kind *k)
{
    uint32_t i = 0;
    if (k->group > NO_GROUP && k->to_group != NO_GROUP)
        i = mc_collective_find(&mc_self.tables, k->group, k->to_group, k->call, k->root, k->whole_bytes);
    mc_collective_row *row = &mc_self.tables.collectives[i];
    row->own_rank = k->own_rank;
    row->item_bytes = k->item_bytes;
    row->n++;
    row->bytes += k->whole_bytes;
    row->own_bytes += k->own_bytes;
}

void mc_record_collective(const mc_volume *v)
{
    kind found;
    if (v->frame->is_recorded && kind_of(v, &found))
        count_kind(&found);
}

static void count_part(int peer, uint64_t bytes)
{
    mc_part_row *row = &mc_self.tables.parts[mc_part_find(&mc_self.tables, peer)];
    row->n++;
    row->bytes += bytes;
}

static void remember_part(mc_volume *v, int peer, uint64_t bytes)
{
    if (v->kept == NULL && (v->kept = calloc(1, sizeof *v->kept)) == NULL)
        return;
    mc_kept *kept = v->kept;
    if (kept->n_parts == kept->n_room) {
        int n_room = 2 * kept->n_room + 8;
        struct part *parts = realloc(kept->parts, (size_t)n_room * sizeof *parts);
        if (parts == NULL)
            return;
        kept->parts = parts;
        kept->n_room = n_room;
    }
    kept->parts[kept->n_parts++] = (struct part){peer, bytes};
}

void mc_record_part(mc_volume *v, const mc_ranks *ranks, int i, uint64_t bytes)
{
    if (bytes == 0 || !v->frame->is_recorded || ranks == NULL || (i == ranks->own_rank && !ranks->is_inter))
        return;
    if (v->is_kept)
        remember_part(v, mc_world_rank(ranks, i), bytes);
    else
        count_part(mc_world_rank(ranks, i), bytes);
}

mc_kept *mc_keep_collective(mc_volume *v)
{
    if (v->kept == NULL && v->collective == NULL && v->sent_bytes == 0 && v->recv_bytes == 0)
        return NULL;
    mc_kept *kept = v->kept != NULL ? v->kept : calloc(1, sizeof *kept);
    if (kept == NULL)
        return NULL;
    kept->sent_bytes = v->sent_bytes;
    kept->recv_bytes = v->recv_bytes;
    kept->is_counted = kind_of(v, &kept->kind);
    return kept;
}

void mc_kept_start(const mc_kept *kept, mc_volume *v)
{
    v->sent_bytes += kept->sent_bytes;
    v->recv_bytes += kept->recv_bytes;
    if (!v->frame->is_recorded)
        return;
    if (kept->is_counted)
        count_kind(&kept->kind);
    for (int i = 0; i < kept->n_parts; i++)
        count_part(kept->parts[i].peer, kept->parts[i].bytes);
}

void mc_kept_free(mc_kept *kept)
{
    if (kept != NULL)
        free(kept->parts);
    free(kept);
}
