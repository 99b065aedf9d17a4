/* A program whose calls are easy to count; -DWITH_TOOL: with the other profiler linked in. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, sum = 0, value = 3;
    MPI_Init(&argc, &argv);
    for (int i = 0; i < 1000; i++)
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 30; i++)
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 7 && size > 1; i++) {
        if (rank == 0)
            MPI_Send(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        else if (rank == 1)
            MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    printf("rank %d of %d: sum %d\n", rank, size, sum);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
#ifdef WITH_TOOL
#include "other_tool.c"
#endif
