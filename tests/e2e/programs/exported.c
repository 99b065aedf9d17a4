/* Messages and collectives whose numbers and sizes follow from the number of ranks and argv[1] rounds. */
#include "../../mpi/programs/ranks.h"

static char out[1 << 16], in[1 << 16];

static void point_to_point(int round)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size, n = 100 + round;
    MPI_Request requests[2];
    if (rank % 2 == 0)
        MPI_Send(out, n, MPI_BYTE, next, 1, MPI_COMM_WORLD);
    MPI_Recv(in, n, MPI_BYTE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank % 2)
        MPI_Send(out, n, MPI_BYTE, next, 1, MPI_COMM_WORLD);
    MPI_Irecv(in, 40000, MPI_BYTE, last, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, 40000, MPI_BYTE, next, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
}

static void collectives(void)
{
    int counts[64], starts[64];
    for (int i = 0; i < size; i++) {
        counts[i] = 8;
        starts[i] = 8 * i;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(out, 1000, MPI_BYTE, 1, MPI_COMM_WORLD);
    MPI_Reduce(out, in, 125, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Allreduce(out, in, 250, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Gather(out, 64, MPI_BYTE, in, 64, MPI_BYTE, 1, MPI_COMM_WORLD);
    MPI_Scatter(out, 32, MPI_BYTE, in, 32, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Allgather(out, 16, MPI_BYTE, in, 16, MPI_BYTE, MPI_COMM_WORLD);
    MPI_Alltoall(out, 8, MPI_BYTE, in, 8, MPI_BYTE, MPI_COMM_WORLD);
    MPI_Alltoallv(out, counts, starts, MPI_BYTE, in, counts, starts, MPI_BYTE, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int n_rounds = argc > 1 ? atoi(argv[1]) : 10;
    volatile double x = 1;
    begin(&argc, &argv);
    for (int round = 0; round < n_rounds; round++) {
        for (int i = 0; i < 200000; i++)
            x = x * 1.0000001 + 1e-9;
        point_to_point(round);
        collectives();
    }
    MPI_Finalize();
    return 0;
}
