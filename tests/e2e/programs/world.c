/* The world that a program sees, or, without main, a library that it opens. */
#include <mpi.h>
#include <stdio.h>

int use_mpi(void)
{
    int rank, size, one = 1, sum = 0;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d, sum %d\n", rank, size, sum);
    return MPI_Finalize();
}

#ifndef IS_LIBRARY
int main(void)
{
    return use_mpi();
}
#endif
