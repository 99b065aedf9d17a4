/* Children that pass the parent's hot loops: forked, after vfork, and programs that take their place; while another
   thread goes on computing. */
#define _GNU_SOURCE
#include "hot.h"

#include <mpi.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_CHILDREN = 60 };

extern char **environ;

static void *work(void *data)
{
    uint64_t *sum = data;
    for (int i = 0; i < 6000; i++)
        *sum = scramble(*sum, 40000);
    return NULL;
}

static int ended_with(pid_t pid)
{
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int child_code(uint64_t seed)
{
    return (int)(scramble(seed, 200000) % 200);
}

static int make_child(const char *program, int i)
{
    char seed[32];
    char *arguments[] = {(char *)program, "child", seed, NULL};
    pid_t pid = -1;
    snprintf(seed, sizeof seed, "%d", i);
    if (i % 3 == 0 && (pid = fork()) == 0)
        _exit(child_code((uint64_t)i));
    if (i % 3 == 1 && (pid = vfork()) == 0) {
        execv(program, arguments);
        _exit(254);
    }
    if (i % 3 == 2 && posix_spawn(&pid, program, NULL, NULL, arguments, environ) != 0)
        pid = -1;
    return ended_with(pid);
}

int main(int argc, char **argv)
{
    uint64_t other = 2, mine = 1;
    int n_wrong = 0;
    pthread_t thread;
    if (argc == 3 && strcmp(argv[1], "child") == 0)
        return child_code((uint64_t)atoi(argv[2]));
    MPI_Init(&argc, &argv);
    pthread_create(&thread, NULL, work, &other);
    for (int i = 0; i < N_CHILDREN; i++) {
        mine = scramble(mine, 1000000);
        n_wrong += make_child(argv[0], i) != child_code((uint64_t)i);
    }
    pthread_join(thread, NULL);
    printf("sums %llu %llu wrong %d\n", (unsigned long long)mine, (unsigned long long)other, n_wrong);
    MPI_Finalize();
    return n_wrong != 0;
}
