/* Start the keeper from the node's first rank, and wait for the profile that it writes. */
#define _GNU_SOURCE
#include "common/proc.h"
#include "guest/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const uint64_t WAIT_PROFILE_NS = 30000000000u, WAIT_SECOND_NS = 10000000000u;

/* A waiting rank sleeps for 1/NAP_PART of the time that it has waited, within these limits. */
enum { NAP_PART = 32 };
static const uint64_t NAP_MIN_NS = 1000000u, NAP_MAX_NS = 50000000u;

mc_keeper_id mc_the_keeper;

static int own_folder(char *folder, size_t size)
{
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)mc_keeper_start, &info) || !info.dli_fname)
        return MC_E_GONE;
    char *full = realpath(info.dli_fname, NULL);
    char *slash = full ? strrchr(full, '/') : NULL;
    int n = slash ? snprintf(folder, size, "%.*s", (int)(slash - full), full) : -1;
    free(full);
    return n > 0 && (size_t)n < size ? MC_OK : MC_E_GONE;
}

static int first_line(char *line, size_t size, const char *path)
{
    FILE *file = fopen(path, "re");
    int ok = file && fgets(line, (int)size, file);
    if (file)
        fclose(file);
    if (ok)
        line[strcspn(line, "\r\n")] = '\0';
    return ok && *line;
}

/* <prefix>/lib/python3.X/site-packages/... -> <prefix>/bin/python3 */
static int prefix_python(char *python, size_t size, const char *folder)
{
    const char *lib = strstr(folder, "/lib/python3"), *next = lib;
    while (next && (next = strstr(next + 1, "/lib/python3")))
        lib = next;
    if (!lib)
        return 0;
    int n = snprintf(python, size, "%.*s/bin/python3", (int)(lib - folder), folder);
    return n > 0 && (size_t)n < size && access(python, X_OK) == 0;
}

static void find_python(char *python, size_t size, const char *folder)
{
    char path[MC_PATH_LEN + 16];
    const char *told = getenv("MPICOLOC_PYTHON");
    snprintf(path, sizeof path, "%s/python", folder);
    if (told && *told)
        snprintf(python, size, "%s", told);
    else if (!first_line(python, size, path) && !prefix_python(python, size, folder))
        snprintf(python, size, "python3");
}

static int is_preload(const char *entry)
{
    return strncmp(entry, "LD_PRELOAD=", 11) == 0;
}

/* The environment without LD_PRELOAD: the keeper is not an MPI program. */
static char **plain_environment(void)
{
    size_t n = 0, n_kept = 0;
    while (environ[n])
        n++;
    char **copy = calloc(n + 1, sizeof *copy);
    for (size_t i = 0; copy && i < n; i++)
        if (!is_preload(environ[i]))
            copy[n_kept++] = environ[i];
    return copy;
}

/* Read the keeper's process ID, which the keeper's parent has written into a pipe. */
static void read_pid(int fd)
{
    char text[32] = "";
    mc_proc_stat stat;
    ssize_t n;
    do
        n = read(fd, text, sizeof text - 1);
    while (n < 0 && errno == EINTR);
    int pid = n > 0 ? atoi(text) : 0;
    mc_the_keeper = (mc_keeper_id){pid, pid > 0 && mc_proc_read_stat(&stat, pid) == MC_OK ? stat.start_ticks : 0};
}

static int spawn(pid_t *pid, const char *program, char **arguments, int fd_out)
{
    char **environment = plain_environment();
    posix_spawnattr_t attributes;
    sigset_t all, none;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (fd_out >= 0)
        posix_spawn_file_actions_adddup2(&actions, fd_out, STDOUT_FILENO);
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int error = environment ? posix_spawn(pid, program, &actions, &attributes, arguments, environment) : ENOMEM;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    return error;
}

/* Run the keeper's program to its end, without our library. Returns the exit code, or -1 if there is none. */
static int run_to_end(const char *program, char **arguments)
{
    pid_t pid;
    int fds[2], status = 0, has_pipe = pipe2(fds, O_CLOEXEC) == 0;
    int error = spawn(&pid, program, arguments, has_pipe ? fds[1] : -1);
    if (has_pipe) {
        close(fds[1]);
        if (!error)
            read_pid(fds[0]);
        close(fds[0]);
    }
    if (error)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) /* the application has reaped our child, or ignores SIGCHLD */
            return MC_KEEPER_ONLY;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int mc_keeper_start(const char *key, uint64_t *n_filters)
{
    char folder[MC_PATH_LEN] = "?", program[MC_PATH_LEN + 32], python[MC_PATH_LEN];
    int status = own_folder(folder, sizeof folder);
    if (status == MC_OK) {
        snprintf(program, sizeof program, "%s/mpicoloc-keeper", folder);
        find_python(python, sizeof python, folder);
        char *arguments[] = {program, (char *)key, python, NULL};
        /* This program forks the keeper and ends soon, so the application's wait() never returns one of our
           children. */
        int code = run_to_end(program, arguments);
        status = code == 0 || code == MC_KEEPER_ONLY ? MC_OK : MC_E_GONE;
        *n_filters = code == 0 ? mc_proc_n_filters(0) : 0;
    }
    if (status != MC_OK)
        fprintf(stderr,
                "mpicoloc: cannot start %s/mpicoloc-keeper, so no profile will be written: reinstall mpicoloc\n",
                folder);
    return status;
}

/* A zombie counts as gone: in a container there may be no process that reaps it. */
static int keeper_gone(void)
{
    mc_proc_stat now;
    int pid = (int)mc_the_keeper.pid;
    uint64_t ticks = mc_the_keeper.start_ticks;
    if (pid <= 0)
        return 0;
    if (kill(pid, 0) != 0)
        return errno == ESRCH;
    return mc_proc_read_stat(&now, pid) == MC_OK &&
           (now.state == 'Z' || now.state == 'X' || (ticks && now.start_ticks != ticks));
}

/* The state of the profile is read from the mapping of our own segment. This mapping stays valid if the job's files are
   deleted or a system-call filter forbids opening them. */
static uint64_t profile_now(void)
{
    return __atomic_load_n(&mc_the_segment->profile, __ATOMIC_ACQUIRE);
}

static void nap(uint64_t waited_ns)
{
    uint64_t nap_ns = waited_ns / NAP_PART;
    nap_ns = nap_ns < NAP_MIN_NS ? NAP_MIN_NS : nap_ns > NAP_MAX_NS ? NAP_MAX_NS : nap_ns;
    nanosleep(&(struct timespec){0, (long)nap_ns}, NULL);
}

/* If the keeper was killed, the node's first rank starts another keeper, and the other ranks wait for that one. */
static uint64_t await_profile(const char *key, int is_node_first)
{
    int has_coordinator = mc_the_segment->mode == MC_MODE_WRAP, n_started = 0;
    uint64_t t0 = mc_now_ns(), t = t0, t_gone = 0, n_filters;
    while (profile_now() == MC_PROFILE_NONE && t < t0 + WAIT_PROFILE_NS) {
        if (!has_coordinator && !t_gone && keeper_gone() && profile_now() == MC_PROFILE_NONE) {
            if (!is_node_first || n_started++)
                t_gone = t;
            if (is_node_first && (t_gone || mc_keeper_start(key, &n_filters) != MC_OK))
                break;
        }
        if (t_gone && t > t_gone + WAIT_SECOND_NS)
            break;
        nap(t - t0);
        t = mc_now_ns();
    }
    return profile_now();
}

void mc_keeper_wait_profile(const char *key, int is_node_first, int is_first)
{
    if (!mc_the_segment)
        return;
    if (is_node_first && mc_the_keeper.pid > 0)
        kill((pid_t)mc_the_keeper.pid, SIGURG);
    uint64_t profile = await_profile(key, is_node_first);
    if (!is_first || profile == MC_PROFILE_WRITTEN)
        return;
    mc_reason_given();
    if (profile == MC_PROFILE_FAILED)
        fprintf(stderr, "mpicoloc: %.*s\n", MC_COMPLAINT_LEN - 1, mc_the_segment->complaint);
    else if (keeper_gone())
        fprintf(stderr, "mpicoloc: no profile was written: the keeper was killed (process %d)\n",
                (int)mc_the_keeper.pid);
    else
        fprintf(stderr, "mpicoloc: gave up waiting for the profile after %d s: %.*s\n",
                (int)(WAIT_PROFILE_NS / 1000000000u), MC_PATH_LEN - 1, mc_the_segment->out_path);
}
