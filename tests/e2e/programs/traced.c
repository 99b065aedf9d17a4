/* Messages of several kinds between neighbours in a ring of ranks, argv[1] rounds. */
#include "../../mpi/programs/ranks.h"

enum { N_MESSAGES = 4, BLOCK = 16 };

static char buffer[(2 * N_MESSAGES + 2) * BLOCK];

static void exchange(int left, int right)
{
    MPI_Request requests[2 * N_MESSAGES];
    for (int i = 0; i < N_MESSAGES; i++) {
        char *here = buffer + 2 * i * BLOCK;
        MPI_Irecv(here, i + 1, MPI_CHAR, left, i, MPI_COMM_WORLD, &requests[2 * i]);
        MPI_Isend(here + BLOCK, i + 1, MPI_CHAR, right, i, MPI_COMM_WORLD, &requests[2 * i + 1]);
    }
    MPI_Waitall(2 * N_MESSAGES, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 100;
    char *last = buffer + 2 * N_MESSAGES * BLOCK;
    begin(&argc, &argv);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    for (int i = 0; i < n; i++) {
        exchange(left, right);
        MPI_Sendrecv(last, 9, MPI_CHAR, right, 9, last + BLOCK, 9, MPI_CHAR, left, 9, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        if (rank % 2 == 0 && right != 0)
            MPI_Send(last, 13, MPI_CHAR, right, 0, MPI_COMM_WORLD);
        else if (rank % 2 == 1)
            MPI_Recv(last, 13, MPI_CHAR, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
