/* A known number of bytes between known ranks: traffic ring|pairs|alltoall|mixed|empty [BYTES [TIMES [REST_MS]]]

   ring: each rank sends BYTES to the next. pairs: rank i of the lower half exchanges BYTES with rank i of the upper
   half. alltoall: MPI_Alltoall with BYTES for each rank. mixed: one of each of MPI_Bcast, MPI_Allreduce, MPI_Allgather,
   MPI_Gather and MPI_Scatter, with BYTES for the whole buffer or for each rank. After each time all rest for REST_MS
   milliseconds, as if they computed, but without a processor. Rank 0 prints the seconds that it took. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void send_to(int to, int from, char *buffer, int n_bytes)
{
    MPI_Sendrecv(buffer, n_bytes, MPI_BYTE, to, 0, buffer + n_bytes, n_bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void collectives(char *buffer, int n_bytes, int size)
{
    char *other = buffer + (size_t)size * (size_t)n_bytes;
    MPI_Bcast(buffer, n_bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Allreduce(buffer, other, n_bytes, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    MPI_Allgather(buffer, n_bytes, MPI_BYTE, other, n_bytes, MPI_BYTE, MPI_COMM_WORLD);
    MPI_Gather(buffer, n_bytes, MPI_BYTE, other, n_bytes, MPI_BYTE, size - 1, MPI_COMM_WORLD);
    MPI_Scatter(buffer, n_bytes, MPI_BYTE, other, n_bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "empty";
    int n_bytes = argc > 2 ? atoi(argv[2]) : 1000000, times = argc > 3 ? atoi(argv[3]) : 1, rank, size;
    int rest_ms = argc > 4 ? atoi(argv[4]) : 0;
    struct timespec rest = {rest_ms / 1000, rest_ms % 1000 * 1000000L};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *buffer = calloc(2 * (size_t)size, n_bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double began_s = MPI_Wtime();
    for (int i = 0; i < times; i++) {
        int pair = (rank + size / 2) % size;
        if (strcmp(what, "ring") == 0)
            send_to((rank + 1) % size, (rank + size - 1) % size, buffer, n_bytes);
        else if (strcmp(what, "pairs") == 0)
            send_to(pair, pair, buffer, n_bytes);
        else if (strcmp(what, "alltoall") == 0)
            MPI_Alltoall(buffer, n_bytes, MPI_BYTE, buffer + (size_t)size * n_bytes, n_bytes, MPI_BYTE, MPI_COMM_WORLD);
        else if (strcmp(what, "mixed") == 0)
            collectives(buffer, n_bytes, size);
        if (rest_ms > 0)
            nanosleep(&rest, NULL);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%.3f s\n", MPI_Wtime() - began_s);
    free(buffer);
    MPI_Finalize();
    return 0;
}
