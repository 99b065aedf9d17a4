/* Messages whose replay must send the same, so many times: of every kind, or such as need more than one call: persistent
   requests, started one by one and together, partitioned ones, neighbours of a ring, collectives between two groups. The
   second argument says which. */
#include "../../mpi/programs/ranks.h"

enum { LARGE = 50000, SMALL = 300, N_PARTS = 4, N_DOUBLES = 1000, WINDOW = 65536, STRIDE = 4096 };

static char *sent, *taken;
static double in[N_DOUBLES], out[N_DOUBLES];
static int right, left;

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
        MPI_Send(sent, 20000, MPI_CHAR, size - 1, 1, MPI_COMM_WORLD);
    if (rank == size - 1)
        MPI_Recv(taken, 20000, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void parts(void)
{
    int *counts = malloc(sizeof(int) * 3 * (size_t)size);
    int *taken_counts = counts + size, *places = counts + 2 * size;
    for (int i = 0; i < size; i++) {
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

/* Of every kind: ring with large and small messages, row and column communicators, rooted collectives, a begun barrier,
   parts of different sizes, one-sided calls. */
static void mixed(int n)
{
    char *memory;
    MPI_Win window;
    MPI_Comm row, column;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &row);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &column);
    MPI_Win_allocate(WINDOW, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    for (int i = 0; i < n; i++) {
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
}

static void persistent(int n)
{
    MPI_Request both[2], small[2];
    MPI_Recv_init(taken, LARGE, MPI_CHAR, left, 1, MPI_COMM_WORLD, both);
    MPI_Send_init(sent, LARGE, MPI_CHAR, right, 1, MPI_COMM_WORLD, both + 1);
    MPI_Recv_init(taken + LARGE, SMALL, MPI_CHAR, right, 2, MPI_COMM_WORLD, small);
    MPI_Ssend_init(sent + LARGE, SMALL, MPI_CHAR, left, 2, MPI_COMM_WORLD, small + 1);
    for (int i = 0; i < n; i++) {
        MPI_Startall(2, both);
        MPI_Start(small);
        MPI_Start(small + 1);
        MPI_Wait(small, MPI_STATUS_IGNORE);
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        MPI_Wait(small + 1, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 2; i++) {
        MPI_Request_free(both + i);
        MPI_Request_free(small + i);
    }
}

static void partitioned(int n)
{
#if MPI_VERSION >= 4
    MPI_Request requests[2];
    MPI_Precv_init(taken, N_PARTS, SMALL, MPI_CHAR, left, 3, MPI_COMM_WORLD, MPI_INFO_NULL, requests);
    MPI_Psend_init(sent, N_PARTS, SMALL, MPI_CHAR, right, 3, MPI_COMM_WORLD, MPI_INFO_NULL, requests + 1);
    for (int i = 0; i < n; i++) {
        MPI_Startall(2, requests);
        for (int part = 0; part < N_PARTS; part++)
            MPI_Pready(part, requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(requests);
    MPI_Request_free(requests + 1);
#else
    (void)n;
#endif
}

static void neighbours(int n)
{
    MPI_Comm ring;
    int periodic = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    for (int i = 0; i < n; i++) {
        MPI_Neighbor_alltoall(sent, LARGE, MPI_CHAR, taken, LARGE, MPI_CHAR, ring);
        MPI_Neighbor_allgather(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, ring);
        MPI_Request request;
        MPI_Ineighbor_alltoall(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, ring, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&ring);
}

/* The ranks of the lower half call other functions than those of the upper half. */
static void neighbours_in_halves(int n)
{
    MPI_Comm half, ring;
    int periodic = 1, n_half, is_low = rank < size / 2;
    MPI_Comm_split(MPI_COMM_WORLD, is_low, rank, &half);
    MPI_Comm_size(half, &n_half);
    MPI_Cart_create(half, 1, &n_half, &periodic, 0, &ring);
    for (int i = 0; i < n; i++) {
        if (is_low)
            MPI_Neighbor_alltoall(sent, LARGE, MPI_CHAR, taken, LARGE, MPI_CHAR, ring);
        else
            MPI_Neighbor_allgather(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, ring);
    }
    MPI_Comm_free(&ring);
    MPI_Comm_free(&half);
}

static void persistent_collectives(int n)
{
#if MPI_VERSION >= 4
    MPI_Request request;
    MPI_Allreduce_init(sent, taken, SMALL, MPI_CHAR, MPI_BOR, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int i = 0; i < n; i++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request);
#else
    (void)n;
#endif
}

static void groups(int n)
{
    MPI_Comm half, inter;
    int is_low = rank < 2;
    MPI_Comm_split(MPI_COMM_WORLD, is_low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_low ? 2 : 0, 5, &inter);
    for (int i = 0; i < n; i++) {
        int own_root = rank == 1 ? MPI_ROOT : MPI_PROC_NULL;
        MPI_Bcast(sent, LARGE, MPI_CHAR, is_low ? own_root : 1, inter);
        MPI_Allreduce(sent, taken, SMALL, MPI_CHAR, MPI_BOR, inter);
        MPI_Alltoall(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, inter);
        MPI_Gather(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, is_low ? own_root : 1, inter);
        MPI_Allgather(sent, SMALL, MPI_CHAR, taken, SMALL, MPI_CHAR, inter);
        MPI_Barrier(inter);
        MPI_Allreduce(sent, taken, SMALL, MPI_CHAR, MPI_BOR, half);
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

static const struct {
    const char *name;
    void (*run)(int n);
} kinds[] = {
    {"mixed", mixed},
    {"persistent", persistent},
    {"partitioned", partitioned},
    {"neighbours", neighbours},
    {"neighbours in halves", neighbours_in_halves},
    {"persistent collectives", persistent_collectives},
    {"groups", groups},
};

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    right = (rank + 1) % size, left = (rank + size - 1) % size;
    sent = calloc(8, LARGE), taken = calloc(8, LARGE);
    for (size_t i = 0; argc > 2 && i < sizeof kinds / sizeof *kinds; i++)
        if (is(argv[2], kinds[i].name))
            kinds[i].run(atoi(argv[1]));
    MPI_Finalize();
    return 0;
}
