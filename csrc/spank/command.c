#define _GNU_SOURCE
#include "spank/command.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <slurm/spank.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NAP_MS = 10, N_SAID = 4096, N_READS = 16 };

/* A command's output as far as there is room; the rest is read and dropped. */
struct said {
    int pipe;
    size_t n;
    char text[N_SAID];
};

static void listen_to(struct said *said, int limit_ms)
{
    char spare[512];
    struct pollfd ready = {.fd = said->pipe, .events = POLLIN};
    for (int i = 0; i < N_READS && poll(&ready, 1, limit_ms) > 0; i++) {
        size_t room = sizeof said->text - 1 - said->n;
        ssize_t n = read(said->pipe, room ? said->text + said->n : spare, room ? room : sizeof spare);
        if (n <= 0) {
            /* Its end follows a moment later. */
            nanosleep(&(struct timespec){0, limit_ms * 1000000L}, NULL);
            return;
        }
        said->n += room ? (size_t)n : 0;
        limit_ms = 0;
    }
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static int is_over(pid_t pid, int limit_s, struct said *said, int *status)
{
    for (int64_t end_ms = now_ms() + limit_s * 1000; now_ms() < end_ms;) {
        listen_to(said, NAP_MS);
        if (waitpid(pid, status, WNOHANG) != 0)
            return 1;
    }
    return 0;
}

static int wait_for(pid_t pid, struct said *said)
{
    int status = -1;
    if (is_over(pid, CLOSING_LIMIT_S, said, &status))
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    kill(-pid, SIGKILL);
    /* A process that hangs in a file system does not even die now. */
    is_over(pid, 1, said, &status);
    return -1;
}

/* In a process group of its own. */
static int spawn(pid_t *pid, char *const arguments[], char *const environment[], int to)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    if (posix_spawn_file_actions_init(&files) != 0)
        return -1;
    int failed = posix_spawnattr_init(&how);
    if (!failed) {
        failed = posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP) || posix_spawnattr_setpgroup(&how, 0) ||
                 posix_spawn_file_actions_adddup2(&files, to, STDERR_FILENO) ||
                 posix_spawn(pid, arguments[0], &files, &how, arguments, environment);
        posix_spawnattr_destroy(&how);
    }
    posix_spawn_file_actions_destroy(&files);
    return failed ? -1 : 0;
}

static void tell(struct said *said)
{
    char *rest = NULL;
    for (size_t i = 0; i < said->n; i++)
        if ((unsigned char)said->text[i] < ' ' && said->text[i] != '\n')
            said->text[i] = '?';
    said->text[said->n] = '\0';
    for (char *line = strtok_r(said->text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        slurm_error("%s", line);
}

int mr_wait(pid_t pid)
{
    struct said nothing = {.pipe = -1};
    return wait_for(pid, &nothing);
}

int mr_run(char *const arguments[])
{
    /* NumPy's threads, one for each processor, would count against the limits of the process that opens a profile. */
    static char *const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
                                        "OPENBLAS_NUM_THREADS=1", NULL};
    char conf[PATH_MAX + 16];
    const char *told = getenv("SLURM_CONF");
    char *with_conf[] = {environment[0], environment[1], environment[2], conf, NULL};
    struct said said = {.n = 0};
    int ends[2], code = -1;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    said.pipe = ends[0];
    int is_told = told && snprintf(conf, sizeof conf, "SLURM_CONF=%s", told) < (int)sizeof conf;
    int failed = spawn(&pid, arguments, is_told ? with_conf : environment, ends[1]);
    close(ends[1]);
    if (!failed)
        code = wait_for(pid, &said);
    listen_to(&said, 0);
    close(ends[0]);
    tell(&said);
    return code;
}
