/* Ranks of any communicator as ranks of the application's world. */
#include <pthread.h>
#include <stdlib.h>

#include "world.h"

enum { N_COMMS = 64 };

/* The lock is private to the process. Held while a new communicator's group is asked for, which is a local call. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    MPI_Comm comm;
    int n_ranks;
    int *world_ranks;
} comms[N_COMMS];
static int n_comms;

static MPI_Group group_of(MPI_Comm comm)
{
    MPI_Group group = mc_known.group_null;
    int is_inter = 0;
    if (MC_HAVE(MPI_Comm_test_inter))
        MC_REAL(MPI_Comm_test_inter)(comm, &is_inter);
    if (is_inter && MC_HAVE(MPI_Comm_remote_group))
        MC_REAL(MPI_Comm_remote_group)(comm, &group);
    else if (!is_inter && MC_HAVE(MPI_Comm_group))
        MC_REAL(MPI_Comm_group)(comm, &group);
    return group;
}

/* World ranks of a group's members, -1 for those outside the world (spawned or connected); NULL if it fails. */
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

static int *world_ranks_of(MPI_Comm comm, int *n_ranks)
{
    MPI_Group group = group_of(comm), world = group_of(mc_app_world);
    int *world_ranks = NULL;
    *n_ranks = 0;
    if (MC_HAVE(MPI_Group_size) && group != mc_known.group_null && world != mc_known.group_null) {
        MC_REAL(MPI_Group_size)(group, n_ranks);
        world_ranks = *n_ranks > 0 ? translate(group, world, *n_ranks) : NULL;
    }
    if (MC_HAVE(MPI_Group_free) && group != mc_known.group_null)
        MC_REAL(MPI_Group_free)(&group);
    if (MC_HAVE(MPI_Group_free) && world != mc_known.group_null)
        MC_REAL(MPI_Group_free)(&world);
    return world_ranks;
}

static void forget_all(void)
{
    for (int i = 0; i < n_comms; i++)
        free(comms[i].world_ranks);
    n_comms = 0;
}

static int find_comm(MPI_Comm comm)
{
    for (int i = 0; i < n_comms; i++)
        if (comms[i].comm == comm)
            return i;
    if (n_comms == N_COMMS)
        forget_all();
    comms[n_comms].comm = comm;
    comms[n_comms].world_ranks = world_ranks_of(comm, &comms[n_comms].n_ranks);
    return n_comms++;
}

int mc_peer(MPI_Comm comm, int rank)
{
    if (rank < 0 || !mc_app_world) /* a program of sessions only has no world, and asking for its group is fatal */
        return -1;
    if (comm == mc_app_world)
        return rank;
    pthread_mutex_lock(&lock);
    int i = find_comm(comm);
    int peer = comms[i].world_ranks != NULL && rank < comms[i].n_ranks ? comms[i].world_ranks[rank] : -1;
    pthread_mutex_unlock(&lock);
    return peer;
}

/* The handle may come back for another communicator. */
void mc_comm_gone(void)
{
    pthread_mutex_lock(&lock);
    forget_all();
    pthread_mutex_unlock(&lock);
}
