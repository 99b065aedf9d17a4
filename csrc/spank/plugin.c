/* The Slurm plugin, spank_mpicoloc.so. In the tasks of jobs to be measured it preloads libmpicoloc-auto.so. When a
   job is over it has the job's files in shared memory removed and its profiles signed. Tasks of jobs that have a
   service level get its variables. Nothing here may end or fail
   a job: every function but the check of the user's own option returns ESPANK_SUCCESS. */
#define _GNU_SOURCE
#include "spank/command.h"
#include "spank/levels.h"
#include "spank/notes.h"
#include "spank/settings.h"
#include "spank/task.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

SPANK_PLUGIN(mpicoloc, 1)

static const char SHARED_MEMORY[] = "/dev/shm";

static struct ms_site site;
static struct ms_user user;
/* Note of the step in this process, if this node closes it. */
static struct mn_note note;

static int option_given(int value, const char *text, int is_remote)
{
    (void)value;
    const char *wrong = ms_take_option(&user, text);
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

/* Find the interpreter that `mpicoloc slurm build` noted. */
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
        const char *wrong = ms_take_word(&site, words[i]);
        if (wrong && !is_quiet)
            slurm_error("mpicoloc: plugstack.conf: %s %s: left out", words[i], wrong);
    }
    if (is_signing() && !ms_names_steps(site.out)) {
        site.key_file[0] = '\0';
        if (!is_quiet)
            slurm_error("mpicoloc: plugstack.conf: out=%s has no %%s, and one file cannot be the profile of each step: "
                        "key_file= is left out",
                        site.out);
    }
    if (!site.library[0])
        path_beside_plugin(site.library, "libmpicoloc-auto.so");
    if (!site.python[0])
        find_python();
}

int slurm_spank_init(spank_t spank, int n_words, char *words[])
{
    spank_context_t context = spank_context();
    int is_users = context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
    read_site(n_words, words, is_users);
    if (is_users || context == S_CTX_REMOTE)
        spank_option_register(spank, &option);
    return ESPANK_SUCCESS;
}

/* Returns 1 if a user started the step. */
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

/* 1: the step in which mpirun starts its daemons on other nodes. Its ranks belong to the script's job. */
static int is_daemon_of_mpirun(spank_t spank)
{
    static const char *const names[] = {"orted", "prted", "hydra_pmi_proxy", "hydra_bstrap_proxy"};
    int n_arguments = 0;
    char **arguments = NULL;
    if (spank_get_item(spank, S_JOB_ARGV, &n_arguments, &arguments) || n_arguments < 1)
        return 0;
    const char *slash = strrchr(arguments[0], '/'), *base = slash ? slash + 1 : arguments[0];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(base, names[i]) == 0)
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
    if (ms_expand(path, sizeof path, site.out, job, name, uid))
        mt_set(spank, "OUT", path);
    else
        slurm_error("mpicoloc: job %u: plugstack.conf: out=%s is too long", job, site.out);
}

static int is_wanted(spank_t spank)
{
    char partition[MS_N_NAME] = "";
    spank_err_t found = spank_getenv(spank, "SLURM_JOB_PARTITION", partition, sizeof partition);
    return ms_is_wanted(&site, &user, found == ESPANK_SUCCESS ? partition : NULL);
}

int slurm_spank_task_init(spank_t spank, int n_words, char *words[])
{
    (void)n_words, (void)words;
    int is_daemon = is_daemon_of_mpirun(spank);
    if (!is_daemon)
        mt_forget(spank), ml_forget(spank);
    if (site.levels[0])
        ml_set(spank, site.levels);
    if (!is_wanted(spank))
        return ESPANK_SUCCESS;
    /* If the library cannot be loaded, the loader complains in every program of the job. */
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

/* Run `mpicoloc slurm VERB JOB --uid UID` and the rest. */
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
    int code = mr_run(arguments);
    if (code != 0)
        slurm_error("mpicoloc: job %u: `mpicoloc slurm %s` ended with %d", job, verb, code);
}

/* The first node of a step closes it. Daemons of mpirun are no step of their own. */
static int is_closed_here(spank_t spank)
{
    uint32_t node = 1;
    return is_signing() && is_wanted(spank) && spank_get_item(spank, S_JOB_NODEID, &node) == ESPANK_SUCCESS &&
           node == 0 && !is_daemon_of_mpirun(spank);
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

/* step: the one that ends now; NULL: the job has ended. */
static void close_job(spank_t spank, char *step)
{
    char ended[32];
    snprintf(ended, sizeof ended, "%lld.%03ld", (long long)note.ended.tv_sec, note.ended.tv_nsec / 1000000);
    char *rest[] = {"--out",    site.out, "--key-file", site.key_file, "--spool",
                    site.spool, "--step", step,         "--ended",     ended};
    call_mpicoloc(spank, "close", rest, sizeof rest / sizeof *rest - (step ? 0 : 4));
}

/* Slurm accepts an AdminComment only while the job runs, so this is not left to the epilog. */
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

/* One node does it for all. If Slurm does not say which is first, each node does it, which is harmless. */
static int is_first_node(void)
{
    char first[MS_N_NAME];
    const char *own = getenv("SLURMD_NODENAME"), *all = getenv("SLURM_NODELIST");
    if (!own || !all)
        return 1;
    ms_first_node(first, sizeof first, all);
    return strcmp(own, first) == 0;
}

/* 1: there are profiles, notes of steps, or the mark of a job without a script. Look in a process of its own: the
   user may have filled the folder, and file systems hang. */
static int has_left(uint32_t job, uid_t uid)
{
    char pattern[2 * PATH_MAX];
    if (!ms_expand(pattern, sizeof pattern, site.out, job, NULL, uid))
        return 0;
    pid_t pid = fork();
    if (pid == 0) {
        glob_t found;
        setpgid(0, 0);
        _exit(!mn_has(site.spool, job) && glob(pattern, GLOB_NOSORT, NULL, &found) != 0);
    }
    int code = pid > 0 ? mr_wait(pid) : -1;
    if (code < 0)
        slurm_error("mpicoloc: job %u: %s cannot be looked for within %d s: nothing is signed", job, pattern,
                    CLOSING_LIMIT_S);
    return code == 0;
}

/* The board belongs to the node. */
static int is_board(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && strcmp(end, ".board") == 0;
}

static int has_files(uid_t uid)
{
    struct stat status;
    int found = 0;
    DIR *folder = opendir(SHARED_MEMORY);
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
    read_site(n_words, words, 1); /* Slurm does not call slurm_spank_init for scripts of a job */
    if (spank_get_item(spank, S_JOB_UID, &uid) || spank_get_item(spank, S_JOB_ID, &job))
        return ESPANK_SUCCESS;
    /* In this order: files in memory are removed when the profile has been written. */
    int is_in_memory = has_files(uid);
    /* For steps that were killed before they could be closed, or that ended while slurmctld was away, and for jobs
       without a script. */
    if (is_signing() && is_first_node() && (is_in_memory || has_left(job, uid)))
        close_job(spank, NULL);
    if (is_in_memory)
        call_mpicoloc(spank, "clean", NULL, 0);
    return ESPANK_SUCCESS;
}
