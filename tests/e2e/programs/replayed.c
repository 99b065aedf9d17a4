/* Messages of every kind, whose replay must send the same: ring with large and small messages, row and column
   communicators, rooted collectives, a begun barrier, parts of different sizes, one-sided calls. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGE = 100000, N_DOUBLES = 1000, WINDOW = 65536, STRIDE = 4096 };

static char *sent, *taken;
static double in[N_DOUBLES], out[N_DOUBLES];
static int rank, n_ranks, right, left;

static void ring(int tag)
{
    MPI_Request requests[4];
    MPI_Irecv(taken, LARGE, MPI_CHAR, left, tag, MPI_COMM_WORLD, requests);
    MPI_Isend(sent, LARGE, MPI_CHAR, right, tag, MPI_COMM_WORLD, requests + 1);
    MPI_Irecv(taken + LARGE, 100, MPI_CHAR, right, tag, MPI_COMM_WORLD, requests + 2);
    MPI_Isend(sent + LARGE, 100, MPI_CHAR, left, tag, MPI_COMM_WORLD, requests + 3);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    MPI_Sendrecv(sent, 5000, MPI_CHAR, right, 7, taken, 5000, MPI_CHAR, left, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* A message between the begin of a barrier and its end: whoever did the barrier where it begins would wait for ever. */
static void barrier_around_a_message(void)
{
    MPI_Request request;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    if (rank == 0)
        MPI_Send(sent, 20000, MPI_CHAR, n_ranks - 1, 1, MPI_COMM_WORLD);
    if (rank == n_ranks - 1)
        MPI_Recv(taken, 20000, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void parts(void)
{
    int *counts = malloc(sizeof(int) * 3 * (size_t)n_ranks);
    int *taken_counts = counts + n_ranks, *places = counts + 2 * n_ranks;
    for (int i = 0; i < n_ranks; i++) {
        counts[i] = taken_counts[i] = (rank + 1) * (i + 1) * 8;
        places[i] = STRIDE * i;
    }
    MPI_Alltoallv(sent, counts, places, MPI_CHAR, taken, taken_counts, places, MPI_CHAR, MPI_COMM_WORLD);
    free(counts);
}

static void one_sided(MPI_Win window)
{
    MPI_Win_fence(0, window);
    MPI_Put(sent, 3000, MPI_CHAR, right, 0, 3000, MPI_CHAR, window);
    MPI_Get(taken, 2000, MPI_CHAR, left, STRIDE, 2000, MPI_CHAR, window);
    MPI_Win_fence(0, window);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    right = (rank + 1) % n_ranks, left = (rank + n_ranks - 1) % n_ranks;
    sent = calloc(4, LARGE), taken = calloc(4, LARGE);
    char *memory;
    MPI_Win window;
    MPI_Comm row, column;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &row);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &column);
    MPI_Win_allocate(WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    for (int i = 0; i < atoi(argv[1]); i++) {
        ring(i);
        MPI_Allreduce(in, out, 10, MPI_DOUBLE, MPI_SUM, row);
        MPI_Allreduce(in, out, N_DOUBLES, MPI_DOUBLE, MPI_SUM, column);
        MPI_Bcast(in, N_DOUBLES / 2, MPI_DOUBLE, 1, MPI_COMM_WORLD);
        MPI_Alltoall(sent, 64, MPI_CHAR, taken, 64, MPI_CHAR, MPI_COMM_WORLD);
        barrier_around_a_message();
        MPI_Gather(in, 8, MPI_DOUBLE, taken, 8, MPI_DOUBLE, 0, row);
        MPI_Reduce(in, out, 100, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        parts();
        one_sided(window);
    }
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
