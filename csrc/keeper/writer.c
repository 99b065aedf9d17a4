#define _GNU_SOURCE
#include "common/proc.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { WAIT_POLL_MS = 5 };

static const uint64_t WRITER_NS = MC_WRITER_S * 1000000000ull;

static int is_of_mpi(const char *entry)
{
    static const char *const prefixes[] = {"LD_PRELOAD=", "OMPI_", "PMI",   "MPI_",  "MPIR_",  "MPIEXEC_", "HYDI_",
                                           "HYDRA",       "PRTE_", "OPAL_", "ORTE_", "I_MPI_", "MV2_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

void mc_writer_clean_environment(void)
{
    size_t n_kept = 0;
    for (size_t i = 0; environ[i]; i++)
        if (!is_of_mpi(environ[i]))
            environ[n_kept++] = environ[i];
    environ[n_kept] = NULL;
    /* NumPy's BLAS library would otherwise start a thread for each processor of the application. */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
}

static void be_idle(void)
{
    const struct sched_param param = {0};
    /* Give the writer a session of its own. Linux shares processors among sessions first (autogroup): in the keeper's
       session the writer would get as much time as all ranks together, and compete with the agent. */
    setsid();
    int fd = open("/proc/self/autogroup", O_WRONLY);
    if (fd >= 0) {
        ssize_t n = write(fd, "19", 2);
        (void)n;
        close(fd);
    }
    sched_setscheduler(0, SCHED_IDLE, &param);
}

/* Find mpicoloc/job/quick_start.py from the path of the keeper's program. A keeper that was made by `mpicoloc build`
   has no such file. */
static int find_quick_start(char *path, size_t size)
{
    char program[MC_PATH_LEN];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    program[n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(program, '/');
        if (!slash)
            return 0;
        *slash = '\0';
    }
    int length = snprintf(path, size, "%s/job/quick_start.py", program);
    return length > 0 && (size_t)length < size && access(path, R_OK) == 0;
}

pid_t mc_writer_start(const char *python, const char *module, const char *key, const char *option, int is_idle)
{
    char path[MC_PATH_LEN], quick[MC_PATH_LEN];
    /* -P: files in the job's folder must not shadow library modules. */
    char *by_module[] = {(char *)python, "-P", "-m", (char *)module, (char *)key, (char *)option, NULL};
    char *by_quick_start[] = {(char *)python, "-S", "-P", quick, (char *)module, (char *)key, (char *)option, NULL};
    char **arguments = find_quick_start(quick, sizeof quick) ? by_quick_start : by_module;
    int has_path = mc_shm_path(path, sizeof path, key, "log") == MC_OK;
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    /* This code runs between fork and exec in a process with threads, so it makes only async-signal-safe calls. */
    int fd = has_path && !is_idle ? mc_shm_open(path, O_WRONLY | O_CREAT, 1) : -1;
    if (fd >= 0 && ftruncate(fd, 0) == 0)
        dup2(fd, STDERR_FILENO);
    if (is_idle)
        be_idle();
    execvp(python, arguments);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", python, strerror(errno));
    _exit(127);
}

int mc_writer_run(const char *python, const char *module, const char *key, const char *option)
{
    int status;
    pid_t pid = mc_writer_start(python, module, key, option, 0);
    if (pid < 0)
        return 127;
    uint64_t end = mc_now_ns() + WRITER_NS;
    while (mc_now_ns() < end) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        if (ended < 0 && errno != EINTR)
            return 127;
        poll(NULL, 0, WAIT_POLL_MS);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return MC_WRITER_LATE;
}
