/* World ranks of the members of communicators and windows. Threads read them without a lock. */
#ifndef MPICOLOC_PEERS_H
#define MPICOLOC_PEERS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "guest/calls/requests.h"
#include "guest/mpi/real.h"

typedef struct mc_ranks {
    uint64_t n_users;      /* number of references: from the communicators' table, receives in progress, ... */
    int n_ranks;           /* number of ranks; in the remote group if there is one */
    int n_local, own_rank; /* in the local group */
    int is_inter;
    int is_world;     /* each rank equals its world rank */
    int *world_ranks; /* if not is_world: world rank of each rank, -1 outside the world; NULL: unknown */
    struct mc_neighbours *neighbours; /* of a communicator with a topology; NULL until first needed */
    uint64_t group;                   /* hash of the members; 0 until first needed (matrix.c) */
    struct mc_ranks *own_side;        /* of an intercommunicator: the local group */
} mc_ranks;

/* Ranks to receive from and to send to, in the order of the buffers. MPI_PROC_NULL at an open edge of a grid. */
typedef struct mc_neighbours {
    int n_in, n_out;
    const int *in, *out;
} mc_neighbours;

/* A reference that stays valid when the program frees the communicator or window. */
mc_ranks *mc_ranks_keep(mc_ranks *ranks);
void mc_ranks_release(mc_ranks *ranks);

/* Consecutive calls mostly use the same communicator, so each thread caches the last communicator. Whenever a
   communicator or window is freed, a new generation begins and the caches become invalid, because MPI may reuse the
   handle. */
typedef struct mc_last_ranks {
    uint64_t key, generation;
    mc_ranks *ranks;
    mc_ranks *homeless; /* ranks that only this thread holds, because the table was full */
} mc_last_ranks;

extern _Atomic uint64_t mc_ranks_generation;
extern __thread mc_last_ranks mc_last_comm, mc_last_win;
mc_ranks *mc_find_ranks_of_comm(MPI_Comm comm);
mc_ranks *mc_find_ranks_of_win(MPI_Win win);

static inline int mc_is_last(const mc_last_ranks *last, uint64_t key)
{
    return __builtin_expect(last->key == key, 1) &&
           last->generation == atomic_load_explicit(&mc_ranks_generation, memory_order_acquire);
}

/* The ranks of a communicator or window. The result is valid until the program frees the communicator or window. */
static inline mc_ranks *mc_ranks_of_comm(MPI_Comm comm)
{
    return mc_is_last(&mc_last_comm, MC_KEY_OF(comm)) ? mc_last_comm.ranks : mc_find_ranks_of_comm(comm);
}

static inline mc_ranks *mc_ranks_of_win(MPI_Win win)
{
    return mc_is_last(&mc_last_win, MC_KEY_OF(win)) ? mc_last_win.ranks : mc_find_ranks_of_win(win);
}

/* Neighbours in the communicator's topology; an empty list if it has no topology. */
const mc_neighbours *mc_neighbours_of(MPI_Comm comm);

/* The world rank of a rank, -1 if unknown. */
static inline int mc_world_rank(const mc_ranks *ranks, int rank)
{
    if (rank < 0 || ranks == NULL || rank >= ranks->n_ranks)
        return -1;
    if (ranks->is_world)
        return rank;
    return ranks->world_ranks != NULL ? ranks->world_ranks[rank] : -1;
}

/* Find out whether threads must share the tables. Call it once MPI is initialized. */
void mc_learn_threads(void);

/* Call these before the real call that frees the handle, because MPI may reuse the handle at once. */
void mc_comm_gone(MPI_Comm comm);
void mc_win_gone(MPI_Win win);

#endif
