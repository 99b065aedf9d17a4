#define _GNU_SOURCE
#include "guest/world/launch.h"

#include "common/mpicoloc.h"
#include "common/proc.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_STEPS = 64, N_COMM = 64, RECORDS_BYTES = (MC_N_NODE_RANKS + 1) * MC_RECORD_LEN };

static const uint64_t ROUND_POLL_NS = 1000000;

static int is_known, is_between, is_nested;
static int i_round, launcher_pid, proxy_pid;

static int env_is_one(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && strcmp(text, "1") == 0;
}

static int begins_with(const char *text, const char *const *prefixes)
{
    for (; *prefixes != NULL; prefixes++)
        if (strncmp(text, *prefixes, strlen(*prefixes)) == 0)
            return 1;
    return 0;
}

/* Compare only the beginning of the name: distributions add suffixes (mpirun.openmpi), and the kernel cuts names to 15
   characters. */
static int is_launcher(const char *name)
{
    static const char *const names[] = {"mpirun", "mpiexec",    "orterun", "orted", "prte",  "hydra_", "pmi_proxy",
                                        "srun",   "slurmstepd", "aprun",   "jsrun", "palsd", "flux-",  NULL};
    return begins_with(name, names);
}

/* Get the name of a process, and return its parent; 0 if the parent is not visible from here. */
static int parent_of(int pid, char *name)
{
    char path[32], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int parent = 0;
    mc_proc_read_text(path, text, sizeof text);
    char *begin = strchr(text, '('), *end = strrchr(text, ')');
    name[0] = '\0';
    if (begin == NULL || end == NULL || sscanf(end + 1, " %*c %d", &parent) != 1)
        return 0;
    snprintf(name, N_COMM, "%.*s", (int)(end - begin - 1), begin + 1);
    return parent;
}

/* 1 if a launcher started this process as a rank, with this library preloaded. */
static int is_rank_of_ours(int pid)
{
    static const char *const ranks[] = {"PMI_RANK=", "PMIX_RANK=", "OMPI_COMM_WORLD_RANK=", NULL};
    char path[32], *entry = NULL;
    size_t size = 0;
    int is_rank = 0, is_ours = 0;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *file = fopen(path, "re");
    while (file != NULL && getdelim(&entry, &size, '\0', file) > 0) {
        is_rank |= begins_with(entry, ranks);
        is_ours |= strncmp(entry, "LD_PRELOAD=", 11) == 0 && strstr(entry, "libmpicoloc-") != NULL;
    }
    free(entry);
    if (file != NULL)
        fclose(file);
    return is_rank && is_ours;
}

/* Walk up the ancestors. `wrap` has noted its process ID, which exec keeps. If there is a launcher between this process
   and `wrap`, it has started another job; shells in between only help to start the application. If the walk does not
   reach `wrap`, for example in a container, trust the environment. */
static void look_up(void)
{
    static const char *const proxies[] = {"hydra_pmi", "pmi_proxy", NULL};
    const char *noted = getenv("MPICOLOC_PID");
    int pid = (int)getpid(), wrap_pid = noted != NULL ? atoi(noted) : 0, is_below = 1;
    char name[N_COMM];
    for (int i = 0; i < N_STEPS && pid > 1 && !is_nested; i++) {
        int parent = parent_of(pid, name);
        if (proxy_pid == 0 && begins_with(name, proxies))
            proxy_pid = pid;
        if (is_launcher(name)) {
            /* Take the topmost launcher, because a rank itself, or its parent, may have the name of a launcher. */
            launcher_pid = pid != (int)getpid() ? pid : 0;
            is_between |= wrap_pid > 0 && is_below;
        } else if (launcher_pid) {
            is_nested = is_rank_of_ours(pid);
        }
        if (pid == wrap_pid)
            is_below = 0;
        pid = parent;
    }
    is_nested |= is_between && env_is_one("MPICOLOC_WRAPPED");
    is_known = 1;
}

int mc_is_wrapped(void)
{
    if (!is_known)
        look_up();
    return env_is_one("MPICOLOC_WRAPPED") && !is_between;
}

int mc_has_coordinator(void)
{
    return mc_is_wrapped() && env_is_one("MPICOLOC_COORDINATOR");
}

int mc_is_nested(void)
{
    if (!is_known)
        look_up();
    return is_nested;
}

int mc_launcher_pid(void)
{
    if (!is_known)
        look_up();
    return proxy_pid ? proxy_pid : launcher_pid;
}

const char *mc_given_key(void)
{
    const char *key = getenv("MPICOLOC_KEY");
    if (key == NULL || key[0] == '\0' || (!mc_is_wrapped() && (mc_is_nested() || env_is_one("MPICOLOC_WRAPPED"))))
        return NULL;
    return key;
}

void mc_next_round(void)
{
    i_round++;
}

static int open_job_file(const char *what, int flags)
{
    const char *key = mc_given_key();
    char path[MC_PATH_LEN];
    if (key == NULL || mc_shm_path(path, sizeof path, key, what) != MC_OK)
        return -1;
    return mc_shm_open(path, flags, 1);
}

static int open_announcement(int flags)
{
    return open_job_file("init", flags);
}

/* Each process has one record in the file, and overwrites it in each round. */
void mc_announce(const char *how)
{
    static off_t place = -1;
    char record[MC_RECORD_LEN + 1];
    int fd = open_announcement(O_WRONLY | O_CREAT | (place < 0 ? O_APPEND : 0));
    if (fd < 0)
        return;
    snprintf(record, sizeof record, "%-*.*s%*d\n", MC_HOW_LEN, MC_HOW_LEN, how, MC_RECORD_LEN - MC_HOW_LEN - 1,
             i_round);
    ssize_t n = 0;
    if (mc_file_may_have(RECORDS_BYTES))
        n = place < 0 ? write(fd, record, MC_RECORD_LEN) : pwrite(fd, record, MC_RECORD_LEN, place);
    if (place < 0 && n == MC_RECORD_LEN)
        place = lseek(fd, 0, SEEK_CUR) - MC_RECORD_LEN;
    close(fd); /* if the disk has no room for a record, the file stays empty, which means MPI_Init */
}

static void make_job_file(const char *what)
{
    int fd = open_job_file(what, O_WRONLY | O_CREAT);
    if (fd >= 0)
        close(fd);
}

void mc_announce_off(void)
{
    make_job_file("off");
}

void mc_announce_trouble(const char *what)
{
    if (mc_has_coordinator())
        make_job_file(what);
}

static int read_record(int fd, int i, char *record)
{
    record[MC_RECORD_LEN - 1] = '\0';
    return pread(fd, record, MC_RECORD_LEN - 1, (off_t)i * MC_RECORD_LEN) == MC_RECORD_LEN - 1;
}

int mc_is_announced(const char *how)
{
    char record[MC_RECORD_LEN];
    int fd = mc_has_coordinator() ? open_announcement(O_RDONLY) : -1, is_said = 0;
    if (fd < 0)
        return 0;
    for (int i = 0; !is_said && read_record(fd, i, record); i++)
        is_said = strncmp(record, how, strlen(how)) == 0 && atoi(record + MC_HOW_LEN) == i_round;
    close(fd);
    return is_said;
}

/* Check records from number *i on. *i stops at the first process that has not begun the round, so earlier records are
   not read again. */
static int has_begun_everywhere(int fd, int *i)
{
    char record[MC_RECORD_LEN];
    for (; read_record(fd, *i, record); ++*i)
        if (atoi(record + MC_HOW_LEN) < i_round)
            return 0;
    return 1;
}

/* MPICH 5 finds the processes of its node by a name that is the same in every round, and does not check whether all
   have left the previous round. A process that begins a round too early would wait forever. */
void mc_await_others(void)
{
    int never = 0, i = 0;
    uint64_t end = mc_now_ns() + MC_ROUND_WAIT_MS * 1000000ull;
    int fd = i_round > 0 ? open_announcement(O_RDONLY) : -1;
    if (fd < 0)
        return;
    while (!has_begun_everywhere(fd, &i) && mc_now_ns() < end)
        mc_sleep_until(mc_now_ns() + ROUND_POLL_NS, &never);
    close(fd);
}
