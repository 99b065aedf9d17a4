/* Threads that complete what other threads began, while communicators come and go and time is named: 8 threads, any
   number of ranks. Each begins receives and sends, and hands its requests to the next thread, which waits for them.
   The argument: how often, 8 times without. */
#include "../ranks.h"
#include "mpicoloc_app.h"

#include <pthread.h>

enum { N_THREADS = 8, N_EACH = 4 };

typedef struct hand {
    MPI_Request requests[2 * N_EACH];
    int in[N_EACH], out[N_EACH];
} hand;

static hand hands[N_THREADS];
static pthread_barrier_t barrier;
static MPI_Comm comms[N_THREADS];
static int n_rounds = 8;
static long sums[N_THREADS];

static void post(int i_thread, int i_round)
{
    hand *mine = &hands[i_thread];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int i = 0; i < N_EACH; i++) {
        mine->out[i] = i_round + i;
        MPI_Irecv(&mine->in[i], 1, MPI_INT, previous, i, comms[i_thread], &mine->requests[i]);
        MPI_Isend(&mine->out[i], 1, MPI_INT, next, i, comms[i_thread], &mine->requests[N_EACH + i]);
    }
}

static void complete(int i_thread, int i_round)
{
    hand *other = &hands[(i_thread + 1) % N_THREADS];
    int i_done, n_done = 0, is_done = 0, indices[2 * N_EACH];
    MPI_Status statuses[2 * N_EACH];
    if (i_round % 4 == 0)
        MPI_Waitall(2 * N_EACH, other->requests, statuses);
    else if (i_round % 4 == 1)
        for (int i = 0; i < 2 * N_EACH; i++)
            MPI_Waitany(2 * N_EACH, other->requests, &i_done, &statuses[0]);
    else if (i_round % 4 == 2)
        for (int i = 0; i < 2 * N_EACH; i += n_done)
            MPI_Waitsome(2 * N_EACH, other->requests, &n_done, indices, statuses);
    else
        while (!is_done)
            MPI_Testall(2 * N_EACH, other->requests, &is_done, statuses);
    for (int i = 0; i < N_EACH; i++)
        sums[i_thread] += other->in[i];
}

/* Calls on the thread's own communicator, whose handle others may get again after it is freed. */
static void come_and_go(int i_thread)
{
    MPI_Comm copy;
    int flag, mine = rank, all = 0;
    MPI_Comm_dup(comms[i_thread], &copy);
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, copy);
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, copy, &flag, MPI_STATUS_IGNORE);
    MPI_Comm_free(&copy);
    sums[i_thread] += all;
}

static void *work(void *argument)
{
    int i_thread = (int)(long)argument;
    for (int i = 0; i < n_rounds; i++) {
        mpicoloc_begin(i % 2 ? "odd" : "even");
        post(i_thread, i);
        pthread_barrier_wait(&barrier);
        come_and_go(i_thread);
        complete(i_thread, i);
        pthread_barrier_wait(&barrier);
        mpicoloc_end(i % 2 ? "odd" : "even");
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    long total = 0;
    pthread_t threads[N_THREADS];
    if (argc > 1)
        n_rounds = atoi(argv[1]);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    find_place();
    if (provided < MPI_THREAD_MULTIPLE)
        MPI_Abort(MPI_COMM_WORLD, 1);
    pthread_barrier_init(&barrier, NULL, N_THREADS);
    for (int i = 0; i < N_THREADS; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (long i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < N_THREADS; i++) {
        MPI_Comm_free(&comms[i]);
        total += sums[i];
    }
    printf("rank %d of %d: %ld\n", rank, size, total);
    MPI_Finalize();
    return 0;
}
