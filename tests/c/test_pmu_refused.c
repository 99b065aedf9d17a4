/* Where a rank may not count, or loses its descriptors, nothing happens but that its counts are absent. Exit code: number of
   failed checks. */
#define _GNU_SOURCE
#include "counted.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void filter_perf(uint32_t answer)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog code = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &code) == 0);
}

static void check_nothing(void)
{
    CHECK(n_open(LEAST_FD, LAST_FD) == 0);
    CHECK(row_of("page-faults") == NULL && n_rows() == 0);
}

/* As perf_event_paranoid does for users, and most containers do. */
static void test_refused(void)
{
    static const uint32_t errors[] = {EACCES, EPERM, ENOSYS, ENOENT, EINVAL, EMFILE};
    CHECK(mc_keeper_may_count() == 1);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        filter_perf(SECCOMP_RET_ERRNO | errors[i]);
        CHECK(mc_keeper_may_count() == 1);
        begin("page-faults,minor-faults");
        CHECK(n_open(LEAST_FD, LAST_FD) == 0);
    }
    check_nothing();
}

/* Nor does a rank die of it where the filter kills. */
static void test_killed(void)
{
    filter_perf(SECCOMP_RET_KILL_PROCESS);
    errno = 0;
    CHECK(mc_keeper_may_count() == 0);
    signal(SIGCHLD, SIG_IGN);
    CHECK(mc_keeper_may_count() == 0);
    check_nothing();
}

/* Nobody can say, so nothing is risked. */
static void test_unknown(void)
{
    filter_perf(SECCOMP_RET_ALLOW);
    CHECK(mc_keeper_may_count() == 1);
    signal(SIGCHLD, SIG_IGN);
    CHECK(mc_keeper_may_count() == 0);
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
                                   {"unknown", test_unknown},
                                   {"limit", test_low_limit},
                                   {"taken", test_all_taken},
                                   {"closed", test_all_closed},
                                   {"others", test_descriptors_of_others},
                                   {"low", test_low_numbers}};

int main(int argc, char **argv)
{
    return run_test(argc, argv, tests, sizeof tests / sizeof *tests);
}
