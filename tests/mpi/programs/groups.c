/* Collectives on several groups of ranks, and such with a part of its own for each rank. For 4 ranks. */
#include <mpi.h>
#include <stdio.h>

static double in[64], out[64];

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
    MPI_Comm_free(&between);
    MPI_Comm_free(&turned);
    MPI_Comm_free(&half);
}

static void with_parts(int rank, int p)
{
    int mine[4], all[4], starts[4] = {0, 8, 16, 24}, ring = p, periodic = 0;
    MPI_Comm line;
    for (int i = 0; i < p; i++) {
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
    MPI_Neighbor_alltoall(in, 3, MPI_DOUBLE, out, 3, MPI_DOUBLE, line);
    MPI_Comm_free(&line);
}

int main(int argc, char **argv)
{
    int rank, p;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &p);
    on_groups(rank);
    with_parts(rank, p);
    printf("rank %d of %d\n", rank, p);
    MPI_Finalize();
    return 0;
}
