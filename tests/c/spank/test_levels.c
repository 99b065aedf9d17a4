/* Variables of service levels, from files to the environment of a task. argv[1]: an empty folder. */
#define _GNU_SOURCE
#include "../support/check.h"
#include "../support/spank_stand_ins.h"
#include "spank/environment.h"

#include <limits.h>
#include <sys/stat.h>

static void write_file(const char *folder, const char *job, const char *text)
{
    char path[PATH_MAX];
    CHECK(snprintf(path, sizeof path, "%s/ann/%s", folder, job) < (int)sizeof path);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* A job of this name begins; nothing of an earlier test is left. */
static void begin(const char *name)
{
    CHECK(clearenv() == 0 && setenv("SLURM_JOB_USER", "ann", 1) == 0 && setenv("SLURM_JOB_NAME", name, 1) == 0);
    logged[0] = '\0';
}

static void test_a_job_gets_the_variables_of_its_name(const char *folder)
{
    begin("cfd");
    ml_set(NULL, folder);
    CHECK(is_now("UCX_IB_SL", "2") && is_now("OTHER", "a=b") && !logged[0]);
    begin("unknown");
    ml_set(NULL, folder);
    CHECK(is_now("UCX_IB_SL", NULL) && is_now("MPICOLOC_SITE_LEVEL", NULL) && !logged[0]);
}

static void test_what_the_user_has_set_stays(const char *folder)
{
    begin("cfd");
    setenv("UCX_IB_SL", "5", 1);
    ml_set(NULL, folder);
    CHECK(is_now("UCX_IB_SL", "5") && is_now("OTHER", "a=b"));
    ml_forget(NULL);
    CHECK(is_now("UCX_IB_SL", "5") && is_now("OTHER", NULL) && is_now("MPICOLOC_SITE_LEVEL", NULL));
}

static void test_a_job_does_not_pass_its_level_on(const char *folder)
{
    begin("cfd");
    ml_set(NULL, folder);
    setenv("SLURM_JOB_NAME", "md", 1);
    ml_forget(NULL);
    ml_set(NULL, folder);
    CHECK(is_now("UCX_IB_SL", "1") && is_now("OTHER", NULL));
    setenv("UCX_IB_SL", "7", 1); /* by the job itself, for those that it submits */
    ml_forget(NULL);
    CHECK(is_now("UCX_IB_SL", "7"));
}

static void test_names_that_lead_elsewhere_have_no_file(const char *folder)
{
    static const char *const names[] = {"../ann/cfd", ".", "..", ".hidden", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        begin(names[i]);
        ml_set(NULL, folder);
        CHECK(is_now("UCX_IB_SL", NULL) && !logged[0]);
    }
    begin("cfd");
    setenv("SLURM_JOB_USER", "../ann", 1);
    ml_set(NULL, folder);
    CHECK(is_now("UCX_IB_SL", NULL));
}

static void test_a_wrong_line_is_reported_and_skipped(const char *folder)
{
    begin("wrong");
    ml_set(NULL, folder);
    CHECK(is_now("UCX_IB_SL", "3") && strstr(logged, "wrong: line 1 is not NAME=VALUE") &&
          strstr(logged, "line 2 is not"));
    begin("endless");
    ml_set(NULL, folder);
    CHECK(is_now("MPICOLOC_SITE_LEVEL", NULL));
    ml_forget(NULL);
}

int main(int n_arguments, char *arguments[])
{
    static char endless[1 << 16], folder[PATH_MAX];
    CHECK(n_arguments == 2);
    snprintf(folder, sizeof folder, "%s/ann", arguments[1]);
    CHECK(mkdir(folder, 0700) == 0);
    memset(endless, 'A', sizeof endless - 1);
    write_file(arguments[1], "cfd", "UCX_IB_SL=2\nOTHER=a=b\n");
    write_file(arguments[1], "md", "UCX_IB_SL=1\r\n");
    write_file(arguments[1], "wrong", "no variable\nA=b c\nUCX_IB_SL=3\n");
    write_file(arguments[1], "endless", endless);
    test_a_job_gets_the_variables_of_its_name(arguments[1]);
    test_what_the_user_has_set_stays(arguments[1]);
    test_a_job_does_not_pass_its_level_on(arguments[1]);
    test_names_that_lead_elsewhere_have_no_file(arguments[1]);
    test_a_wrong_line_is_reported_and_skipped(arguments[1]);
    puts("ok");
    return n_failed != 0;
}
