/* Timers' handlers that pass the same hot loops that they interrupt, on a stack of their own, in two threads. What is
   printed does not depend on when they come. */
#include "hot.h"

#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static volatile sig_atomic_t n_wrong, n_alarms, n_profs;
static uint64_t wanted;
static char stack[1 << 16];

static void on_timer(int signal, siginfo_t *info, void *context)
{
    double x = 1.0;
    (void)info, (void)context;
    for (int i = 0; i < 50; i++)
        x = x * 1.000001 + 0.5;
    n_wrong += scramble(0x1234567u, 60) != wanted || x < 1.0;
    if (signal == SIGALRM)
        n_alarms++;
    else
        n_profs++;
}

static void handle(int signal)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_timer;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaction(signal, &action, NULL);
}

static void *work(void *data)
{
    uint64_t *sum = data;
    double field[512];
    for (int i = 0; i < 512; i++)
        field[i] = (double)(i % 17);
    for (int i = 0; i < 12000; i++) {
        *sum = scramble(*sum, 20000);
        for (int j = 1; j < 511; j++)
            field[j] = 0.25 * field[j - 1] + 0.5 * field[j] + 0.25 * field[j + 1];
    }
    *sum ^= (uint64_t)(field[255] * 1e15);
    return NULL;
}

int main(int argc, char **argv)
{
    struct itimerval often = {{0, 700}, {0, 700}}, frequent = {{0, 1100}, {0, 1100}};
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    uint64_t mine = 1, other = 2;
    pthread_t thread;
    wanted = scramble(0x1234567u, 60);
    MPI_Init(&argc, &argv);
    sigaltstack(&own, NULL);
    handle(SIGALRM);
    handle(SIGPROF);
    setitimer(ITIMER_REAL, &often, NULL);
    setitimer(ITIMER_PROF, &frequent, NULL);
    pthread_create(&thread, NULL, work, &other);
    work(&mine);
    pthread_join(thread, NULL);
    printf("sums %llu %llu wrong %d alarms %d profs %d\n", (unsigned long long)mine, (unsigned long long)other,
           (int)n_wrong, n_alarms > 100, n_profs > 100);
    MPI_Finalize();
    return n_wrong != 0;
}
