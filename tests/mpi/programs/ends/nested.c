/* Rank 0 starts another MPI job, argv[1], by the shell. */
#include "../ranks.h"

int main(int argc, char **argv)
{
    int status = 0;
    begin(&argc, &argv);
    if (rank == 0)
        status = system(argv[1]);
    printf("rank %d of %d: the other job gave %d\n", rank, size, status);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
