/* The Slurm plugin, spank_mpicoloc.so. It preloads libmpicoloc-auto.so into the tasks of jobs that are to be measured.
   At the end of a job it starts commands that remove the job's files in shared memory and sign its profiles. It sets
   the variables of service levels in the tasks of jobs that have one. The plugin must never end or fail a job: every
   function returns ESPANK_SUCCESS, except the one that checks the user's own option. */
#define _GNU_SOURCE
#include "spank/environment.h"
#include "spank/notes.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <slurm/spank.h>
#include <spawn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- settings of the site (plugstack.conf) and the user (--mpicoloc) ---- */

enum { N_NAME = 256, N_TRACE = 16, N_PARTITIONS = 16 };

enum wish { NOT_SAID, OFF, ON };

/* All paths are absolute. An empty path means that none was given. */
struct site_settings {
    int is_default; /* 1: measure every job whose user has not said off */
    int is_always_recorded;
    int n_partitions;
    char partitions[N_PARTITIONS][N_NAME];
    char library[PATH_MAX]; /* libmpicoloc-auto.so */
    char out[PATH_MAX];     /* may contain %j, %s, %u and %% */
    char key_file[PATH_MAX];
    char spool[PATH_MAX];  /* folder for signed profiles */
    char levels[PATH_MAX]; /* folder of service-level variables, by user and job name */
    char shm[PATH_MAX];    /* in-memory folder of the node, where jobs with a private /dev/shm meet */
    char python[PATH_MAX];
};

struct user_settings {
    enum wish wish;
    char trace[N_TRACE]; /* number of events, or all */
};

static struct site_settings site;
static struct user_settings user;

static const char *copy(char *to, size_t size, const char *value)
{
    size_t n = strlen(value);
    if (n == 0 || n >= size)
        return "is empty or too long";
    memcpy(to, value, n + 1);
    return NULL;
}

static const char *take_path(char to[PATH_MAX], const char *value)
{
    return value[0] == '/' ? copy(to, PATH_MAX, value) : "is not an absolute path";
}

/* Expand one element of `out`. If step is NULL, the result is a pattern of glob(3) for all steps. */
static int put(char *text, size_t size, const char *out, uint32_t job, const char *step, unsigned uid)
{
    const char *escape = !step && strchr("*?[\\", *out) ? "\\" : "";
    switch (*out == '%' ? out[1] : 'c') {
    case 'c':
        return snprintf(text, size, "%s%c", escape, *out);
    case 'j':
        return snprintf(text, size, "%u", job);
    case 's':
        return snprintf(text, size, "%s", step ? step : "*");
    case 'u':
        return snprintf(text, size, "%u", uid);
    case '%':
        return snprintf(text, size, "%%");
    default:
        return -1;
    }
}

/* Expand `out` for a job and step. If step is NULL, the result is a pattern of glob(3) for all steps. Returns 0 if the
   result does not fit or `out` has an unknown %. */
static int expand(char *text, size_t size, const char *out, uint32_t job, const char *step, unsigned uid)
{
    size_t used = 0;
    for (; *out; out += *out == '%' ? 2 : 1) {
        int n = put(text + used, size - used, out, job, step, uid);
        if (n < 0 || (used += (size_t)n) >= size)
            return 0;
    }
    return used > 0;
}

static const char *take_pattern(char to[PATH_MAX], const char *value)
{
    char given[PATH_MAX], path[PATH_MAX];
    const char *wrong = take_path(given, value);
    if (!wrong && !expand(path, sizeof path, given, 0, "0", 0))
        wrong = "is not a pattern of %j, %s, %u and %%";
    return wrong ? wrong : take_path(to, value);
}

static const char *take_partition(struct site_settings *site, const char *value)
{
    if (site->n_partitions == N_PARTITIONS)
        return "is one partition too many";
    const char *wrong = copy(site->partitions[site->n_partitions], N_NAME, value);
    site->n_partitions += !wrong;
    return wrong;
}

static const char *take_default(struct site_settings *site, const char *value)
{
    int is_on = strcmp(value, "on") == 0;
    if (!is_on && strcmp(value, "off") != 0)
        return "is neither on nor off";
    site->is_default = is_on;
    return NULL;
}

static const char *take_record(struct site_settings *site, const char *value)
{
    site->is_always_recorded = strcmp(value, "always") == 0;
    return site->is_always_recorded || strcmp(value, "measured") == 0 ? NULL : "is neither always nor measured";
}

/* Read one word of plugstack.conf. Returns NULL or the error; a wrong word is ignored. */
static const char *take_word(struct site_settings *site, const char *word)
{
    const struct {
        const char *name;
        char *to;
    } paths[] = {
        {"library=", site->library}, {"key_file=", site->key_file}, {"spool=", site->spool},
        {"levels=", site->levels},   {"python=", site->python},     {"shm=", site->shm},
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strncmp(word, paths[i].name, strlen(paths[i].name)) == 0)
            return take_path(paths[i].to, word + strlen(paths[i].name));
    if (strncmp(word, "out=", 4) == 0)
        return take_pattern(site->out, word + 4);
    if (strncmp(word, "partition=", 10) == 0)
        return take_partition(site, word + 10);
    if (strncmp(word, "default=", 8) == 0)
        return take_default(site, word + 8);
    if (strncmp(word, "record=", 7) == 0)
        return take_record(site, word + 7);
    return "is none of default=, partition=, record=, library=, out=, key_file=, spool=, levels=, python=, shm=";
}

static int is_count(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n > 0 && n < 10 && text[n] == '\0';
}

/* Read the value of --mpicoloc (NULL: none). Returns NULL or the error. */
static const char *take_option(struct user_settings *user, const char *value)
{
    if (value && strcmp(value, "off") == 0) {
        user->wish = OFF;
        return NULL;
    }
    if (value && strncmp(value, "trace=", 6) == 0) {
        if (!is_count(value + 6) && strcmp(value + 6, "all") != 0)
            return "trace= takes a number of events, or all";
        snprintf(user->trace, sizeof user->trace, "%.15s", value + 6);
    } else if (value && *value && strcmp(value, "on") != 0 && strcmp(value, "(null)") != 0) {
        /* Slurm passes "(null)" to the steps of a batch job that gave the option without a value */
        return "give on, off, trace=N or trace=all";
    }
    user->wish = ON;
    return NULL;
}

/* 1 if a job in this partition is measured. partition NULL: unknown. */
static int is_partition_wanted(const struct site_settings *site, const struct user_settings *user,
                               const char *partition)
{
    if (user->wish != NOT_SAID)
        return user->wish == ON;
    for (int i = 0; partition && i < site->n_partitions; i++)
        if (strcmp(site->partitions[i], partition) == 0)
            return 1;
    return site->is_default;
}

/* 1 if `out` gives each step its own file. */
static int names_steps(const char *out)
{
    char one[PATH_MAX], other[PATH_MAX];
    return expand(one, sizeof one, out, 0, "0", 0) && expand(other, sizeof other, out, 0, "1", 0) &&
           strcmp(one, other) != 0;
}

/* The first name in Slurm's list of nodes: n[2-4,7],m -> n2. It is truncated if it does not fit. */
static void take_first_node(char *name, size_t size, const char *list)
{
    size_t n = 0;
    int is_inside = 0, is_over = 0; /* position of `list`: inside brackets; after the first number in brackets */
    for (; *list && (is_inside || *list != ','); list++) {
        if (*list == '[' || *list == ']')
            is_inside = *list == '[', is_over = 0;
        else if (is_inside && (*list == '-' || *list == ','))
            is_over = 1;
        else if (!is_over && n + 1 < size)
            name[n++] = *list;
    }
    name[n] = '\0';
}

/* ---- commands that are started at the end of a step or job ---- */

/* Tests set a shorter limit. */
#ifndef CLOSING_LIMIT_S
#define CLOSING_LIMIT_S 20
#endif

enum { NAP_MS = 10, N_SAID = 4096, N_READS = 16 };

/* The start of a command's output, as much of it as fits. The rest is read and dropped. */
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
            /* The command has closed its output, and will end a moment later. */
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
    /* Do not wait any longer, because a process that hangs in a file system does not end even after SIGKILL. */
    is_over(pid, 1, said, &status);
    return -1;
}

/* Start a command in a new process group, so that its children can be killed too. */
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

/* Wait for `pid` for at most CLOSING_LIMIT_S, then kill its process group. Returns the exit code; -1 if there was
   none. */
static int wait_for_command(pid_t pid)
{
    struct said nothing = {.pipe = -1};
    return wait_for(pid, &nothing);
}

/* Run a program with these arguments in a minimal environment, for at most CLOSING_LIMIT_S. Its standard error goes to
   Slurm's log, line by line. Returns the exit code; -1 if there was none. */
static int run_command(char *const arguments[])
{
    /* Limit NumPy to one thread: a thread per processor would count against the limits of the process that opens a
       profile. */
    char *environment[6] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "OPENBLAS_NUM_THREADS=1"};
    char **more = environment + 3, conf[PATH_MAX + 16], shm[PATH_MAX + 32];
    const char *told = getenv("SLURM_CONF");
    struct said said = {.n = 0};
    int ends[2], code = -1;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    said.pipe = ends[0];
    if (told && snprintf(conf, sizeof conf, "SLURM_CONF=%s", told) < (int)sizeof conf)
        *more++ = conf;
    if (site.shm[0] && snprintf(shm, sizeof shm, "MPICOLOC_SHM_DIR=%s", site.shm) < (int)sizeof shm)
        *more++ = shm;
    int failed = spawn(&pid, arguments, environment, ends[1]);
    close(ends[1]);
    if (!failed)
        code = wait_for(pid, &said);
    listen_to(&said, 0);
    close(ends[0]);
    tell(&said);
    return code;
}

/* ---- functions that Slurm calls ---- */

SPANK_PLUGIN(mpicoloc, 1)

static const char SHARED_MEMORY[] = "/dev/shm";

/* Note of this process's step, if this node closes the step. */
static struct mn_note note;

static int option_given(int value, const char *text, int is_remote)
{
    (void)value;
    const char *wrong = take_option(&user, text);
    if (!wrong)
        return ESPANK_SUCCESS;
    slurm_error("--mpicoloc=%s: %s", text, wrong);
    return is_remote ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

static struct spank_option option = {
    .name = "mpicoloc",
    .arginfo = "[on|off|trace=N|trace=all]",
    .usage = "measure how much other jobs slow this one down",
    .has_arg = 2,
    .val = 0,
    .cb = option_given,
};

static void path_beside_plugin(char path[PATH_MAX], const char *name)
{
    Dl_info own;
    if (!dladdr((void *)&site, &own) || !own.dli_fname)
        return;
    const char *slash = strrchr(own.dli_fname, '/');
    int n_folder = slash ? (int)(slash - own.dli_fname) : 0;
    if (n_folder && snprintf(path, PATH_MAX, "%.*s/%s", n_folder, own.dli_fname, name) >= PATH_MAX)
        path[0] = '\0';
}

/* Find the Python interpreter whose path `mpicoloc slurm build` has written. */
static void find_python(void)
{
    char path[PATH_MAX] = "";
    path_beside_plugin(path, "python");
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    if (fgets(site.python, sizeof site.python, file))
        site.python[strcspn(site.python, "\r\n")] = '\0';
    fclose(file);
}

static int is_signing(void)
{
    return site.out[0] && site.key_file[0] && site.spool[0];
}

static void read_site(int n_words, char *words[], int is_quiet)
{
    for (int i = 0; i < n_words; i++) {
        const char *wrong = take_word(&site, words[i]);
        if (wrong && !is_quiet)
            slurm_error("mpicoloc: plugstack.conf: %s %s: left out", words[i], wrong);
    }
    if (is_signing() && !names_steps(site.out)) {
        site.key_file[0] = '\0';
        if (!is_quiet)
            slurm_error("mpicoloc: plugstack.conf: out=%s has no %%s, so all steps would write the same profile: "
                        "key_file= is left out",
                        site.out);
    }
    if (site.is_always_recorded && !is_signing() && !is_quiet)
        slurm_error("mpicoloc: plugstack.conf: record=always needs out=, key_file= and spool=: no step has a record");
    if (!site.library[0])
        path_beside_plugin(site.library, "libmpicoloc-auto.so");
    if (!site.python[0])
        find_python();
}

/* Check that any user may create files in the folder, and remove only their own. Returns NULL or the error. */
static const char *look_at_shm(int fd, int is_new)
{
    struct stat status;
    if (is_new && fchmod(fd, 01777) != 0)
        return strerror(errno);
    if (fstat(fd, &status) != 0)
        return strerror(errno);
    if (status.st_uid != 0)
        return "it is not owned by root";
    return (status.st_mode & 01007) == 01007 ? NULL : "its mode is not 1777";
}

/* Make the folder, if needed, and check it. Also check the parent folder: a user who may write there could replace this
   folder. */
static void make_shm(void)
{
    int is_new = mkdir(site.shm, 0700) == 0;
    int fd = open(site.shm, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const char *wrong = fd < 0 ? strerror(errno) : look_at_shm(fd, is_new);
    struct stat above;
    if (!wrong && (fstatat(fd, "..", &above, 0) != 0 || above.st_uid != 0 || (above.st_mode & 0022)))
        wrong = "users other than root may write in the folder above";
    if (fd >= 0)
        close(fd);
    if (!wrong)
        return;
    slurm_error("mpicoloc: plugstack.conf: shm=%s: %s: left out", site.shm, wrong);
    site.shm[0] = '\0';
}

int slurm_spank_init(spank_t spank, int n_words, char *words[])
{
    spank_context_t context = spank_context();
    int is_users = context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
    read_site(n_words, words, is_users);
    if (is_users || context == S_CTX_REMOTE)
        spank_option_register(spank, &option);
    if (context == S_CTX_REMOTE && site.shm[0])
        make_shm();
    return ESPANK_SUCCESS;
}

/* Get the step's name. Returns 1 if a user started the step. */
static int name_of_step(char *text, size_t size, uint32_t step)
{
    static const uint32_t batch = 0xfffffffb, interactive = 0xfffffffa, first_special = 0xfffffff0;
    int is_script = step == batch || step == interactive;
    if (is_script)
        snprintf(text, size, "%s", step == batch ? "batch" : "interactive");
    else
        snprintf(text, size, "%u", step);
    return is_script || step < first_special;
}

/* 1 for the step in which mpirun starts its daemons on other nodes. The ranks of this step belong to the script's
   profile. */
static int is_daemon_of_mpirun(spank_t spank)
{
    static const char *const names[] = {"orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy"};
    int n_arguments = 0;
    char **arguments = NULL;
    if (spank_get_item(spank, S_JOB_ARGV, &n_arguments, &arguments) || n_arguments < 1)
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(basename(arguments[0]), names[i]) == 0)
            return 1;
    return 0;
}

static void set_out(spank_t spank)
{
    uint32_t job = 0, step = 0;
    uid_t uid = 0;
    char name[16], path[PATH_MAX];
    if (!site.out[0] || spank_get_item(spank, S_JOB_ID, &job) || spank_get_item(spank, S_JOB_STEPID, &step) ||
        spank_get_item(spank, S_JOB_UID, &uid))
        return;
    name_of_step(name, sizeof name, step);
    if (expand(path, sizeof path, site.out, job, name, uid))
        mt_set(spank, "OUT", path);
    else
        slurm_error("mpicoloc: job %u: plugstack.conf: out=%s is too long", job, site.out);
}

static int is_wanted(spank_t spank)
{
    char partition[N_NAME] = "";
    spank_err_t found = spank_getenv(spank, "SLURM_JOB_PARTITION", partition, sizeof partition);
    return is_partition_wanted(&site, &user, found == ESPANK_SUCCESS ? partition : NULL);
}

int slurm_spank_task_init(spank_t spank, int n_words, char *words[])
{
    (void)n_words, (void)words;
    int is_daemon = is_daemon_of_mpirun(spank);
    if (!is_daemon)
        mt_forget(spank), ml_forget(spank);
    if (site.levels[0])
        ml_set(spank, site.levels);
    if (site.shm[0])
        mt_set(spank, "SHM_DIR", site.shm);
    if (!is_wanted(spank))
        return ESPANK_SUCCESS;
    /* Check the library first: if it cannot be loaded, the loader prints an error in every program of the job. */
    if (access(site.library, R_OK) != 0) {
        slurm_error("mpicoloc: %s cannot be read: the job runs unmeasured; run `mpicoloc slurm build`", site.library);
        return ESPANK_SUCCESS;
    }
    mt_preload(spank, site.library);
    if (!is_daemon)
        set_out(spank);
    if (user.trace[0])
        mt_set(spank, "TRACE", user.trace);
    return ESPANK_SUCCESS;
}

/* Run `mpicoloc slurm VERB JOB --uid UID` with the arguments in `rest`. */
static void call_mpicoloc(spank_t spank, const char *verb, char *rest[], size_t n_rest)
{
    uint32_t job = 0;
    uid_t uid = 0;
    char job_text[16], uid_text[16];
    char *arguments[24] = {site.python, "-P",         "-m",     "mpicoloc", "-q",
                           "slurm",     (char *)verb, job_text, "--uid",    uid_text};
    if (!site.python[0] || spank_get_item(spank, S_JOB_ID, &job) || spank_get_item(spank, S_JOB_UID, &uid))
        return;
    snprintf(job_text, sizeof job_text, "%u", job);
    snprintf(uid_text, sizeof uid_text, "%u", (unsigned)uid);
    for (size_t i = 0; i < n_rest; i++)
        arguments[10 + i] = rest[i];
    int code = run_command(arguments);
    if (code != 0)
        slurm_error("mpicoloc: job %u: `mpicoloc slurm %s` ended with %d", job, verb, code);
}

/* 1 if this node closes the step, which only the step's first node does. Steps of mpirun's daemons are not closed. */
static int is_closed_here(spank_t spank)
{
    uint32_t node = 1;
    return is_signing() && (site.is_always_recorded || is_wanted(spank)) &&
           spank_get_item(spank, S_JOB_NODEID, &node) == ESPANK_SUCCESS && node == 0 && !is_daemon_of_mpirun(spank);
}

static void write_note(void)
{
    int failed = mn_write(site.spool, &note);
    if (failed)
        slurm_error("mpicoloc: job %u: no note of step %s in %s: %s", note.job, note.step, site.spool,
                    strerror(failed));
}

/* Called as root when the tasks of a step are about to begin. */
int slurm_spank_task_post_fork(spank_t spank, int n_words, char *words[])
{
    uint32_t step = 0, n_nodes = 0;
    uint16_t n_cpus = 0;
    uid_t uid = 0;
    (void)n_words, (void)words;
    if (note.begun.tv_sec || !is_closed_here(spank) || spank_get_item(spank, S_JOB_ID, &note.job) ||
        spank_get_item(spank, S_JOB_STEPID, &step) || spank_get_item(spank, S_JOB_UID, &uid) ||
        spank_get_item(spank, S_JOB_NNODES, &n_nodes) || spank_get_item(spank, S_JOB_NCPUS, &n_cpus) ||
        !name_of_step(note.step, sizeof note.step, step))
        return ESPANK_SUCCESS;
    note.uid = uid, note.n_nodes = n_nodes ? n_nodes : 1 /* Slurm says 0 for a script */, note.n_cpus = n_cpus;
    clock_gettime(CLOCK_REALTIME, &note.begun);
    write_note();
    return ESPANK_SUCCESS;
}

/* Run `mpicoloc slurm close` for the step that ends now; step NULL: for the job, which has ended. */
static void close_job(spank_t spank, char *step)
{
    char ended[32];
    snprintf(ended, sizeof ended, "%lld.%03ld", (long long)note.ended.tv_sec, note.ended.tv_nsec / 1000000);
    char *rest[] = {"--out",    site.out, "--key-file", site.key_file, "--spool",
                    site.spool, "--step", step,         "--ended",     ended};
    call_mpicoloc(spank, "close", rest, sizeof rest / sizeof *rest - (step ? 0 : 4));
}

/* Close the step here, not in the epilog, because Slurm accepts an AdminComment only while the job runs. */
int slurm_spank_task_exit(spank_t spank, int n_words, char *words[])
{
    static uint32_t n_ended;
    uint32_t n_local = 0;
    (void)n_words, (void)words;
    n_ended++;
    if (!note.begun.tv_sec || spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &n_local) || n_ended != n_local)
        return ESPANK_SUCCESS;
    clock_gettime(CLOCK_REALTIME, &note.ended);
    write_note();
    close_job(spank, note.step);
    return ESPANK_SUCCESS;
}

/* Whether this is the job's first node, which closes the job. If Slurm does not say which node is first, every node
   closes the job, which is harmless. */
static int is_first_node(void)
{
    char first[N_NAME];
    const char *own = getenv("SLURMD_NODENAME"), *all = getenv("SLURM_NODELIST");
    if (!own || !all)
        return 1;
    take_first_node(first, sizeof first, all);
    return strcmp(own, first) == 0;
}

/* 1 if there are profiles, notes of steps, or the mark of a job without a script. A separate process searches, because
   the search may take long or hang: the user may have filled the folder, and the file system may not answer. */
static int has_left(uint32_t job, uid_t uid)
{
    char pattern[2 * PATH_MAX];
    if (!expand(pattern, sizeof pattern, site.out, job, NULL, uid))
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        glob_t found;
        setpgid(0, 0);
        _exit(!mn_has(site.spool, job) && glob(pattern, GLOB_NOSORT, NULL, &found) != 0);
    }
    int code = pid > 0 ? wait_for_command(pid) : -1;
    if (code < 0)
        slurm_error("mpicoloc: job %u: the search for %s failed or took over %d s: nothing is signed", job, pattern,
                    CLOSING_LIMIT_S);
    return code == 0;
}

/* 1 if the file is a board, which belongs to the node rather than to the job. */
static int is_board(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && strcmp(end, ".board") == 0;
}

static int has_files(uid_t uid)
{
    struct stat status;
    int found = 0;
    DIR *folder = opendir(site.shm[0] ? site.shm : SHARED_MEMORY);
    for (struct dirent *entry; !found && folder && (entry = readdir(folder));)
        found = strncmp(entry->d_name, "mpicoloc.", 9) == 0 && !is_board(entry->d_name) &&
                fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_uid == uid;
    if (folder)
        closedir(folder);
    return found;
}

int slurm_spank_job_epilog(spank_t spank, int n_words, char *words[])
{
    uint32_t job = 0;
    uid_t uid = 0;
    read_site(n_words, words, 1); /* Slurm does not call slurm_spank_init for a prolog or epilog */
    if (spank_get_item(spank, S_JOB_UID, &uid) || spank_get_item(spank, S_JOB_ID, &job))
        return ESPANK_SUCCESS;
    /* Look for files in memory first, because these files are removed when the profile has been written. */
    int is_in_memory = has_files(uid);
    /* Close steps that were killed before they could be closed, or that ended while slurmctld was down, and jobs
       without a script. */
    if (is_signing() && is_first_node() && (is_in_memory || has_left(job, uid)))
        close_job(spank, NULL);
    if (is_in_memory)
        call_mpicoloc(spank, "clean", NULL, 0);
    return ESPANK_SUCCESS;
}
