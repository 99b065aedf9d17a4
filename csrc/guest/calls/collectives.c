/* Bytes that a collective moves for this rank. */
#include "guest/calls/volume.h"

/* This rank's role in a rooted collective. On an intercommunicator the root's own group passes MPI_ROOT or
   MPI_PROC_NULL. */
enum role { ROLE_ROOT_AND_LEAF, ROLE_ROOT, ROLE_LEAF, ROLE_NONE };

/* The communicator's ranks; an empty struct if they are unknown. n_ranks counts the remote group of an
   intercommunicator, all ranks of an intracommunicator. */
static const mc_ranks *ranks_of(MPI_Comm comm)
{
    static const mc_ranks unknown;
    const mc_ranks *ranks = mc_ranks_of_comm(comm);
    return ranks != NULL ? ranks : &unknown;
}

static enum role role_of(int root, MPI_Comm comm)
{
    if (root == MPI_PROC_NULL)
        return ROLE_NONE;
    if (root == MPI_ROOT)
        return ROLE_ROOT;
    if (ranks_of(comm)->is_inter || ranks_of(comm)->own_rank != root)
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

/* Parts of a buffer, one for each rank. The parts have an array of counts, and either one datatype for all parts or an
   array of datatypes. */
typedef struct parts {
    const void *counts;
    int wide; /* counts are MPI_Count, not int */
    MPI_Datatype type;
    mc_handles types; /* if items is NULL, all parts are of `type` */
} parts;

static uint64_t bytes_at(const parts *p, int i)
{
    long long count = p->wide ? (long long)((const MPI_Count *)p->counts)[i] : ((const int *)p->counts)[i];
    return mc_bytes(count, p->types.items != NULL ? mc_type_at(p->types, i) : p->type);
}

static uint64_t sum(const parts *p, int n)
{
    uint64_t total = 0;
    for (int i = 0; i < n; i++)
        total += bytes_at(p, i);
    return total;
}

/* Record a collective for the traffic between ranks. whole_bytes: the whole buffer, or one rank's part of it. */
static void note(mc_volume *v, MPI_Comm comm, int root, uint64_t whole_bytes, MPI_Datatype type)
{
    v->collective = mc_ranks_of_comm(comm);
    v->root = root;
    v->whole_bytes = whole_bytes;
    v->item_bytes = mc_bytes(1, type);
}

/* Record a rooted collective. On an intercommunicator only the ranks outside the root's group record it. */
static void note_rooted(mc_volume *v, MPI_Comm comm, int root, enum role role, uint64_t whole_bytes, MPI_Datatype type)
{
    if (role == ROLE_LEAF || !ranks_of(comm)->is_inter)
        note(v, comm, root, whole_bytes, type);
}

/* Record a collective in which the sizes of the ranks' parts differ. */
static void note_uneven(mc_volume *v, MPI_Comm comm, uint64_t whole_bytes, uint64_t own_bytes, MPI_Datatype type)
{
    note(v, comm, -1, whole_bytes, type);
    v->own_bytes = own_bytes;
}

static void give_parts(mc_volume *v, MPI_Comm comm, const parts *p)
{
    const mc_ranks *ranks = mc_ranks_of_comm(comm);
    for (int i = 0; i < ranks_of(comm)->n_ranks; i++)
        mc_record_part(v, ranks, i, bytes_at(p, i));
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
        v->recv_bytes = mc_bytes(rcount, rtype) * (uint64_t)ranks_of(comm)->n_ranks;
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
        v->recv_bytes = sum(&(parts){rcounts, wide, rtype, {0}}, ranks_of(comm)->n_ranks);
    if (role == ROLE_LEAF)
        mc_record_part(v, mc_ranks_of_comm(comm), root, v->sent_bytes);
}

void mc_volume_scatter(mc_volume *v, long long scount, MPI_Datatype stype, int in_place, long long rcount,
                       MPI_Datatype rtype, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_root(role))
        v->sent_bytes = mc_bytes(scount, stype) * (uint64_t)ranks_of(comm)->n_ranks;
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
    const parts sent = {scounts, wide, stype, {0}};
    if (is_root(role))
        v->sent_bytes = sum(&sent, ranks_of(comm)->n_ranks);
    if (is_leaf(role) && !in_place)
        v->recv_bytes = mc_bytes(rcount, rtype);
    if (is_root(role))
        give_parts(v, comm, &sent);
}

void mc_volume_allgather(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                         MPI_Datatype rtype, MPI_Comm comm)
{
    uint64_t each_bytes = mc_bytes(rcount, rtype);
    v->sent_bytes = in_place ? each_bytes : mc_bytes(scount, stype);
    v->recv_bytes = each_bytes * (uint64_t)ranks_of(comm)->n_ranks;
    if (ranks_of(comm)->is_inter) /* record the data that the local group sends */
        note(v, comm, -1, v->sent_bytes, stype);
    else
        note(v, comm, -1, each_bytes, rtype);
}

void mc_volume_allgatherv(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, const void *rcounts,
                          int wide, MPI_Datatype rtype, MPI_Comm comm)
{
    const parts received = {rcounts, wide, rtype, {0}};
    v->sent_bytes = in_place ? bytes_at(&received, ranks_of(comm)->own_rank) : mc_bytes(scount, stype);
    v->recv_bytes = sum(&received, ranks_of(comm)->n_ranks);
    note_uneven(v, comm, v->recv_bytes, v->sent_bytes, rtype);
}

void mc_volume_alltoall(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                        MPI_Datatype rtype, MPI_Comm comm)
{
    uint64_t n = (uint64_t)ranks_of(comm)->n_ranks;
    v->recv_bytes = mc_bytes(rcount, rtype) * n;
    v->sent_bytes = in_place ? v->recv_bytes : mc_bytes(scount, stype) * n;
    if (ranks_of(comm)->is_inter)
        note(v, comm, -1, mc_bytes(scount, stype), stype);
    else
        note(v, comm, -1, mc_bytes(rcount, rtype), rtype);
}

static void exchange(mc_volume *v, int in_place, const parts *sent, const parts *received, MPI_Comm comm)
{
    int n = ranks_of(comm)->n_ranks;
    v->recv_bytes = sum(received, n);
    v->sent_bytes = in_place ? v->recv_bytes : sum(sent, n);
    give_parts(v, comm, in_place ? received : sent);
}

void mc_volume_alltoallv(mc_volume *v, int in_place, const void *scounts, int wide, MPI_Datatype stype,
                         const void *rcounts, MPI_Datatype rtype, MPI_Comm comm)
{
    exchange(v, in_place, &(parts){scounts, wide, stype, {0}}, &(parts){rcounts, wide, rtype, {0}}, comm);
}

void mc_volume_alltoallw(mc_volume *v, int in_place, const void *scounts, int wide, mc_handles stypes,
                         const void *rcounts, mc_handles rtypes, MPI_Comm comm)
{
    const parts sent = {scounts, wide, mc_known.type_null, stypes},
                received = {rcounts, wide, mc_known.type_null, rtypes};
    exchange(v, in_place, &sent, &received, comm);
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

/* Rank 0 receives nothing: its result is undefined. */
void mc_volume_exscan(mc_volume *v, long long count, MPI_Datatype type, MPI_Comm comm)
{
    v->sent_bytes = mc_bytes(count, type);
    v->recv_bytes = ranks_of(comm)->own_rank == 0 ? 0 : v->sent_bytes;
    note(v, comm, -1, v->sent_bytes, type);
}

void mc_volume_reduce_scatter(mc_volume *v, const void *counts, int wide, MPI_Datatype type, MPI_Comm comm)
{
    const parts all = {counts, wide, type, {0}};
    v->sent_bytes = sum(&all, ranks_of(comm)->n_local);
    v->recv_bytes = bytes_at(&all, ranks_of(comm)->own_rank);
    note_uneven(v, comm, v->sent_bytes, v->recv_bytes, type);
}

void mc_volume_reduce_scatter_block(mc_volume *v, long long count, MPI_Datatype type, MPI_Comm comm)
{
    v->recv_bytes = mc_bytes(count, type);
    /* This product is right on an intercommunicator too, where the remote group receives the result. */
    v->sent_bytes = v->recv_bytes * (uint64_t)ranks_of(comm)->n_local;
    note(v, comm, -1, v->recv_bytes, type);
}

/* Bytes that one neighbour gets. A neighbour beyond the open edge of a grid (MPI_PROC_NULL) has its part of the
   buffers, but no message is sent. */
static uint64_t give_neighbour(mc_volume *v, MPI_Comm comm, int neighbour, uint64_t bytes)
{
    if (neighbour == MPI_PROC_NULL)
        return 0;
    mc_record_part(v, mc_ranks_of_comm(comm), neighbour, bytes);
    return bytes;
}

/* Bytes to or from neighbour i; one_bytes if p is NULL. */
static uint64_t neighbour_bytes(const parts *p, int i, uint64_t one_bytes)
{
    return p != NULL ? bytes_at(p, i) : one_bytes;
}

/* Count messages to and from neighbours. `sent` and `received` are the parts of the buffers. If `sent` is NULL, each
   part has s_bytes; if `received` is NULL, each part has r_bytes. */
static void exchange_near(mc_volume *v, MPI_Comm comm, const parts *sent, uint64_t s_bytes, const parts *received,
                          uint64_t r_bytes)
{
    const mc_neighbours *near = mc_neighbours_of(comm);
    for (int i = 0; i < near->n_out; i++)
        v->sent_bytes += give_neighbour(v, comm, near->out[i], neighbour_bytes(sent, i, s_bytes));
    for (int i = 0; i < near->n_in; i++)
        v->recv_bytes += near->in[i] != MPI_PROC_NULL ? neighbour_bytes(received, i, r_bytes) : 0;
}

/* Count the send buffer once, because all neighbours get the same data. */
static void count_once(mc_volume *v, uint64_t buffer_bytes)
{
    v->sent_bytes = v->sent_bytes > 0 ? buffer_bytes : 0;
}

void mc_volume_neighbor_allgather(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount,
                                  MPI_Datatype rtype, MPI_Comm comm)
{
    exchange_near(v, comm, NULL, mc_bytes(scount, stype), NULL, mc_bytes(rcount, rtype));
    count_once(v, mc_bytes(scount, stype));
}

void mc_volume_neighbor_alltoall(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount,
                                 MPI_Datatype rtype, MPI_Comm comm)
{
    exchange_near(v, comm, NULL, mc_bytes(scount, stype), NULL, mc_bytes(rcount, rtype));
}

void mc_volume_neighbor_allgatherv(mc_volume *v, long long scount, MPI_Datatype stype, const void *rcounts, int wide,
                                   MPI_Datatype rtype, MPI_Comm comm)
{
    exchange_near(v, comm, NULL, mc_bytes(scount, stype), &(parts){rcounts, wide, rtype, {0}}, 0);
    count_once(v, mc_bytes(scount, stype));
}

void mc_volume_neighbor_alltoallv(mc_volume *v, const void *scounts, int wide, MPI_Datatype stype, const void *rcounts,
                                  MPI_Datatype rtype, MPI_Comm comm)
{
    exchange_near(v, comm, &(parts){scounts, wide, stype, {0}}, 0, &(parts){rcounts, wide, rtype, {0}}, 0);
}

void mc_volume_neighbor_alltoallw(mc_volume *v, const void *scounts, int wide, mc_handles stypes, const void *rcounts,
                                  mc_handles rtypes, MPI_Comm comm)
{
    const parts sent = {scounts, wide, mc_known.type_null, stypes},
                received = {rcounts, wide, mc_known.type_null, rtypes};
    exchange_near(v, comm, &sent, 0, &received, 0);
}
