/* Time of small MPI operations, in short bursts on a machine that others use as well.

       micro N_BURSTS BURST_US [KIND...]   every kind in turns, N_BURSTS times; rank 0 prints a line for each kind:
                                           name, 5 % quantile and median over the bursts, in ns per operation

   The low quantile is what a burst takes when nobody else has a processor of the job meanwhile. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_WINDOW = 64, N_PENDING = 8, N_TRIALS = 5, TAG_NEVER = 99, TAG_BACK = 98 };

#define MAX_WALL_NS 4e9 /* on a machine so busy that the bursts take that long, fewer of them must do */

static int rank, size, other;
static long long boxes[2 * N_WINDOW];
static MPI_Request requests[2 * N_WINDOW];
static MPI_Win window, line_window;
static volatile int sink;
static long *line; /* in memory that both ranks share */
static long n_turns;

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* A kind of operation, of which run_NAME makes n. */
#define KIND(name, ...) \
    static void run_##name(long n) \
    { \
        for (long i = 0; i < n; i++) { \
            __VA_ARGS__; \
        } \
    }
#define SEND MPI_Send(boxes, 8, MPI_BYTE, other, 0, MPI_COMM_WORLD)
#define RECV MPI_Recv(boxes, 8, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)

static inline void exchange(int peer)
{
    for (int k = 0; k < N_WINDOW; k++)
        MPI_Irecv(&boxes[k], 8, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[k]);
    for (int k = N_WINDOW; k < 2 * N_WINDOW; k++)
        MPI_Isend(&boxes[k], 8, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &requests[k]);
    MPI_Waitall(2 * N_WINDOW, requests, MPI_STATUSES_IGNORE);
}

KIND(iprobe, int flag; MPI_Iprobe(other, TAG_NEVER, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE))
KIND(pingpong, if (rank == 0) SEND; RECV; if (rank != 0) SEND)
KIND(window, exchange(other))
KIND(self, exchange(rank)) /* without the other processor, whose distance is the noise of the above */
KIND(rank, int mine; MPI_Comm_rank(MPI_COMM_WORLD, &mine); sink = mine)
KIND(test, int flag; MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE))
KIND(testany, int flag, index; MPI_Testany(N_PENDING, requests, &index, &flag, MPI_STATUS_IGNORE))
KIND(flush, MPI_Win_flush(other, window))
KIND(put, MPI_Put(boxes, 8, MPI_BYTE, other, 0, 8, MPI_BYTE, window); MPI_Win_flush(other, window))
KIND(get, MPI_Get(boxes, 8, MPI_BYTE, other, 8, 8, MPI_BYTE, window); MPI_Win_flush(other, window))
KIND(allreduce, MPI_Allreduce(&boxes[0], &boxes[1], 1, MPI_LONG_LONG, MPI_MAX, MPI_COMM_WORLD))

/* No MPI in it: how far apart the two processors are at the moment, which on a virtual machine may change. */
static void run_line(long n)
{
    for (long i = 0; i < n; i++) {
        n_turns += 2;
        if (rank == 0)
            __atomic_store_n(line, n_turns - 1, __ATOMIC_RELEASE);
        while (size > 1 && __atomic_load_n(line, __ATOMIC_ACQUIRE) < n_turns - (rank != 0))
            continue;
        if (rank != 0)
            __atomic_store_n(line, n_turns, __ATOMIC_RELEASE);
    }
}

/* Receives that stay open during the burst, and end after it. */
static void post_pending(void)
{
    for (int k = 0; k < N_PENDING; k++)
        MPI_Irecv(&boxes[k], 8, MPI_BYTE, other, TAG_BACK, MPI_COMM_WORLD, &requests[k]);
}

static void end_pending(void)
{
    MPI_Barrier(MPI_COMM_WORLD); /* the other rank is done testing */
    for (int k = 0; k < N_PENDING; k++)
        MPI_Send(&boxes[N_PENDING + k], 8, MPI_BYTE, other, TAG_BACK, MPI_COMM_WORLD);
    MPI_Waitall(N_PENDING, requests, MPI_STATUSES_IGNORE);
}

typedef struct {
    const char *name;
    void (*run)(long n);
    int pending;
    long n_each; /* operations in a burst */
    double *ns;
} kind;

#define NAMED(name, pending) \
    { \
#name, run_##name, pending, 0, NULL \
    }

static kind kinds[] = {
    NAMED(line, 0), NAMED(rank, 0), NAMED(iprobe, 0), NAMED(test, 1),     NAMED(testany, 1),   NAMED(flush, 0),
    NAMED(put, 0),  NAMED(get, 0),  NAMED(window, 0), NAMED(pingpong, 0), NAMED(allreduce, 0), NAMED(self, 0),
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static double burst(const kind *k, long n)
{
    if (k->pending)
        post_pending();
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = now_ns();
    k->run(n);
    double took = now_ns() - begin;
    if (k->pending)
        end_pending();
    return took;
}

static double best_burst(const kind *k, long n)
{
    double best = burst(k, n);
    for (int i = 1; i < N_TRIALS; i++) {
        double took = burst(k, n);
        best = took < best ? took : best;
    }
    return best;
}

/* As many operations as fill the wanted time; rank 0 decides for both. */
static void calibrate(kind *k, double wanted_ns)
{
    long n = 4;
    int enough = 0;
    while (!enough) {
        double took = best_burst(k, n);
        enough = took > wanted_ns / 4 || n >= 1L << 24;
        if (enough && took > 0)
            n = (long)((double)n * wanted_ns / took) + 1;
        else
            n *= 2;
        MPI_Bcast(&n, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        MPI_Bcast(&enough, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    k->n_each = n;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int wanted(const char *name, int argc, char **argv)
{
    for (int i = 3; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return 1;
    return argc <= 3;
}

static void measure(int argc, char **argv)
{
    int n_bursts = atoi(argv[1]);
    double burst_ns = atof(argv[2]) * 1e3;
    for (int i = 0; i < N_KINDS; i++) {
        kinds[i].ns = calloc((size_t)n_bursts, sizeof(double));
        if (wanted(kinds[i].name, argc, argv))
            calibrate(&kinds[i], burst_ns);
    }
    double deadline = now_ns() + MAX_WALL_NS;
    int i_burst = 0;
    for (int late = 0; i_burst < n_bursts && !late; i_burst++) {
        for (kind *k = kinds; k < kinds + N_KINDS; k++)
            if (k->n_each)
                k->ns[i_burst] = burst(k, k->n_each) / (double)k->n_each;
        late = now_ns() > deadline;
        MPI_Bcast(&late, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    n_bursts = i_burst;
    for (kind *k = kinds; rank == 0 && k < kinds + N_KINDS; k++) {
        qsort(k->ns, (size_t)n_bursts, sizeof(double), ascending);
        if (k->n_each)
            printf("%s %.2f %.2f\n", k->name, k->ns[n_bursts / 20], k->ns[n_bursts / 2]);
        free(k->ns);
    }
}

static void share_line(void)
{
    MPI_Aint n_bytes;
    int unit;
    MPI_Win_allocate_shared(rank == 0 ? 4096 : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &line, &line_window);
    MPI_Win_shared_query(line_window, 0, &n_bytes, &unit, &line);
    if (rank == 0)
        *line = 0;
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    void *base;
    MPI_Init(&argc, &argv);
    if (argc < 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    other = (rank ^ 1) % size;
    MPI_Win_allocate(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    share_line();
    MPI_Win_lock_all(0, window);
    measure(argc, argv);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Win_free(&line_window);
    MPI_Finalize();
    return 0;
}
