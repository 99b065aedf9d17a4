/* Stands for the coordinator of mpicoloc.wrap: it makes the one call that the shim expects of it. */
#include <mpi.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Comm own;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, 1, rank, &own);
    MPI_Comm_free(&own);
    MPI_Finalize();
    return 0;
}
