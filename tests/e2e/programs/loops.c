/* Computes in loops for some seconds, with two threads, signals every millisecond, and children that are forked; calls
   MPI only to begin and to end. Its results are printed: nobody may change them. */
#include "../../mpi/programs/counted/hot.h"

#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 2048, N_ROUNDS = 1200, CHILD_EVERY = 300 };

static volatile sig_atomic_t n_signals;
static double first[N], second[N];

static void smooth(double *from, double *to, int n)
{
    for (int i = 1; i < n - 1; i++)
        to[i] = from[i] + 0.25 * (from[i - 1] - 2.0 * from[i] + from[i + 1]);
}

static void on_alarm(int signal)
{
    (void)signal;
    n_signals += scramble((uint64_t)n_signals, 20) != 1;
}

static void *work(void *data)
{
    uint64_t *sum = data;
    for (int i = 0; i < 6 * N_ROUNDS; i++)
        *sum = scramble(*sum, 100000);
    return NULL;
}

static int child_agrees(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(scramble(7, 1000) == scramble(scramble(7, 400), 600) ? 0 : 1);
    while (waitpid(pid, &status, 0) < 0)
        ;
    return status == 0;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    uint64_t sum = 1, other = 2;
    int n_wrong = 0;
    struct itimerval often = {{0, 1000}, {0, 1000}};
    MPI_Init(&argc, &argv);
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int i = 0; i < N; i++)
        first[i] = (double)(scramble((uint64_t)i, 3) % 1000);
    pthread_create(&thread, NULL, work, &other);
    for (int i = 0; i < N_ROUNDS; i++) {
        sum = scramble(sum, 200000);
        for (int j = 0; j < 400; j++) {
            smooth(first, second, N);
            smooth(second, first, N);
        }
        n_wrong += i % CHILD_EVERY == 0 && !child_agrees();
    }
    pthread_join(thread, NULL);
    printf("sums %llu %llu field %.17g wrong %d signals %d\n", (unsigned long long)sum, (unsigned long long)other,
           first[N / 2], n_wrong, n_signals > 0);
    MPI_Finalize();
    return n_wrong;
}
