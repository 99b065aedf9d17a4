/* Known calls with known sizes at any number of ranks >= 2; prints what every rank computed. */
#include "../ranks.h"

enum { N = 100 };
static double out[64 * N], in[64 * N];
static void point_to_point(void)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Request requests[2];
    MPI_Status status;
    for (int i = 0; i < 10; i++) {
        MPI_Irecv(in, N, MPI_DOUBLE, previous, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, N, MPI_DOUBLE, next, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    /* the receive is posted larger than what comes: 8 of 800 bytes */
    MPI_Sendrecv(out, 1, MPI_DOUBLE, next, 2, in, N, MPI_DOUBLE, previous, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(out, 1, MPI_DOUBLE, MPI_PROC_NULL, 2, in, N, MPI_DOUBLE, MPI_PROC_NULL, 2, MPI_COMM_WORLD, &status);
    if (rank == 0)
        MPI_Send(out, 3, MPI_INT, 1, 3, MPI_COMM_WORLD);
    if (rank == 1)
        MPI_Recv(in, N, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void persistent(void)
{
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Request requests[2];
    MPI_Send_init(out, 5, MPI_INT, next, 4, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, 5, MPI_INT, previous, 4, MPI_COMM_WORLD, &requests[1]);
    for (int i = 0; i < 3; i++) {
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
}

static void collective(void)
{
    int counts[64], displs[64];
    double x = rank, sum = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = i + 1;
        displs[i] = i * N;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(in, N, MPI_DOUBLE, 1, MPI_COMM_WORLD);
    MPI_Allreduce(&x, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(rank ? (void *)&sum : MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    /* what is not significant is garbage on purpose */
    MPI_Gather(out, 2, MPI_DOUBLE, rank ? NULL : in, rank ? -7 : 2, rank ? MPI_DATATYPE_NULL : MPI_DOUBLE, 0,
               MPI_COMM_WORLD);
    MPI_Gatherv(out, rank + 1, MPI_DOUBLE, in, rank ? NULL : counts, displs, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Scatter(rank ? NULL : out, rank ? -7 : 2, rank ? MPI_DATATYPE_NULL : MPI_DOUBLE, in, 2, MPI_DOUBLE, 0,
                MPI_COMM_WORLD);
    MPI_Allgather(MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, in, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Alltoall(out, 4, MPI_INT, in, 4, MPI_INT, MPI_COMM_WORLD);
    printf("rank %d of %d: %g %g\n", rank, size, sum, x);
}

static void others(void)
{
    MPI_Comm half;
    MPI_Datatype pair;
    int half_rank, half_size, type_size;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0, -rank, &half);
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_size(half, &half_size);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Bcast(in, 1, pair, 0, half);
    MPI_Type_size(pair, &type_size);
    MPI_Type_free(&pair);
    MPI_Pcontrol(1);
    MPI_Comm_free(&half);
    say("half %d of %d, type %d", half_rank, half_size, type_size);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    point_to_point();
    persistent();
    collective();
    others();
    MPI_Finalize();
    return 7;
}
