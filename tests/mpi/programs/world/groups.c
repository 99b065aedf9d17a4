/* Collectives on several groups of ranks, and such with a part of its own for each rank. For 4 ranks. */
#include "../ranks.h"
#if defined(OPEN_MPI) && OMPI_MAJOR_VERSION < 5
#include <mpi-ext.h>
#define INIT(name) MPIX_Neighbor_##name##_init
#else
#define INIT(name) MPI_Neighbor_##name##_init
#endif

static double in[64], out[64];

/* Three numbers to each neighbour: by every function, at once, later, and started twice. */
static void on_line(MPI_Comm line)
{
    int n[2] = {3, 3}, at[2] = {0, 8};
    MPI_Aint far[2] = {0, 64};
    MPI_Datatype d = MPI_DOUBLE, types[2] = {d, d};
    MPI_Request later[5], often[5];
    MPI_Neighbor_allgather(in, 3, d, out, 3, d, line);
    MPI_Neighbor_alltoall(in, 3, d, out, 3, d, line);
    MPI_Neighbor_allgatherv(in, 3, d, out, n, at, d, line);
    MPI_Neighbor_alltoallv(in, n, at, d, out, n, at, d, line);
    MPI_Neighbor_alltoallw(in, n, far, types, out, n, far, types, line);
    MPI_Ineighbor_allgather(in, 3, d, out, 3, d, line, &later[0]);
    MPI_Ineighbor_alltoall(in, 3, d, out + 8, 3, d, line, &later[1]);
    MPI_Ineighbor_allgatherv(in, 3, d, out + 16, n, at, d, line, &later[2]);
    MPI_Ineighbor_alltoallv(in, n, at, d, out + 32, n, at, d, line, &later[3]);
    MPI_Ineighbor_alltoallw(in, n, far, types, out + 48, n, far, types, line, &later[4]);
    MPI_Waitall(5, later, MPI_STATUSES_IGNORE);
    INIT(allgather)(in, 3, d, out, 3, d, line, MPI_INFO_NULL, &often[0]);
    INIT(alltoall)(in, 3, d, out + 8, 3, d, line, MPI_INFO_NULL, &often[1]);
    INIT(allgatherv)(in, 3, d, out + 16, n, at, d, line, MPI_INFO_NULL, &often[2]);
    INIT(alltoallv)(in, n, at, d, out + 32, n, at, d, line, MPI_INFO_NULL, &often[3]);
    INIT(alltoallw)(in, n, far, types, out + 48, n, far, types, line, MPI_INFO_NULL, &often[4]);
    for (int i = 0; i < 2; i++) {
        MPI_Startall(5, often);
        MPI_Waitall(5, often, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < 5; i++)
        MPI_Request_free(&often[i]);
}

static void on_groups(int rank)
{
    MPI_Comm half, turned, between;
    for (int i = 0; i < 3; i++)
        MPI_Allreduce(in, out, 10, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Bcast(in, 5, MPI_INT, 2, MPI_COMM_WORLD);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Barrier(half);
    MPI_Comm_split(MPI_COMM_WORLD, rank == 1, -rank, &turned); /* 3 2 0, and 1 alone */
    MPI_Allgather(in, 2, MPI_DOUBLE, out, 2, MPI_DOUBLE, turned);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 0, &between);
    MPI_Barrier(between);
    MPI_Bcast(in, 7, MPI_INT, rank == 3 ? MPI_ROOT : rank == 1 ? MPI_PROC_NULL : 1, between);
    MPI_Comm_free(&between);
    MPI_Comm_free(&turned);
    MPI_Comm_free(&half);
}

static void with_parts(int rank, int size)
{
    int mine[4], all[4], starts[4] = {0, 8, 16, 24}, ring = size, periodic = 0;
    MPI_Comm line;
    for (int i = 0; i < size; i++) {
        mine[i] = i;
        all[i] = i + 1;
    }
    int from_all[4] = {rank, rank, rank, rank};
    MPI_Alltoallv(in, mine, starts, MPI_DOUBLE, out, from_all, starts, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Gatherv(in, all[rank], MPI_DOUBLE, out, all, starts, MPI_DOUBLE, 1, MPI_COMM_WORLD);
    MPI_Scatterv(in, all, starts, MPI_DOUBLE, out, all[rank], MPI_DOUBLE, 3, MPI_COMM_WORLD);
    MPI_Allgatherv(in, all[rank], MPI_DOUBLE, out, all, starts, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Reduce_scatter(in, out, all, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ring, &periodic, 0, &line);
    on_line(line);
    MPI_Comm_free(&line);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    on_groups(rank);
    with_parts(rank, size);
    printf("rank %d of %d\n", rank, size);
    MPI_Finalize();
    return 0;
}
