/* Bytes that a collective moves for this rank. */
#include "guest/calls/volume.h"

/* This rank's role in a rooted collective. On an intercommunicator the root's own group passes MPI_ROOT or
   MPI_PROC_NULL. */
enum role { ROLE_ROOT_AND_LEAF, ROLE_ROOT, ROLE_LEAF, ROLE_NONE };

static int is_inter(MPI_Comm comm)
{
    const mc_ranks *ranks = mc_ranks_of_comm(comm);
    return ranks != NULL && ranks->is_inter;
}

static int own_rank(MPI_Comm comm)
{
    const mc_ranks *ranks = mc_ranks_of_comm(comm);
    return ranks != NULL ? ranks->own_rank : 0;
}

/* Ranks on the other side: all of an intracommunicator, the remote group of an intercommunicator. */
static int n_others(MPI_Comm comm)
{
    const mc_ranks *ranks = mc_ranks_of_comm(comm);
    return ranks != NULL ? ranks->n_ranks : 0;
}

static int n_local(MPI_Comm comm)
{
    const mc_ranks *ranks = mc_ranks_of_comm(comm);
    return ranks != NULL ? ranks->n_local : 0;
}

static enum role role_of(int root, MPI_Comm comm)
{
    if (root == MPI_PROC_NULL)
        return ROLE_NONE;
    if (root == MPI_ROOT)
        return ROLE_ROOT;
    if (is_inter(comm) || own_rank(comm) != root)
        return ROLE_LEAF;
    return ROLE_ROOT_AND_LEAF;
}

static int is_root(enum role role)
{
    return role == ROLE_ROOT || role == ROLE_ROOT_AND_LEAF;
}

static int is_leaf(enum role role)
{
    return role == ROLE_LEAF || role == ROLE_ROOT_AND_LEAF;
}

static long long count_at(const void *counts, int wide, int i)
{
    return wide ? (long long)((const MPI_Count *)counts)[i] : ((const int *)counts)[i];
}

static long long sum(const void *counts, int wide, int n)
{
    long long total = 0;
    for (int i = 0; i < n; i++)
        total += count_at(counts, wide, i);
    return total;
}

static uint64_t sum_typed(const void *counts, int wide, mc_handles types, int n)
{
    uint64_t total = 0;
    for (int i = 0; i < n; i++)
        total += mc_bytes(count_at(counts, wide, i), mc_type_at(types, i));
    return total;
}

/* Note for the traffic between ranks: the whole buffer, or one rank's part of it. */
static void note(mc_volume *v, MPI_Comm comm, int root, uint64_t whole_bytes, MPI_Datatype type)
{
    v->collective = mc_ranks_of_comm(comm);
    v->root = root;
    v->whole_bytes = whole_bytes;
    v->item_bytes = mc_bytes(1, type);
}

/* The same with a root. On an intercommunicator the ranks outside the root's group note it. */
static void note_rooted(mc_volume *v, MPI_Comm comm, int root, enum role role, uint64_t whole_bytes, MPI_Datatype type)
{
    if (role == ROLE_LEAF || !is_inter(comm))
        note(v, comm, root, whole_bytes, type);
}

/* The same where each rank's part has its own size. */
static void note_uneven(mc_volume *v, MPI_Comm comm, uint64_t whole_bytes, uint64_t own_bytes, MPI_Datatype type)
{
    note(v, comm, -1, whole_bytes, type);
    v->own_bytes = own_bytes;
}

static void give_parts(mc_volume *v, MPI_Comm comm, const void *counts, int wide, MPI_Datatype type)
{
    const mc_ranks *ranks = mc_ranks_of_comm(comm);
    for (int i = 0; i < n_others(comm); i++)
        mc_record_part(v, ranks, i, mc_bytes(count_at(counts, wide, i), type));
}

static void give_typed_parts(mc_volume *v, MPI_Comm comm, const void *counts, int wide, mc_handles types)
{
    const mc_ranks *ranks = mc_ranks_of_comm(comm);
    for (int i = 0; i < n_others(comm); i++)
        mc_record_part(v, ranks, i, mc_bytes(count_at(counts, wide, i), mc_type_at(types, i)));
}

void mc_volume_bcast(mc_volume *v, long long count, MPI_Datatype type, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_root(role))
        v->sent_bytes = mc_bytes(count, type);
    else if (is_leaf(role))
        v->recv_bytes = mc_bytes(count, type);
    note_rooted(v, comm, root, role, mc_bytes(count, type), type);
}

void mc_volume_gather(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                      MPI_Datatype rtype, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_leaf(role) && !in_place)
        v->sent_bytes = mc_bytes(scount, stype);
    if (is_root(role))
        v->recv_bytes = mc_bytes(rcount, rtype) * (uint64_t)n_others(comm);
    if (is_root(role))
        note_rooted(v, comm, root, role, mc_bytes(rcount, rtype), rtype);
    else
        note_rooted(v, comm, root, role, mc_bytes(scount, stype), stype);
}

void mc_volume_gatherv(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, const void *rcounts, int wide,
                       MPI_Datatype rtype, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_leaf(role) && !in_place)
        v->sent_bytes = mc_bytes(scount, stype);
    if (is_root(role))
        v->recv_bytes = mc_bytes(sum(rcounts, wide, n_others(comm)), rtype);
    if (role == ROLE_LEAF)
        mc_record_part(v, mc_ranks_of_comm(comm), root, v->sent_bytes);
}

void mc_volume_scatter(mc_volume *v, long long scount, MPI_Datatype stype, int in_place, long long rcount,
                       MPI_Datatype rtype, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_root(role))
        v->sent_bytes = mc_bytes(scount, stype) * (uint64_t)n_others(comm);
    if (is_leaf(role) && !in_place)
        v->recv_bytes = mc_bytes(rcount, rtype);
    if (is_root(role))
        note_rooted(v, comm, root, role, mc_bytes(scount, stype), stype);
    else
        note_rooted(v, comm, root, role, mc_bytes(rcount, rtype), rtype);
}

void mc_volume_scatterv(mc_volume *v, const void *scounts, int wide, MPI_Datatype stype, int in_place, long long rcount,
                        MPI_Datatype rtype, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_root(role))
        v->sent_bytes = mc_bytes(sum(scounts, wide, n_others(comm)), stype);
    if (is_leaf(role) && !in_place)
        v->recv_bytes = mc_bytes(rcount, rtype);
    if (is_root(role))
        give_parts(v, comm, scounts, wide, stype);
}

void mc_volume_allgather(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                         MPI_Datatype rtype, MPI_Comm comm)
{
    uint64_t each_bytes = mc_bytes(rcount, rtype);
    v->sent_bytes = in_place ? each_bytes : mc_bytes(scount, stype);
    v->recv_bytes = each_bytes * (uint64_t)n_others(comm);
    if (is_inter(comm)) /* what the own group gives */
        note(v, comm, -1, v->sent_bytes, stype);
    else
        note(v, comm, -1, each_bytes, rtype);
}

void mc_volume_allgatherv(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, const void *rcounts,
                          int wide, MPI_Datatype rtype, MPI_Comm comm)
{
    v->sent_bytes = in_place ? mc_bytes(count_at(rcounts, wide, own_rank(comm)), rtype) : mc_bytes(scount, stype);
    v->recv_bytes = mc_bytes(sum(rcounts, wide, n_others(comm)), rtype);
    note_uneven(v, comm, v->recv_bytes, v->sent_bytes, rtype);
}

void mc_volume_alltoall(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                        MPI_Datatype rtype, MPI_Comm comm)
{
    uint64_t n = (uint64_t)n_others(comm);
    v->recv_bytes = mc_bytes(rcount, rtype) * n;
    v->sent_bytes = in_place ? v->recv_bytes : mc_bytes(scount, stype) * n;
    if (is_inter(comm))
        note(v, comm, -1, mc_bytes(scount, stype), stype);
    else
        note(v, comm, -1, mc_bytes(rcount, rtype), rtype);
}

void mc_volume_alltoallv(mc_volume *v, int in_place, const void *scounts, int wide, MPI_Datatype stype,
                         const void *rcounts, MPI_Datatype rtype, MPI_Comm comm)
{
    int n = n_others(comm);
    v->recv_bytes = mc_bytes(sum(rcounts, wide, n), rtype);
    v->sent_bytes = in_place ? v->recv_bytes : mc_bytes(sum(scounts, wide, n), stype);
    give_parts(v, comm, in_place ? rcounts : scounts, wide, in_place ? rtype : stype);
}

void mc_volume_alltoallw(mc_volume *v, int in_place, const void *scounts, int wide, mc_handles stypes,
                         const void *rcounts, mc_handles rtypes, MPI_Comm comm)
{
    int n = n_others(comm);
    v->recv_bytes = sum_typed(rcounts, wide, rtypes, n);
    v->sent_bytes = in_place ? v->recv_bytes : sum_typed(scounts, wide, stypes, n);
    give_typed_parts(v, comm, in_place ? rcounts : scounts, wide, in_place ? rtypes : stypes);
}

void mc_volume_reduce(mc_volume *v, int in_place, long long count, MPI_Datatype type, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_leaf(role) && !in_place)
        v->sent_bytes = mc_bytes(count, type);
    if (is_root(role))
        v->recv_bytes = mc_bytes(count, type);
    note_rooted(v, comm, root, role, mc_bytes(count, type), type);
}

void mc_volume_allreduce(mc_volume *v, long long count, MPI_Datatype type, MPI_Comm comm)
{
    v->sent_bytes = v->recv_bytes = mc_bytes(count, type);
    note(v, comm, -1, v->sent_bytes, type);
}

void mc_volume_barrier(mc_volume *v, MPI_Comm comm)
{
    note(v, comm, -1, 0, mc_known.type_null);
}

/* The first rank's result is undefined. */
void mc_volume_exscan(mc_volume *v, long long count, MPI_Datatype type, MPI_Comm comm)
{
    v->sent_bytes = mc_bytes(count, type);
    v->recv_bytes = own_rank(comm) == 0 ? 0 : v->sent_bytes;
    note(v, comm, -1, v->sent_bytes, type);
}

void mc_volume_reduce_scatter(mc_volume *v, const void *counts, int wide, MPI_Datatype type, MPI_Comm comm)
{
    v->sent_bytes = mc_bytes(sum(counts, wide, n_local(comm)), type);
    v->recv_bytes = mc_bytes(count_at(counts, wide, own_rank(comm)), type);
    note_uneven(v, comm, v->sent_bytes, v->recv_bytes, type);
}

void mc_volume_reduce_scatter_block(mc_volume *v, long long count, MPI_Datatype type, MPI_Comm comm)
{
    v->recv_bytes = mc_bytes(count, type);
    /* On an intercommunicator too, where the other group receives it. */
    v->sent_bytes = v->recv_bytes * (uint64_t)n_local(comm);
    note(v, comm, -1, v->recv_bytes, type);
}

/* How many neighbours of a list exist. At the open edge of a grid there is none, but the buffers have a place for
   one. */
static uint64_t n_present(const int *neighbours, int n)
{
    uint64_t n_there = 0;
    for (int i = 0; i < n; i++)
        n_there += neighbours[i] != MPI_PROC_NULL;
    return n_there;
}

static long long sum_present(const void *counts, int wide, const int *neighbours, int n)
{
    long long total = 0;
    for (int i = 0; i < n; i++)
        total += neighbours[i] != MPI_PROC_NULL ? count_at(counts, wide, i) : 0;
    return total;
}

static uint64_t sum_present_typed(const void *counts, int wide, mc_handles types, const int *neighbours, int n)
{
    uint64_t total = 0;
    for (int i = 0; i < n; i++)
        total += neighbours[i] != MPI_PROC_NULL ? mc_bytes(count_at(counts, wide, i), mc_type_at(types, i)) : 0;
    return total;
}

/* Neighbour i of a list gets a message of its own. */
static void give_neighbour(mc_volume *v, MPI_Comm comm, int neighbour, uint64_t bytes)
{
    if (neighbour != MPI_PROC_NULL)
        mc_record_part(v, mc_ranks_of_comm(comm), neighbour, bytes);
}

void mc_volume_neighbor_allgather(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount,
                                  MPI_Datatype rtype, MPI_Comm comm)
{
    const mc_neighbours *near = mc_neighbours_of(comm);
    v->sent_bytes = n_present(near->out, near->n_out) > 0 ? mc_bytes(scount, stype) : 0;
    v->recv_bytes = mc_bytes(rcount, rtype) * n_present(near->in, near->n_in);
    for (int i = 0; i < near->n_out; i++)
        give_neighbour(v, comm, near->out[i], mc_bytes(scount, stype));
}

void mc_volume_neighbor_alltoall(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount,
                                 MPI_Datatype rtype, MPI_Comm comm)
{
    const mc_neighbours *near = mc_neighbours_of(comm);
    v->sent_bytes = mc_bytes(scount, stype) * n_present(near->out, near->n_out);
    v->recv_bytes = mc_bytes(rcount, rtype) * n_present(near->in, near->n_in);
    for (int i = 0; i < near->n_out; i++)
        give_neighbour(v, comm, near->out[i], mc_bytes(scount, stype));
}

void mc_volume_neighbor_allgatherv(mc_volume *v, long long scount, MPI_Datatype stype, const void *rcounts, int wide,
                                   MPI_Datatype rtype, MPI_Comm comm)
{
    const mc_neighbours *near = mc_neighbours_of(comm);
    v->sent_bytes = n_present(near->out, near->n_out) > 0 ? mc_bytes(scount, stype) : 0;
    v->recv_bytes = mc_bytes(sum_present(rcounts, wide, near->in, near->n_in), rtype);
    for (int i = 0; i < near->n_out; i++)
        give_neighbour(v, comm, near->out[i], mc_bytes(scount, stype));
}

void mc_volume_neighbor_alltoallv(mc_volume *v, const void *scounts, int wide, MPI_Datatype stype, const void *rcounts,
                                  MPI_Datatype rtype, MPI_Comm comm)
{
    const mc_neighbours *near = mc_neighbours_of(comm);
    v->sent_bytes = mc_bytes(sum_present(scounts, wide, near->out, near->n_out), stype);
    v->recv_bytes = mc_bytes(sum_present(rcounts, wide, near->in, near->n_in), rtype);
    for (int i = 0; i < near->n_out; i++)
        give_neighbour(v, comm, near->out[i], mc_bytes(count_at(scounts, wide, i), stype));
}

void mc_volume_neighbor_alltoallw(mc_volume *v, const void *scounts, int wide, mc_handles stypes, const void *rcounts,
                                  mc_handles rtypes, MPI_Comm comm)
{
    const mc_neighbours *near = mc_neighbours_of(comm);
    v->sent_bytes = sum_present_typed(scounts, wide, stypes, near->out, near->n_out);
    v->recv_bytes = sum_present_typed(rcounts, wide, rtypes, near->in, near->n_in);
    for (int i = 0; i < near->n_out; i++)
        give_neighbour(v, comm, near->out[i], mc_bytes(count_at(scounts, wide, i), mc_type_at(stypes, i)));
}
