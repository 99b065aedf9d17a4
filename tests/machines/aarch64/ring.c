/* Each rank sends its number on and works a while, so many times: ring N_ROUNDS N_STEPS. */
#include "../../mpi/programs/ranks.h"

int main(int argc, char **argv)
{
    int got = -1, sum = 0;
    volatile double x = 1.0;
    begin(&argc, &argv);
    for (int i = 0, n = atoi(argv[1]); i < n; i++) {
        for (int j = 0, n_steps = atoi(argv[2]); j < n_steps; j++)
            x = x * 1.0000001 + 1e-9;
        MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &got, 1, MPI_INT, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(&got, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    printf("rank %d got %d sum %d\n", rank, got, sum);
    MPI_Finalize();
    return 0;
}
