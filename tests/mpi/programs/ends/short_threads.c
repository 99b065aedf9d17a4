/* Threads that call MPI and end: argv[1] one after the other, then argv[2] at once. */
#include "../ranks.h"
#include <pthread.h>

enum { N_CALLS = 5, N_MOST = 64 };
static pthread_barrier_t all;

static void *run(void *wait)
{
    int value = 1, sum = 0;
    long total = 0;
    for (int i = 0; i < N_CALLS; i++) {
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF);
        total += sum;
        if (wait != NULL)
            pthread_barrier_wait(&all); /* none ends before all have begun */
    }
    return (void *)total;
}

static long collect(pthread_t thread)
{
    void *total;
    pthread_join(thread, &total);
    return (long)total;
}

int main(int argc, char **argv)
{
    int provided, n_row = argc > 2 ? atoi(argv[1]) : 0, n_once = argc > 2 ? atoi(argv[2]) : 0;
    long total = 0;
    pthread_t threads[N_MOST];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    find_place();
    for (int i = 0; i < n_row; i++) {
        pthread_create(&threads[0], NULL, run, NULL);
        total += collect(threads[0]);
    }
    pthread_barrier_init(&all, NULL, (unsigned)n_once);
    for (int i = 0; i < n_once; i++)
        pthread_create(&threads[i], NULL, run, &all);
    for (int i = 0; i < n_once; i++)
        total += collect(threads[i]);
    say("multiple %d, total %ld", provided == MPI_THREAD_MULTIPLE, total);
    MPI_Finalize();
    return 0;
}
