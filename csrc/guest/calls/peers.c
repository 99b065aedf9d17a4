/* Translation of ranks in any communicator to ranks in the application's world. */
#include "guest/calls/peers.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "guest/mpi/app_world.h"

enum { N_COMM_BUCKETS = 1024, N_WIN_BUCKETS = 128 };

MC_OP_TABLE(static, comms, N_COMM_BUCKETS);
MC_OP_TABLE(static, wins, N_WIN_BUCKETS);

_Atomic uint64_t mc_ranks_generation = 1;
__thread mc_last_ranks mc_last_comm, mc_last_win;

/* Shared by all communicators with the same rank order as the world. Never freed, so its references are not counted. */
static mc_ranks whole_world = {.n_users = 1, .n_ranks = INT_MAX, .is_world = 1};

static MPI_Group group_of(MPI_Comm comm, int is_remote)
{
    MPI_Group group = mc_known.group_null;
    if (is_remote && MC_HAVE(MPI_Comm_remote_group))
        MC_REAL(MPI_Comm_remote_group)(comm, &group);
    else if (!is_remote && MC_HAVE(MPI_Comm_group))
        MC_REAL(MPI_Comm_group)(comm, &group);
    return group;
}

/* World ranks of a group's members, -1 for members outside the world (spawned or connected). Returns NULL on
   failure. */
static int *translate(MPI_Group group, MPI_Group world, int n)
{
    int *ranks = malloc((size_t)n * sizeof *ranks);
    int *world_ranks = malloc((size_t)n * sizeof *world_ranks);
    for (int i = 0; ranks != NULL && i < n; i++)
        ranks[i] = i;
    if (ranks == NULL || world_ranks == NULL || !MC_HAVE(MPI_Group_translate_ranks) ||
        MC_REAL(MPI_Group_translate_ranks)(group, n, ranks, world, world_ranks) != MPI_SUCCESS) {
        free(world_ranks);
        world_ranks = NULL;
    }
    for (int i = 0; world_ranks != NULL && i < n; i++)
        if (world_ranks[i] < 0)
            world_ranks[i] = -1;
    free(ranks);
    return world_ranks;
}

static int is_identity(const int *world_ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (world_ranks[i] != i)
            return 0;
    return 1;
}

/* In a program that uses only sessions there is no world, so do not ask for the world's group: that would be fatal. */
static void learn_world_ranks(mc_ranks *ranks, MPI_Group group)
{
    MPI_Group world = mc_app_world ? group_of(mc_app_world, 0) : mc_known.group_null;
    if (group != mc_known.group_null && world != mc_known.group_null && ranks->n_ranks > 0)
        ranks->world_ranks = translate(group, world, ranks->n_ranks);
    if (ranks->world_ranks != NULL && is_identity(ranks->world_ranks, ranks->n_ranks)) {
        free(ranks->world_ranks);
        ranks->world_ranks = NULL;
        ranks->is_world = 1;
    }
    if (world != mc_known.group_null && MC_HAVE(MPI_Group_free))
        MC_REAL(MPI_Group_free)(&world);
}

static mc_ranks *new_ranks(void)
{
    mc_ranks *ranks = calloc(1, sizeof *ranks);
    if (ranks != NULL)
        ranks->n_users = 1;
    return ranks;
}

static void learn_group(mc_ranks *ranks, MPI_Comm comm, int is_remote)
{
    MPI_Group group = group_of(comm, is_remote);
    learn_world_ranks(ranks, group);
    if (group != mc_known.group_null && MC_HAVE(MPI_Group_free))
        MC_REAL(MPI_Group_free)(&group);
}

static mc_ranks *learn_own_side(const mc_ranks *ranks, MPI_Comm comm)
{
    mc_ranks *own = new_ranks();
    if (own == NULL)
        return NULL;
    own->n_ranks = own->n_local = ranks->n_local;
    own->own_rank = ranks->own_rank;
    learn_group(own, comm, 0);
    return own;
}

static void learn_comm(mc_ranks *ranks, MPI_Comm comm)
{
    if (!MC_HAVE(MPI_Comm_test_inter) || !MC_HAVE(MPI_Comm_size) || !MC_HAVE(MPI_Comm_rank) ||
        !MC_HAVE(MPI_Comm_remote_size))
        return;
    MC_REAL(MPI_Comm_test_inter)(comm, &ranks->is_inter);
    MC_REAL(MPI_Comm_size)(comm, &ranks->n_local);
    MC_REAL(MPI_Comm_rank)(comm, &ranks->own_rank);
    ranks->n_ranks = ranks->n_local;
    if (ranks->is_inter) {
        MC_REAL(MPI_Comm_remote_size)(comm, &ranks->n_ranks);
        ranks->own_side = learn_own_side(ranks, comm);
    }
    if (comm == mc_app_world)
        ranks->is_world = 1;
    else
        learn_group(ranks, comm, ranks->is_inter);
}

static void learn_win(mc_ranks *ranks, MPI_Win win)
{
    MPI_Group group = mc_known.group_null;
    if (!MC_HAVE(MPI_Win_get_group) || !MC_HAVE(MPI_Group_size) ||
        MC_REAL(MPI_Win_get_group)(win, &group) != MPI_SUCCESS)
        return;
    MC_REAL(MPI_Group_size)(group, &ranks->n_ranks);
    learn_world_ranks(ranks, group);
    if (MC_HAVE(MPI_Group_free))
        MC_REAL(MPI_Group_free)(&group);
}

mc_ranks *mc_ranks_keep(mc_ranks *ranks)
{
    if (ranks == NULL)
        return NULL;
    if (ranks->is_world)
        return &whole_world;
    if (__atomic_load_n(&mc_ops_shared, __ATOMIC_RELAXED))
        __atomic_fetch_add(&ranks->n_users, 1, __ATOMIC_RELAXED);
    else
        ranks->n_users++;
    return ranks;
}

void mc_ranks_release(mc_ranks *ranks)
{
    if (ranks == NULL || ranks == &whole_world)
        return;
    uint64_t n_left = __atomic_load_n(&mc_ops_shared, __ATOMIC_RELAXED)
                          ? __atomic_sub_fetch(&ranks->n_users, 1, __ATOMIC_ACQ_REL)
                          : --ranks->n_users;
    if (n_left != 0)
        return;
    mc_ranks_release(ranks->own_side);
    free(ranks->neighbours);
    free(ranks->world_ranks);
    free(ranks);
}

/* Must run before the first row is added to a table, because threads may share the tables from then on. */
void mc_learn_threads(void)
{
    static atomic_int is_known;
    int provided = MPI_THREAD_MULTIPLE;
    /* if the program uses sessions, the tables are shared already, and MPI_Query_thread must not be called */
    if (atomic_load_explicit(&is_known, memory_order_acquire) || __atomic_load_n(&mc_ops_shared, __ATOMIC_ACQUIRE))
        return;
    if (!MC_HAVE(MPI_Query_thread) || MC_REAL(MPI_Query_thread)(&provided) != MPI_SUCCESS ||
        provided == MPI_THREAD_MULTIPLE)
        mc_ops_share();
    atomic_store_explicit(&is_known, 1, memory_order_release);
}

/* The entry of this key; NULL if there is none yet. */
static mc_ranks *known(mc_op_table *table, mc_last_ranks *last, uint64_t key)
{
    mc_op op;
    uint64_t now = atomic_load_explicit(&mc_ranks_generation, memory_order_acquire);
    mc_learn_threads();
    if (!mc_op_find(table, key, &op))
        return NULL;
    last->key = key;
    last->generation = now;
    return last->ranks = op.ranks;
}

/* If two threads add the same communicator at once, the communicator gets two rows, which are removed together. If the
   table is full, the ranks are kept only in the thread's cache, and computed again once they have left it. */
static void keep_new(mc_op_table *table, mc_last_ranks *last, uint64_t key, mc_ranks *ranks)
{
    mc_op op = {.ranks = ranks};
    last->generation = atomic_load_explicit(&mc_ranks_generation, memory_order_acquire);
    last->key = key;
    last->ranks = ranks;
    if (!mc_op_add(table, key, &op)) {
        mc_ranks_release(last->homeless);
        last->homeless = ranks;
    }
}

mc_ranks *mc_find_ranks_of_comm(MPI_Comm comm)
{
    uint64_t key = MC_KEY_OF(comm);
    mc_ranks *ranks = known(&comms, &mc_last_comm, key);
    if (ranks == NULL && (ranks = new_ranks()) != NULL) {
        learn_comm(ranks, comm);
        keep_new(&comms, &mc_last_comm, key, ranks);
    }
    return ranks;
}

mc_ranks *mc_find_ranks_of_win(MPI_Win win)
{
    uint64_t key = MC_KEY_OF(win);
    mc_ranks *ranks = known(&wins, &mc_last_win, key);
    if (ranks == NULL && (ranks = new_ranks()) != NULL) {
        learn_win(ranks, win);
        keep_new(&wins, &mc_last_win, key, ranks);
    }
    return ranks;
}

static void forget(mc_op_table *table, uint64_t key)
{
    mc_op op;
    atomic_fetch_add_explicit(&mc_ranks_generation, 1, memory_order_acq_rel);
    while (mc_op_take(table, key, UINT64_MAX, &op))
        mc_ranks_release(op.ranks);
}

void mc_comm_gone(MPI_Comm comm)
{
    forget(&comms, MC_KEY_OF(comm));
}

void mc_win_gone(MPI_Win win)
{
    forget(&wins, MC_KEY_OF(win));
}

/* Allocated as one block, so that one free() suffices. */
static mc_neighbours *new_neighbours(int n_in, int n_out, int **in, int **out)
{
    size_t n = (size_t)(n_in > 0 ? n_in : 0) + (size_t)(n_out > 0 ? n_out : 0);
    mc_neighbours *made = malloc(sizeof *made + n * sizeof(int));
    if (made == NULL)
        return NULL;
    *in = (int *)(made + 1);
    *out = *in + (n_in > 0 ? n_in : 0);
    *made = (mc_neighbours){n_in, n_out, *in, *out};
    return made;
}

static mc_neighbours *learn_cart(MPI_Comm comm)
{
    int n_dims = 0, *in, *out;
    MC_REAL(MPI_Cartdim_get)(comm, &n_dims);
    mc_neighbours *made = new_neighbours(2 * n_dims, 2 * n_dims, &in, &out);
    for (int i = 0; made != NULL && i < n_dims; i++) {
        MC_REAL(MPI_Cart_shift)(comm, i, 1, &in[2 * i], &in[2 * i + 1]);
        memcpy(&out[2 * i], &in[2 * i], 2 * sizeof *in);
    }
    return made;
}

static mc_neighbours *learn_graph(MPI_Comm comm, int own_rank)
{
    int n = 0, *in, *out;
    MC_REAL(MPI_Graph_neighbors_count)(comm, own_rank, &n);
    mc_neighbours *made = new_neighbours(n, n, &in, &out);
    if (made != NULL) {
        MC_REAL(MPI_Graph_neighbors)(comm, own_rank, n, in);
        memcpy(out, in, (size_t)n * sizeof *in);
    }
    return made;
}

static mc_neighbours *learn_dist_graph(MPI_Comm comm)
{
    int n_in = 0, n_out = 0, is_weighted = 0, *in, *out;
    MC_REAL(MPI_Dist_graph_neighbors_count)(comm, &n_in, &n_out, &is_weighted);
    int n = n_in > n_out ? n_in : n_out;
    int *weights = malloc(2 * ((size_t)n + 1) * sizeof *weights);
    mc_neighbours *made = weights != NULL ? new_neighbours(n_in, n_out, &in, &out) : NULL;
    if (made != NULL)
        MC_REAL(MPI_Dist_graph_neighbors)(comm, n_in, in, weights, n_out, out, weights + n);
    free(weights);
    return made;
}

static mc_neighbours *learn_neighbours(MPI_Comm comm, int own_rank)
{
    int kind = MPI_UNDEFINED;
    if (MC_HAVE(MPI_Topo_test))
        MC_REAL(MPI_Topo_test)(comm, &kind);
    if (kind == MPI_CART && MC_HAVE(MPI_Cartdim_get) && MC_HAVE(MPI_Cart_shift))
        return learn_cart(comm);
    if (kind == MPI_GRAPH && MC_HAVE(MPI_Graph_neighbors_count) && MC_HAVE(MPI_Graph_neighbors))
        return learn_graph(comm, own_rank);
    if (kind == MPI_DIST_GRAPH && MC_HAVE(MPI_Dist_graph_neighbors_count) && MC_HAVE(MPI_Dist_graph_neighbors))
        return learn_dist_graph(comm);
    return NULL;
}

const mc_neighbours *mc_neighbours_of(MPI_Comm comm)
{
    static const mc_neighbours none;
    mc_ranks *ranks = mc_ranks_of_comm(comm);
    if (ranks == NULL)
        return &none;
    mc_neighbours *known = __atomic_load_n(&ranks->neighbours, __ATOMIC_ACQUIRE);
    if (known != NULL)
        return known;
    mc_neighbours *made = learn_neighbours(comm, ranks->own_rank);
    if (made != NULL &&
        !__atomic_compare_exchange_n(&ranks->neighbours, &known, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        free(made); /* another thread was first */
        return known;
    }
    return made != NULL ? made : &none;
}
