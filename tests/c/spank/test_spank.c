/* The Slurm plugin's own parts: names of nodes and files, and how it waits for what it starts. */
#define _GNU_SOURCE
#include "../support/check.h"
#include "../support/spank_stand_ins.h"

#include <glob.h>
#include <unistd.h>

/* A file system that hangs. */
static int hanging_glob(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *found)
{
    if (strncmp(pattern, "/hangs/", 7) == 0)
        for (;;)
            pause();
    return glob(pattern, flags, failed, found);
}

#define glob hanging_glob
#include "spank/plugin.c"
#undef glob

static const char *program;

spank_context_t spank_context(void)
{
    return S_CTX_ERROR;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *given)
{
    return spank && given ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

/* Job 12, step 0 of user 1000 on 2 nodes; each step of a test gives the job another number. */
static uint32_t job_number = 12, step_number, node_number, n_tasks = 2;

static uint32_t item_of_job(spank_item_t item)
{
    switch (item) {
    case S_JOB_ID:
        return job_number;
    case S_JOB_STEPID:
        return step_number;
    case S_JOB_NODEID:
        return node_number;
    case S_JOB_NNODES:
        return 2;
    case S_JOB_LOCAL_TASK_COUNT:
        return n_tasks;
    default:
        return 1000;
    }
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
    static char *arguments[] = {NULL, NULL};
    va_list rest;
    (void)spank;
    va_start(rest, item);
    if (item == S_JOB_ARGV) {
        arguments[0] = (char *)program;
        *va_arg(rest, int *) = 1;
        *va_arg(rest, char ***) = arguments;
    } else if (item == S_JOB_NCPUS) {
        *va_arg(rest, uint16_t *) = 4;
    } else {
        *va_arg(rest, uint32_t *) = item_of_job(item);
    }
    va_end(rest);
    return ESPANK_SUCCESS;
}

static void begin_step(uint32_t job, uint32_t step, const char *option_value)
{
    memset(&user, 0, sizeof user);
    job_number = job, step_number = step;
    CHECK(option_given(0, option_value, 1) == ESPANK_SUCCESS);
    CHECK(slurm_spank_task_init(NULL, 0, NULL) == ESPANK_SUCCESS);
}

static int shell(const char *script)
{
    char *arguments[] = {"/bin/sh", "-c", (char *)script, NULL};
    logged[0] = '\0';
    return run_command(arguments);
}

static void test_first_node(void)
{
    static const char *const cases[][2] = {
        {"n1", "n1"}, {"n[2-4,7],m", "n2"}, {"n[007,9]", "n007"}, {"a,b[1-2]", "a"}, {"r[3-4]n[10,12]x,z", "r3n10x"},
        {"", ""},     {"n[", "n"},          {"a-b.c,d", "a-b.c"},
    };
    char name[16];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        take_first_node(name, sizeof name, cases[i][0]);
        CHECK(strcmp(name, cases[i][1]) == 0);
    }
    take_first_node(name, 4, "longer");
    CHECK(strcmp(name, "lon") == 0);
}

static void test_expand(void)
{
    char text[64];
    CHECK(expand(text, sizeof text, "/p[x]/%u%%/%j.%s.h5", 7, "batch", 1000));
    CHECK(strcmp(text, "/p[x]/1000%/7.batch.h5") == 0);
    CHECK(expand(text, sizeof text, "/p[x]*/%j.%s.h5", 7, NULL, 1000));
    CHECK(strcmp(text, "/p\\[x]\\*/7.*.h5") == 0);
    CHECK(!expand(text, sizeof text, "/p/%x", 7, NULL, 1000));
    CHECK(!expand(text, sizeof text, "/p/%", 7, NULL, 1000));
    CHECK(!expand(text, 9, "/p/12345%j", 7, NULL, 1000));
    CHECK(expand(text, 10, "/p/12345%j", 7, NULL, 1000));
}

static const uint32_t batch = 0xfffffffb;

static void begin_site(char library[])
{
    CHECK(clearenv() == 0);
    memset(&site, 0, sizeof site);
    program = "./app";
    CHECK(!take_word(&site, "out=/p/%j.%s.h5"));
    snprintf(site.library, sizeof site.library, "%s", library);
}

static void test_each_job_and_step_has_a_file_of_its_own(char library[])
{
    begin_site(library);
    begin_step(12, batch, "trace=10");
    CHECK(is_now("LD_PRELOAD", library) && is_now("MPICOLOC_OUT", "/p/12.batch.h5"));
    CHECK(is_now("MPICOLOC_TRACE", "10"));
    begin_step(12, 0, "trace=20"); /* of the script */
    CHECK(is_now("MPICOLOC_OUT", "/p/12.0.h5") && is_now("MPICOLOC_TRACE", "20"));
    begin_step(13, batch, "on"); /* submitted by that step */
    CHECK(is_now("MPICOLOC_OUT", "/p/13.batch.h5") && is_now("MPICOLOC_TRACE", NULL));
    program = "/usr/bin/prted";
    begin_step(13, 0, "on");
    CHECK(is_now("MPICOLOC_OUT", "/p/13.batch.h5"));
    program = "./app";
    setenv("MPICOLOC_OUT", "mine.h5", 1);
    begin_step(14, batch, "on");
    CHECK(is_now("MPICOLOC_OUT", "mine.h5") && is_now("LD_PRELOAD", library));
}

static void test_off_leaves_nothing_of_ours(char library[])
{
    char preload[128];
    begin_site(library);
    begin_step(12, batch, "trace=10");
    begin_step(12, 0, "off");
    CHECK(environ && !environ[0]);
    snprintf(preload, sizeof preload, "mine.so:/x/libmpicoloc-mpich.so %s:/x/yours.so", library);
    setenv("LD_PRELOAD", preload, 1);
    setenv("MPICOLOC_OUT", "mine.h5", 1);
    begin_step(12, 1, "off");
    CHECK(is_now("LD_PRELOAD", "mine.so:/x/yours.so") && is_now("MPICOLOC_OUT", "mine.h5"));
    setenv("LD_PRELOAD", "/x/libmpicoloc-mpich.so", 1); /* by the user */
    begin_step(12, 2, "off");
    CHECK(is_now("LD_PRELOAD", "/x/libmpicoloc-mpich.so"));
}

/* The test in Python has marked job 30. */
static void test_a_job_without_a_script_is_looked_at_by_its_mark(char library[], const char *spool)
{
    begin_site(library);
    snprintf(site.spool, sizeof site.spool, "%s", spool);
    CHECK(has_left(30, 1000) && !has_left(3, 1000) && !has_left(300, 1000));
    CHECK(!take_word(&site, "spool=/hangs/with/all/records") && !has_left(30, 1000) && logged[0] == '\0');
}

static void test_looking_for_profiles_ends(char library[])
{
    begin_site(library);
    logged[0] = '\0';
    CHECK(!has_left(12, 1000) && logged[0] == '\0');
    snprintf(site.out, sizeof site.out, "%s", library);
    CHECK(has_left(12, 1000) && logged[0] == '\0');
    CHECK(!take_word(&site, "out=/hangs/%j.%s.h5") && !has_left(12, 1000));
    CHECK(strstr(logged, "job 12: the search for /hangs/12.*.h5 failed or took over 4 s"));
}

static void test_the_command_ends_by_itself(void)
{
    CHECK(shell("exit 0") == 0 && logged[0] == '\0');
    CHECK(shell("printf 'why\\tnot\\n\\nbecause' >&2; echo result; exit 3") == 3);
    CHECK(strcmp(logged, "why?not\nbecause\n") == 0);
    CHECK(shell("yes | head -c 1000000 >&2") == 0);
    CHECK(strlen(logged) > 4000 && strlen(logged) < 5000);
    CHECK(shell("kill -9 $$") == -1);
    CHECK(run_command((char *[]){"/nowhere/python", NULL}) == -1);
}

/* Killed; its new parent may not have waited for it. */
static int is_dead(int pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 1;
    int found = fscanf(file, "%*d (%*[^)]) %c", &state);
    fclose(file);
    return found < 1 || state == 'Z' || state == 'X';
}

static void test_one_that_takes_too_long_is_killed_with_all_that_it_started(void)
{
    int pid = 0;
    CHECK(shell("sleep 1000 & echo $! >&2; sleep 1000") == -1);
    CHECK(sscanf(logged, "%d", &pid) == 1 && pid > 0);
    for (int i = 0; i < 3000 && !is_dead(pid); i++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    CHECK(is_dead(pid));
}

static int run_step_with(const char *option_value, uint32_t job, uint32_t step, const char *name)
{
    memset(&note, 0, sizeof note);
    program = name;
    begin_step(job, step, option_value);
    for (uint32_t i = 0; i < n_tasks; i++)
        CHECK(slurm_spank_task_post_fork(NULL, 0, NULL) == ESPANK_SUCCESS);
    return mn_has(site.spool, job);
}

static int run_step(uint32_t job, uint32_t step, const char *name)
{
    return run_step_with("on", job, step, name);
}

/* Else whoever says off pays nothing. */
static void test_a_site_may_record_steps_that_are_not_measured(char library[])
{
    char *words[] = {"record=always", "key_file=/k"}, spool[] = "/tmp/spool.XXXXXX";
    CHECK(mkdtemp(spool) != NULL);
    begin_site(library);
    logged[0] = '\0';
    CHECK(strcmp(take_word(&site, "record=never"), "is neither always nor measured") == 0);
    read_site(2, words, 0);
    CHECK(strstr(logged, "record=always needs out=, key_file= and spool="));
    snprintf(site.spool, sizeof site.spool, "%s", spool);
    CHECK(run_step_with("off", 23, 0, "./app") && is_now("LD_PRELOAD", NULL) && is_now("MPICOLOC_OUT", NULL));
    CHECK(!take_word(&site, "record=measured") && !run_step_with("off", 24, 0, "./app"));
    CHECK(shell("rm -r /tmp/spool.?????? 2>&1") == 0);
}

/* What they say is read by the test in Python. */
static void test_a_step_is_noted_by_its_first_node(char library[], const char *spool)
{
    begin_site(library);
    CHECK(!run_step(20, 0, "./app") && note.begun.tv_sec == 0);
    snprintf(site.key_file, sizeof site.key_file, "/k");
    snprintf(site.spool, sizeof site.spool, "%s", spool);
    CHECK(run_step(20, batch, "./app") && !mn_has(spool, 2) && !mn_has(spool, 200));
    struct timespec begun = note.begun;
    CHECK(slurm_spank_task_post_fork(NULL, 0, NULL) == ESPANK_SUCCESS && note.begun.tv_nsec == begun.tv_nsec);
    CHECK(run_step(21, 3, "./app") && slurm_spank_task_exit(NULL, 0, NULL) == ESPANK_SUCCESS && !note.ended.tv_sec);
    CHECK(slurm_spank_task_exit(NULL, 0, NULL) == ESPANK_SUCCESS && note.ended.tv_sec);
    CHECK(!run_step(22, 0, "/usr/bin/prted") && !run_step(22, 0xfffffffc, "./app"));
    node_number = 1;
    CHECK(!run_step(22, 0, "./app"));
    node_number = 0;
}

/* All steps but the first of each job would be charged nothing. */
static void test_one_file_for_all_steps_is_not_signed(char library[])
{
    char *words[] = {"out=/p/%j.%%s.h5", "key_file=/k", "spool=/s"};
    begin_site(library);
    logged[0] = '\0';
    read_site(3, words, 0);
    CHECK(!is_signing() && strstr(logged, "out=/p/%j.%%s.h5 has no %s"));
    words[0] = "out=/p/%s.%x.h5";
    begin_site(library), site.out[0] = '\0';
    logged[0] = '\0';
    read_site(3, words, 0);
    CHECK(!is_signing() &&
          strcmp(logged, "mpicoloc: plugstack.conf: out=/p/%s.%x.h5 is not a pattern of %j, %s, %u and "
                         "%%: left out\n") == 0);
    words[0] = "out=/p/%s/%j.h5";
    logged[0] = '\0';
    read_site(3, words, 0);
    CHECK(is_signing() && !logged[0]);
}

static void test_a_spool_that_takes_no_note_costs_a_line(void)
{
    logged[0] = '\0';
    snprintf(site.spool, sizeof site.spool, "/nowhere");
    CHECK(!run_step(24, 0, "./app"));
    CHECK(strcmp(logged, "mpicoloc: job 24: no note of step 0 in /nowhere: No such file or directory\n") == 0);
    memset(site.spool, 'x', sizeof site.spool - 1);
    CHECK(!run_step(24, 0, "./app") && strstr(logged, "too long"));
}

int main(int n_arguments, char *arguments[])
{
    char library[] = "/tmp/libmpicoloc-auto.so.XXXXXX";
    int file = mkstemp(library); /* it has to be there */
    CHECK(file >= 0 && n_arguments == 2);
    test_first_node();
    test_expand();
    test_each_job_and_step_has_a_file_of_its_own(library);
    test_off_leaves_nothing_of_ours(library);
    test_a_job_without_a_script_is_looked_at_by_its_mark(library, arguments[1]);
    test_looking_for_profiles_ends(library);
    test_a_site_may_record_steps_that_are_not_measured(library);
    test_a_step_is_noted_by_its_first_node(library, arguments[1]);
    test_a_spool_that_takes_no_note_costs_a_line();
    close(file);
    unlink(library);
    test_one_file_for_all_steps_is_not_signed(library);
    test_the_command_ends_by_itself();
    test_one_that_takes_too_long_is_killed_with_all_that_it_started();
    puts("ok");
    return n_failed != 0;
}
