/* A send that is cancelled before anybody receives it, among the first messages of the program. */
#include "../ranks.h"

enum { N = 65536 };

int main(int argc, char **argv)
{
    int is_done = 0, is_cancelled = 0;
    int *buffer = calloc(3 * N, sizeof *buffer);
    MPI_Request requests[2], last;
    MPI_Status statuses[2];
    begin(&argc, &argv);
    if (rank == 1) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Send(buffer, N, MPI_INT, 0, 0, MPI_COMM_WORLD);
        MPI_Isend(buffer, N, MPI_INT, 0, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(buffer, N, MPI_INT, 0, 2, MPI_COMM_WORLD, &requests[1]);
        MPI_Cancel(&requests[1]);
        MPI_Barrier(MPI_COMM_WORLD);
        while (!is_done)
            MPI_Testall(2, requests, &is_done, statuses);
        MPI_Test_cancelled(&statuses[1], &is_cancelled);
    } else {
        MPI_Irecv(buffer, N, MPI_INT, 1, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Irecv(buffer + N, N, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Waitall(2, requests, statuses);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Irecv(buffer + 2 * N, N, MPI_INT, 1, 2, MPI_COMM_WORLD, &last);
    }
    MPI_Bcast(&is_cancelled, 1, MPI_INT, 1, MPI_COMM_WORLD);
    if (is_cancelled && rank == 0)
        MPI_Cancel(&last);
    if (rank == 0)
        MPI_Wait(&last, MPI_STATUS_IGNORE);
    say("cancelled %d", is_cancelled);
    free(buffer);
    MPI_Finalize();
    return 0;
}
