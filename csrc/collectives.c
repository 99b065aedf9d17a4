/* Bytes that a collective moves for this rank. */
#include "volume.h"

/* In a rooted collective. On an intercommunicator the root's own group passes MPI_ROOT or MPI_PROC_NULL. */
enum role { ROLE_ROOT_AND_LEAF, ROLE_ROOT, ROLE_LEAF, ROLE_NONE };

static int is_inter(MPI_Comm comm)
{
    int flag = 0;
    if (MC_HAVE(MPI_Comm_test_inter))
        MC_REAL(MPI_Comm_test_inter)(comm, &flag);
    return flag;
}

static int own_rank(MPI_Comm comm)
{
    int rank = -1;
    if (MC_HAVE(MPI_Comm_rank))
        MC_REAL(MPI_Comm_rank)(comm, &rank);
    return rank;
}

/* Ranks on the other side: all of an intracommunicator, the remote group of an intercommunicator. */
static int n_others(MPI_Comm comm)
{
    int n = 0;
    if (is_inter(comm)) {
        if (MC_HAVE(MPI_Comm_remote_size))
            MC_REAL(MPI_Comm_remote_size)(comm, &n);
    } else if (MC_HAVE(MPI_Comm_size)) {
        MC_REAL(MPI_Comm_size)(comm, &n);
    }
    return n;
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

void mc_volume_bcast(mc_volume *v, long long count, MPI_Datatype type, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_root(role))
        v->sent_bytes = mc_bytes(count, type);
    else if (is_leaf(role))
        v->recv_bytes = mc_bytes(count, type);
}

void mc_volume_gather(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                      MPI_Datatype rtype, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_leaf(role) && !in_place)
        v->sent_bytes = mc_bytes(scount, stype);
    if (is_root(role))
        v->recv_bytes = mc_bytes(rcount, rtype) * (uint64_t)n_others(comm);
}

void mc_volume_gatherv(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, const void *rcounts, int wide,
                       MPI_Datatype rtype, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_leaf(role) && !in_place)
        v->sent_bytes = mc_bytes(scount, stype);
    if (is_root(role))
        v->recv_bytes = mc_bytes(sum(rcounts, wide, n_others(comm)), rtype);
}

void mc_volume_scatter(mc_volume *v, long long scount, MPI_Datatype stype, int in_place, long long rcount,
                       MPI_Datatype rtype, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_root(role))
        v->sent_bytes = mc_bytes(scount, stype) * (uint64_t)n_others(comm);
    if (is_leaf(role) && !in_place)
        v->recv_bytes = mc_bytes(rcount, rtype);
}

void mc_volume_scatterv(mc_volume *v, const void *scounts, int wide, MPI_Datatype stype, int in_place, long long rcount,
                        MPI_Datatype rtype, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_root(role))
        v->sent_bytes = mc_bytes(sum(scounts, wide, n_others(comm)), stype);
    if (is_leaf(role) && !in_place)
        v->recv_bytes = mc_bytes(rcount, rtype);
}

void mc_volume_allgather(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                         MPI_Datatype rtype, MPI_Comm comm)
{
    uint64_t each_bytes = mc_bytes(rcount, rtype);
    v->sent_bytes = in_place ? each_bytes : mc_bytes(scount, stype);
    v->recv_bytes = each_bytes * (uint64_t)n_others(comm);
}

void mc_volume_allgatherv(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, const void *rcounts,
                          int wide, MPI_Datatype rtype, MPI_Comm comm)
{
    v->sent_bytes = in_place ? mc_bytes(count_at(rcounts, wide, own_rank(comm)), rtype) : mc_bytes(scount, stype);
    v->recv_bytes = mc_bytes(sum(rcounts, wide, n_others(comm)), rtype);
}

void mc_volume_alltoall(mc_volume *v, int in_place, long long scount, MPI_Datatype stype, long long rcount,
                        MPI_Datatype rtype, MPI_Comm comm)
{
    uint64_t n = (uint64_t)n_others(comm);
    v->recv_bytes = mc_bytes(rcount, rtype) * n;
    v->sent_bytes = in_place ? v->recv_bytes : mc_bytes(scount, stype) * n;
}

void mc_volume_alltoallv(mc_volume *v, int in_place, const void *scounts, int wide, MPI_Datatype stype,
                         const void *rcounts, MPI_Datatype rtype, MPI_Comm comm)
{
    int n = n_others(comm);
    v->recv_bytes = mc_bytes(sum(rcounts, wide, n), rtype);
    v->sent_bytes = in_place ? v->recv_bytes : mc_bytes(sum(scounts, wide, n), stype);
}

void mc_volume_alltoallw(mc_volume *v, int in_place, const void *scounts, int wide, mc_handles stypes,
                         const void *rcounts, mc_handles rtypes, MPI_Comm comm)
{
    int n = n_others(comm);
    v->recv_bytes = sum_typed(rcounts, wide, rtypes, n);
    v->sent_bytes = in_place ? v->recv_bytes : sum_typed(scounts, wide, stypes, n);
}

void mc_volume_reduce(mc_volume *v, int in_place, long long count, MPI_Datatype type, int root, MPI_Comm comm)
{
    enum role role = role_of(root, comm);
    if (is_leaf(role) && !in_place)
        v->sent_bytes = mc_bytes(count, type);
    if (is_root(role))
        v->recv_bytes = mc_bytes(count, type);
}

void mc_volume_allreduce(mc_volume *v, long long count, MPI_Datatype type)
{
    v->sent_bytes = v->recv_bytes = mc_bytes(count, type);
}

void mc_volume_reduce_scatter(mc_volume *v, const void *counts, int wide, MPI_Datatype type, MPI_Comm comm)
{
    int n = 0;
    if (MC_HAVE(MPI_Comm_size))
        MC_REAL(MPI_Comm_size)(comm, &n);
    v->sent_bytes = mc_bytes(sum(counts, wide, n), type);
    v->recv_bytes = mc_bytes(count_at(counts, wide, own_rank(comm)), type);
}

void mc_volume_reduce_scatter_block(mc_volume *v, long long count, MPI_Datatype type, MPI_Comm comm)
{
    v->recv_bytes = mc_bytes(count, type);
    v->sent_bytes = v->recv_bytes * (uint64_t)n_others(comm);
}

/* Neighbours to receive from and to send to. */
static void degrees(MPI_Comm comm, int *n_in, int *n_out)
{
    int kind = MPI_UNDEFINED;
    int weighted = 0;
    *n_in = *n_out = 0;
    if (MC_HAVE(MPI_Topo_test))
        MC_REAL(MPI_Topo_test)(comm, &kind);
    if (kind == MPI_CART && MC_HAVE(MPI_Cartdim_get)) {
        MC_REAL(MPI_Cartdim_get)(comm, n_in);
        *n_in *= 2;
        *n_out = *n_in;
    } else if (kind == MPI_GRAPH && MC_HAVE(MPI_Graph_neighbors_count)) {
        MC_REAL(MPI_Graph_neighbors_count)(comm, own_rank(comm), n_in);
        *n_out = *n_in;
    } else if (kind == MPI_DIST_GRAPH && MC_HAVE(MPI_Dist_graph_neighbors_count)) {
        MC_REAL(MPI_Dist_graph_neighbors_count)(comm, n_in, n_out, &weighted);
    }
}

void mc_volume_neighbor_allgather(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount,
                                  MPI_Datatype rtype, MPI_Comm comm)
{
    int n_in, n_out;
    degrees(comm, &n_in, &n_out);
    v->sent_bytes = n_out > 0 ? mc_bytes(scount, stype) : 0;
    v->recv_bytes = mc_bytes(rcount, rtype) * (uint64_t)n_in;
}

void mc_volume_neighbor_alltoall(mc_volume *v, long long scount, MPI_Datatype stype, long long rcount,
                                 MPI_Datatype rtype, MPI_Comm comm)
{
    int n_in, n_out;
    degrees(comm, &n_in, &n_out);
    v->sent_bytes = mc_bytes(scount, stype) * (uint64_t)n_out;
    v->recv_bytes = mc_bytes(rcount, rtype) * (uint64_t)n_in;
}

void mc_volume_neighbor_allgatherv(mc_volume *v, long long scount, MPI_Datatype stype, const void *rcounts, int wide,
                                   MPI_Datatype rtype, MPI_Comm comm)
{
    int n_in, n_out;
    degrees(comm, &n_in, &n_out);
    v->sent_bytes = n_out > 0 ? mc_bytes(scount, stype) : 0;
    v->recv_bytes = mc_bytes(sum(rcounts, wide, n_in), rtype);
}

void mc_volume_neighbor_alltoallv(mc_volume *v, const void *scounts, int wide, MPI_Datatype stype, const void *rcounts,
                                  MPI_Datatype rtype, MPI_Comm comm)
{
    int n_in, n_out;
    degrees(comm, &n_in, &n_out);
    v->sent_bytes = mc_bytes(sum(scounts, wide, n_out), stype);
    v->recv_bytes = mc_bytes(sum(rcounts, wide, n_in), rtype);
}

void mc_volume_neighbor_alltoallw(mc_volume *v, const void *scounts, int wide, mc_handles stypes, const void *rcounts,
                                  mc_handles rtypes, MPI_Comm comm)
{
    int n_in, n_out;
    degrees(comm, &n_in, &n_out);
    v->sent_bytes = sum_typed(scounts, wide, stypes, n_out);
    v->recv_bytes = sum_typed(rcounts, wide, rtypes, n_in);
}
