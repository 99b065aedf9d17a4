/* Where a rank may not count, or loses its descriptors, nothing happens but that its counts are absent. Exit code:
   number of failed checks. */
#define _GNU_SOURCE
#include "common/proc.h"
#include "../support/counted.h"
#include "../support/filters.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void check_nothing(void)
{
    CHECK(n_open(LEAST_FD, LAST_FD) == 0);
    CHECK(row_of("page-faults") == NULL && n_rows() == 0);
}

/* As perf_event_paranoid does for users, and most containers do. */
static void test_refused(void)
{
    static const uint32_t errors[] = {EACCES, EPERM, ENOSYS, ENOENT, EINVAL, EMFILE};
    CHECK(mc_pmu_is_safe() == 1);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        filter_perf(SECCOMP_RET_ERRNO | errors[i]);
        CHECK(mc_pmu_is_safe() == 1);
        begin("page-faults,minor-faults");
        CHECK(n_open(LEAST_FD, LAST_FD) == 0);
    }
    check_nothing();
}

static void check_unsafe(void)
{
    struct rlimit core;
    getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = core.rlim_max;
    CHECK(setrlimit(RLIMIT_CORE, &core) == 0);
    CHECK(chdir(getenv("MPICOLOC_SHM_DIR")) == 0); /* which is to be empty at the end: no core file */
    CHECK(mc_pmu_is_safe() == 0);
    check_nothing();
}

/* Nor does a rank die of it where the filter kills. */
static void test_killed(void)
{
    filter_perf(SECCOMP_RET_KILL_PROCESS);
    check_unsafe();
}

/* Or of what it does with a counter once it has one. */
static void test_killed_later(void)
{
    mc_pmu_row *row = mc_the_segment->pmu;
    begin("page-faults");
    mc_pmu_stop(mc_the_segment);
    CHECK(row->name[0] != '\0');
    memset(row, 0, sizeof *row);
    filter_ids(SECCOMP_RET_KILL_PROCESS);
    check_unsafe();
}

/* The agent lives, and leaves the threads of its job alone, though a counter could be opened. */
static void test_agent_killed(void)
{
    char reason[MC_TEXT_LEN];
    mc_group own;
    filter_perf(SECCOMP_RET_ALLOW);
    CHECK(mc_perf_available(reason, sizeof reason) == MC_OK && reason[0] == '\0');
    filter_ids(SECCOMP_RET_KILL_PROCESS);
    CHECK(mc_perf_available(reason, sizeof reason) == MC_E_PERF);
    CHECK(strstr(reason, "filter of system calls (seccomp)") != NULL);
    CHECK(mc_group_open(&own, 0, 0) == MC_OK);
    mc_group_close(&own);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* Where the kernel only refuses, its own reason is told. */
static void test_agent_refused(void)
{
    char reason[MC_TEXT_LEN];
    filter_perf(SECCOMP_RET_ERRNO | EPERM);
    CHECK(mc_perf_available(reason, sizeof reason) == MC_E_PERF);
    CHECK(strstr(reason, "perf_event_open refused") != NULL);
}

static void test_harmless(void)
{
    CHECK(mc_pmu_is_safe() == 1);
    filter_perf(SECCOMP_RET_ALLOW);
    CHECK(mc_pmu_is_safe() == 1);
    CHECK(n_open(LEAST_FD, LAST_FD) == 0);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* Filters are those of the calling thread. */
static void *count_filters(void *n)
{
    filter_perf(SECCOMP_RET_ALLOW);
    *(uint64_t *)n = mc_proc_n_filters(0);
    return NULL;
}

static void test_thread(void)
{
    uint64_t here = mc_proc_n_filters(0), there = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, count_filters, &there);
    pthread_join(thread, NULL);
    CHECK(there > here && mc_proc_n_filters(0) == here);
}

static void limit_descriptors(rlim_t n)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = n;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void test_low_limit(void)
{
    int before = n_open(0, 100);
    limit_descriptors(100);
    begin("page-faults,minor-faults");
    limit_descriptors(1024);
    check_nothing();
    CHECK(n_open(0, 100) == before);
}

/* None is left, or a single one, which each counter needs for a moment. */
static void test_all_taken(void)
{
    limit_descriptors(LAST_FD);
    while (dup(0) >= 0)
        ;
    for (int i = 0; i < 2; i++) {
        begin("page-faults,minor-faults");
        CHECK(n_open(0, LAST_FD) == LAST_FD - i);
        close(5);
    }
    limit_descriptors(1024);
    CHECK(row_of("page-faults") == NULL && n_rows() == 0);
    CHECK(n_open(0, LAST_FD) == LAST_FD - 1);
}

/* Applications close what they did not open. */
static void test_all_closed(void)
{
    begin("page-faults,minor-faults");
    CHECK(n_open(LEAST_FD, LAST_FD) == 2);
    for (int fd = 3; fd < LAST_FD; fd++)
        close(fd);
    check_nothing();
}

/* And get the numbers for files of their own, other counters among them. */
static void test_descriptors_of_others(void)
{
    int ends[2];
    char text[8] = "";
    mc_group theirs;
    begin("page-faults,minor-faults,major-faults");
    CHECK(n_open(LEAST_FD, LAST_FD) == 3);
    CHECK(pipe(ends) == 0 && write(ends[1], "theirs", 7) == 7);
    CHECK(dup2(ends[0], LEAST_FD) == LEAST_FD);
    CHECK(mc_group_open(&theirs, 0, 0) == MC_OK);
    CHECK(dup2(theirs.fds[0], LEAST_FD + 1) == LEAST_FD + 1);
    CHECK(row_of("major-faults") != NULL && n_rows() == 1);
    CHECK(n_open(LEAST_FD, LAST_FD) == 2);
    CHECK(read(LEAST_FD, text, sizeof text) == 7 && strcmp(text, "theirs") == 0);
}

/* A program without files 0 to 2 does not get counters in their place. */
static void test_low_numbers(void)
{
    for (int fd = 0; fd < 2; fd++)
        close(fd);
    begin("page-faults");
    CHECK(n_open(0, 2) == 0 && n_open(LEAST_FD, LAST_FD) == 1);
    CHECK(fcntl(LEAST_FD, F_GETFD) == FD_CLOEXEC);
    CHECK(row_of("page-faults") != NULL);
}

static const named_test tests[] = {{"refused", test_refused},
                                   {"killed", test_killed},
                                   {"killed_later", test_killed_later},
                                   {"agent", test_agent_killed},
                                   {"agent_refused", test_agent_refused},
                                   {"harmless", test_harmless},
                                   {"thread", test_thread},
                                   {"limit", test_low_limit},
                                   {"taken", test_all_taken},
                                   {"closed", test_all_closed},
                                   {"others", test_descriptors_of_others},
                                   {"low", test_low_numbers}};

int main(int argc, char **argv)
{
    return run_test(argc, argv, tests, sizeof tests / sizeof *tests);
}
