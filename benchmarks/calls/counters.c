/* What it costs to count events over a whole run, without an MPI: prints name and microseconds, a pair for each. */
#define _GNU_SOURCE
#include "common/counters/pmu.h"
#include "common/proc.h"
#include "guest/hooks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_ENDS = 3000 };

int mc_gate_install(mc_segment *segment)
{
    segment->gate.signal = 0;
    return MC_OK;
}

static void *nothing(void *unused)
{
    return unused;
}

static void make_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
}

static void make_child(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
}

static int there[2], back[2];

static void *answer(void *unused)
{
    char byte;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
        ;
    return unused;
}

/* On one processor: two switches of threads. */
static void switch_twice(void)
{
    char byte = 0;
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
        abort();
}

static void print(const char *name, void (*step)(void), int n)
{
    uint64_t begin = mc_now_ns();
    for (int i = 0; i < n; i++)
        step();
    printf("%s %.3f ", name, (double)(mc_now_ns() - begin) * 1e-3 / n);
}

static void stop(void)
{
    mc_stop(MC_RANK_FINALIZING);
}

/* Until its input ends, somebody on the machine counts. */
static int hold(void)
{
    char byte;
    mc_pmu_start();
    while (read(0, &byte, 1) == 1)
        ;
    return 0;
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return hold();
    mc_identity identity = {"cost", "cost", "none", 0, 1, 0, 1, 1, MC_MODE_PRELOAD};
    pthread_t thread;
    if (mc_start(&identity) != MC_OK || pipe(there) != 0 || pipe(back) != 0)
        return 1;
    print("start", mc_pmu_start, 1);
    pthread_create(&thread, NULL, answer, NULL);
    print("thread", make_thread, N_ENDS);
    print("fork", make_child, N_ENDS / 10);
    print("switch", switch_twice, 10 * N_ENDS);
    close(there[1]);
    pthread_join(thread, NULL);
    print("stop", stop, 1);
    __atomic_store_n(&mc_recording, 1, __ATOMIC_RELEASE);
    mc_forget();
    return 0;
}
