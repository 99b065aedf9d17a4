/* Rank 0 sends four partitions to rank 1. */
#include "../ranks.h"

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int values[4] = {0, 1, 2, 3};
    MPI_Request request;
    if (rank == 0) {
        MPI_Psend_init(values, 4, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        MPI_Start(&request);
        MPI_Pready_range(0, 3, request);
    } else {
        memset(values, 0, sizeof values);
        MPI_Precv_init(values, 4, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        MPI_Start(&request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    say("%d of %d", values[3], size);
    MPI_Finalize();
    return 0;
}
