/* Messages whose replay needs more than one call: persistent requests, started one by one and together, partitioned
   ones, neighbours of a ring, collectives between two groups. The second argument says which. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE = 50000, SMALL = 300, N_PARTS = 4 };

static char *sent, *taken;
static int rank, n_ranks, right, left;

static void persistent(int n)
{
    MPI_Request both[2], small[2];
    MPI_Recv_init(taken, LARGE, MPI_CHAR, left, 1, MPI_COMM_WORLD, both);
    MPI_Send_init(sent, LARGE, MPI_CHAR, right, 1, MPI_COMM_WORLD, both + 1);
    MPI_Recv_init(taken + LARGE, SMALL, MPI_CHAR, right, 2, MPI_COMM_WORLD, small);
    MPI_Ssend_init(sent + LARGE, SMALL, MPI_CHAR, left, 2, MPI_COMM_WORLD, small + 1);
    for (int i = 0; i < n; i++) {
        MPI_Startall(2, both);
        MPI_Start(small);
        MPI_Start(small + 1);
        MPI_Wait(small, MPI_STATUS_IGNORE);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        MPI_Wait(small + 1, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 2; i++) {
        MPI_Request_free(both + i);
        MPI_Request_free(small + i);
    }
}

static void partitioned(int n)
{
#if MPI_VERSION >= 4
    MPI_Request requests[2];
    MPI_Precv_init(taken, N_PARTS, SMALL, MPI_CHAR, left, 3, MPI_COMM_WORLD, MPI_INFO_NULL, requests);
    MPI_Psend_init(sent, N_PARTS, SMALL, MPI_CHAR, right, 3, MPI_COMM_WORLD, MPI_INFO_NULL, requests + 1);
    for (int i = 0; i < n; i++) {
        MPI_Startall(2, requests);
        for (int part = 0; part < N_PARTS; part++)
            MPI_Pready(part, requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(requests);
    MPI_Request_free(requests + 1);
#else
    (void)n;
#endif
}

static void neighbours(int n)
{
    MPI_Comm ring;
    int periodic = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &n_ranks, &periodic, 0, &ring);
    for (int i = 0; i < n; i++) {
        MPI_Neighbor_alltoall(sent, LARGE, MPI_CHAR, taken, LARGE, MPI_CHAR, ring);
        MPI_Neighbor_allgather(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, ring);
        MPI_Request request;
        MPI_Ineighbor_alltoall(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, ring, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&ring);
}

/* The ranks of the lower half call other functions than those of the upper half. */
static void neighbours_in_halves(int n)
{
    MPI_Comm half, ring;
    int periodic = 1, n_half, is_low = rank < n_ranks / 2;
    MPI_Comm_split(MPI_COMM_WORLD, is_low, rank, &half);
    MPI_Comm_size(half, &n_half);
    MPI_Cart_create(half, 1, &n_half, &periodic, 0, &ring);
    for (int i = 0; i < n; i++) {
        if (is_low)
            MPI_Neighbor_alltoall(sent, LARGE, MPI_CHAR, taken, LARGE, MPI_CHAR, ring);
        else
            MPI_Neighbor_allgather(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, ring);
    }
    MPI_Comm_free(&ring);
    MPI_Comm_free(&half);
}

static void persistent_collectives(int n)
{
#if MPI_VERSION >= 4
    MPI_Request request;
    MPI_Allreduce_init(sent, taken, SMALL, MPI_CHAR, MPI_BOR, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < n; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request);
#else
    (void)n;
#endif
}

static void groups(int n)
{
    MPI_Comm half, inter;
    int is_low = rank < 2;
    MPI_Comm_split(MPI_COMM_WORLD, is_low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_low ? 2 : 0, 5, &inter);
    for (int i = 0; i < n; i++) {
        int own_root = rank == 1 ? MPI_ROOT : MPI_PROC_NULL;
        MPI_Bcast(sent, LARGE, MPI_CHAR, is_low ? own_root : 1, inter);
        MPI_Allreduce(sent, taken, SMALL, MPI_CHAR, MPI_BOR, inter);
        MPI_Alltoall(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, inter);
        MPI_Gather(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, is_low ? own_root : 1, inter);
        MPI_Allgather(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, inter);
        MPI_Barrier(inter);
        MPI_Allreduce(sent, taken, SMALL, MPI_CHAR, MPI_BOR, half);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    right = (rank + 1) % n_ranks, left = (rank + n_ranks - 1) % n_ranks;
    sent = calloc(8, LARGE), taken = calloc(8, LARGE);
    const char *what = argc > 2 ? argv[2] : "";
    int n = argc > 1 ? atoi(argv[1]) : 1;
    if (strcmp(what, "persistent") == 0)
        persistent(n);
    if (strcmp(what, "partitioned") == 0)
        partitioned(n);
    if (strcmp(what, "neighbours") == 0)
        neighbours(n);
    if (strcmp(what, "neighbours in halves") == 0)
        neighbours_in_halves(n);
    if (strcmp(what, "persistent collectives") == 0)
        persistent_collectives(n);
    if (strcmp(what, "groups") == 0)
        groups(n);
    MPI_Finalize();
    return 0;
}
