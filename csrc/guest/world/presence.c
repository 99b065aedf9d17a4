#define _GNU_SOURCE
#include "guest/world/presence.h"

#include "common/mpicoloc.h"
#include "common/options.h"
#include "common/proc.h"
#include "guest/world/launch.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_GROUP = 96, N_JOB = 48 };

static const uint64_t STEP_NS = 2000000, STEP_NS_MAX = 100000000;
static const uint64_t WAIT_NS = 5000000000; /* some MPI libraries let a rank return from MPI_Init a little early */

static char group[N_GROUP], own_path[MC_PATH_LEN], session_path[MC_PATH_LEN];
static int n_present; /* number of ranks on this node; 0 until all have been seen */

/* Names of session files. They are used in turn, because other processes may be one round ahead or one round behind. */
static const char *const times[] = {"in0", "in1", "in2"};
enum { N_TIMES = sizeof times / sizeof *times };
static int n_times, session_pid;

/* Number of ranks that the launcher started on this node; 0 if unknown. */
static int n_started(void)
{
#ifdef OPEN_MPI /* a job of the other MPI family may have started this job, which then inherits that job's variables */
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE"};
#else
    static const char *const names[] = {"MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"};
#endif
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = getenv(names[i]);
        if (text)
            return atoi(text);
    }
    return 0;
}

/* Set a name shared by this job's ranks on this node. The launcher's process ID is not unique: one daemon may serve
   several jobs. */
static void name_group(int launcher)
{
    const char *job = getenv("PMIX_NAMESPACE");
    size_t n = job ? strlen(job) : 0; /* names of jobs differ in their last characters */
    snprintf(group, sizeof group, "%d-%d-%s", (int)geteuid(), launcher, n ? job + (n > N_JOB ? n - N_JOB : 0) : "");
    for (char *at = group; *at; at++)
        if (!isalnum((unsigned char)*at))
            *at = '-';
}

/* 1 if ranks of this node must look for each other's files and are able to. */
static int uses_presence_files(void)
{
    return n_started() >= 2 && mc_launcher_pid() != 0 && !mc_is_wrapped() && !mc_is_nested() &&
           access(mc_option_text(MC_OPT_SHM_DIR), W_OK | X_OK) == 0;
}

static void leave_file(char *path, const char *what)
{
    char name[32];
    path[0] = '\0';
    if (!uses_presence_files())
        return;
    name_group(mc_launcher_pid());
    snprintf(name, sizeof name, "%d.%s", (int)getpid(), what);
    int fd = mc_shm_path(path, MC_PATH_LEN, group, name) == MC_OK ? mc_shm_open(path, O_WRONLY | O_CREAT, 1) : -1;
    if (fd >= 0)
        close(fd);
    else
        path[0] = '\0';
}

static void take_file(char *path)
{
    if (path[0] != '\0')
        unlink(path);
    path[0] = '\0';
}

void mc_presence_tell(void)
{
    leave_file(own_path, "here");
}

typedef struct found_ranks {
    const char *what;
    int n, n_before; /* number of ranks found; number of those ranks that have a lower process ID */
} found_ranks;

/* Checks the owner, because any user can create files in the folder. */
static int is_own_file(const char *middle, const char *what)
{
    char path[MC_PATH_LEN], name[32];
    struct stat file;
    snprintf(name, sizeof name, "%.16s.%s", middle, what);
    return mc_shm_path(path, sizeof path, group, name) == MC_OK && lstat(path, &file) == 0 && S_ISREG(file.st_mode) &&
           file.st_uid == geteuid();
}

static void count(void *data, const char *middle)
{
    found_ranks *found = data;
    int pid = atoi(middle);
    if (pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH)) /* the rank was killed in MPI_Init */
        return;
    if (!is_own_file(middle, found->what))
        return;
    found->n++;
    found->n_before += pid < (int)getpid();
}

static found_ranks look(const char *what)
{
    char prefix[N_GROUP + 16], suffix[16];
    found_ranks found = {what, 0, 0};
    snprintf(prefix, sizeof prefix, "mpicoloc.%s.", group);
    snprintf(suffix, sizeof suffix, ".%s", what);
    mc_dir_scan(mc_option_text(MC_OPT_SHM_DIR), prefix, suffix, count, &found);
    return found;
}

/* Sleep between polls. The pause grows with the time waited, because each poll of each rank reads the whole folder. */
static void rest(uint64_t begin, uint64_t end)
{
    int never = 0;
    uint64_t now = mc_now_ns(), step_ns = (now - begin) / 4;
    step_ns = step_ns < STEP_NS ? STEP_NS : step_ns > STEP_NS_MAX ? STEP_NS_MAX : step_ns;
    mc_sleep_until(now + step_ns < end ? now + step_ns : end, &never);
}

static int say_missing(const found_ranks *found, int n_wanted)
{
    if (own_path[0] == '\0')
        fprintf(stderr,
                "mpicoloc: switched off, the application goes on without a profile: a rank cannot make its file in the "
                "shared-memory folder, unlike %d other ranks\n",
                found->n);
    else if (found->n_before == 0)
        fprintf(stderr,
                "mpicoloc: switched off, the application goes on without a profile: it is preloaded in %d of the %d "
                "ranks of this node; set LD_PRELOAD for all of them\n",
                found->n, n_wanted);
    return 0;
}

int mc_is_everywhere(void)
{
    int n_wanted = n_started();
    uint64_t begin = mc_now_ns(), end = begin + WAIT_NS;
    if (!uses_presence_files())
        return 1;
    /* If this rank could not make its file, the others report it as missing, so this rank must not wait for them in
       MPI. */
    int n_others = own_path[0] == '\0' ? 1 : n_wanted;
    found_ranks found = look("here");
    while (found.n < n_others && mc_now_ns() < end) {
        rest(begin, end);
        found_ranks now = look("here");
        found = now.n > found.n ? now : found; /* a rank that gives up removes its file */
    }
    if (own_path[0] == '\0' ? found.n > 0 : found.n < n_wanted)
        return say_missing(&found, n_wanted);
    n_present = found.n;
    return 1;
}

int mc_is_launchers_world(int n_ranks)
{
    return n_ranks == 1 || n_present >= n_ranks;
}

void mc_presence_end(void)
{
    take_file(own_path);
}

void mc_presence_begin_sessions(void)
{
    uint64_t begin = mc_now_ns(), end = begin + MC_ROUND_WAIT_MS * 1000000ull;
    session_pid = (int)getpid();
    leave_file(session_path, times[n_times % N_TIMES]);
    while (n_times > 0 && session_path[0] && look(times[(n_times - 1) % N_TIMES]).n > 0 && mc_now_ns() < end)
        rest(begin, end);
}

__attribute__((destructor)) void mc_presence_end_sessions(void)
{
    if (session_path[0] == '\0' || session_pid != (int)getpid()) /* in a forked child the file is the parent's */
        return;
    n_times++;
    take_file(session_path);
}
