/* Start the keeper from the node's first rank, and wait for the profile that it has written. */
#define _GNU_SOURCE
#include "hooks.h"
#include "proc.h"

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

static const uint64_t WAIT_PROFILE_NS = 30000000000u, WAIT_KEEPER_NS = 5000000000u;

/* While a rank waits it sleeps this part of the time since, between these limits. */
enum { NAP_PART = 32 };
static const uint64_t NAP_MIN_NS = 1000000u, NAP_MAX_NS = 50000000u;

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

/* The environment without LD_PRELOAD: the keeper is no MPI program. */
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

/* Run the keeper's program to its end, without our library. Its exit code; -1: there was none. */
static int run_to_end(const char *program, char **arguments)
{
    char **environment = plain_environment();
    posix_spawnattr_t attributes;
    sigset_t all, none;
    pid_t pid;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    int error = environment ? posix_spawn(&pid, program, NULL, &attributes, arguments, environment) : ENOMEM;
    posix_spawnattr_destroy(&attributes);
    free(environment);
    if (error)
        return -1;
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) /* the application reaped it, or asked that nothing be kept */
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
        /* What is run here forks the keeper and ends soon, so the application never sees a child of ours in wait(). */
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

static int keeper_gone(const mc_node *node, uint64_t waited_ns)
{
    int pid = __atomic_load_n(&node->keeper_pid, __ATOMIC_ACQUIRE);
    return pid ? kill(pid, 0) != 0 && errno == ESRCH : waited_ns > WAIT_KEEPER_NS;
}

/* What the profile writer had to say, from the file that the keeper gave it as stderr. */
static void print_complaint(const char *key)
{
    char path[MC_PATH_LEN], line[2 * MC_PATH_LEN], last[2 * MC_PATH_LEN] = "no reason given";
    int fd = mc_shm_path(path, sizeof path, key, "log") == MC_OK ? mc_shm_open(path, O_RDONLY, 1) : -1;
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    while (file && fgets(line, sizeof line, file))
        if (line[strspn(line, " \r\n")])
            memcpy(last, line, sizeof last);
    if (file)
        fclose(file);
    last[strcspn(last, "\r\n")] = '\0';
    const char *own = "mpicoloc: "; /* a line of ours is a sentence already */
    int is_own = strncmp(last, own, strlen(own)) == 0;
    fprintf(stderr, "%s%s\n", is_own ? "" : "mpicoloc: no profile was written: ", last);
}

/* 0: it is not there yet. */
static int kick_keeper(const mc_node *node)
{
    int pid = __atomic_load_n(&node->keeper_pid, __ATOMIC_ACQUIRE);
    return pid > 0 && kill(pid, SIGURG) == 0;
}

static mc_node *map_node(const char *key)
{
    char path[MC_PATH_LEN];
    void *map = NULL;
    if (mc_shm_path(path, sizeof path, key, "node") != MC_OK || mc_shm_map(&map, path, sizeof(mc_node), 0) != MC_OK)
        return NULL;
    /* Seen by its maker's ftruncate already, before it has memory: on a full /dev/shm a look
       into it would be SIGBUS. */
    if (mc_shm_reserve(path, 0, offsetof(mc_node, shutters)) == MC_OK)
        return map;
    mc_shm_unmap(map, sizeof(mc_node));
    return NULL;
}

static void nap(uint64_t waited_ns)
{
    uint64_t nap_ns = waited_ns / NAP_PART;
    nap_ns = nap_ns < NAP_MIN_NS ? NAP_MIN_NS : nap_ns > NAP_MAX_NS ? NAP_MAX_NS : nap_ns;
    nanosleep(&(struct timespec){0, (long)nap_ns}, NULL);
}

void mc_keeper_wait_profile(const char *key, int is_node_first, int is_first)
{
    mc_node *node = NULL;
    int is_kicked = !is_node_first;
    uint64_t t0 = mc_now_ns(), waited_ns = 0, profile = MC_PROFILE_NONE;
    while (waited_ns < WAIT_PROFILE_NS && profile == MC_PROFILE_NONE) {
        node = node ? node : map_node(key);
        is_kicked = is_kicked || (node && kick_keeper(node));
        profile = node ? __atomic_load_n(&node->profile, __ATOMIC_ACQUIRE) : MC_PROFILE_NONE;
        if (profile == MC_PROFILE_NONE && (node ? keeper_gone(node, waited_ns) : waited_ns > WAIT_KEEPER_NS))
            break;
        if (profile == MC_PROFILE_NONE)
            nap(waited_ns);
        waited_ns = mc_now_ns() - t0;
    }
    if (is_first && profile != MC_PROFILE_WRITTEN)
        print_complaint(key);
    mc_shm_unmap(node, sizeof(mc_node));
}
