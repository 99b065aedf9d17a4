/* A program that counts itself, and says what it counted. Page faults stand for events of a PMU: the kernel counts,
   inherits and multiplexes both in the same way. */
#ifndef MC_TEST_COUNTED_H
#define MC_TEST_COUNTED_H

#include "check.h"
#include "common/counters/perf.h"
#include "common/counters/pmu.h"
#include "guest/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MC_TEST_LIMIT_S /* longer in an emulator */
#define MC_TEST_LIMIT_S 60
#endif
enum { CANNOT = 77, TEST_LIMIT_S = MC_TEST_LIMIT_S, LEAST_FD = 256, LAST_FD = 300 };

int mc_gate_install(mc_segment *segment)
{
    segment->gate.signal = 0;
    return MC_OK;
}

static void begin(const char *events)
{
    setenv("MPICOLOC_COUNTERS", events, 1);
    errno = 4321;
    mc_pmu_start();
    CHECK(errno == 4321);
}

static int n_rows(void)
{
    int n = 0;
    while (n < MC_N_PMU && mc_the_segment->pmu[n].name[0] != '\0')
        n++;
    return n;
}

/* Ends counting, too. */
static const mc_pmu_row *row_of(const char *event)
{
    errno = 4321;
    mc_stop(MC_RANK_FINALIZING);
    CHECK(errno == 4321);
    for (int i = 0; i < n_rows(); i++)
        if (strcmp(mc_the_segment->pmu[i].name, event) == 0)
            return &mc_the_segment->pmu[i];
    return NULL;
}

static int n_open(int first, int last)
{
    int n = 0;
    for (int fd = first; fd < last; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Without a PMU, or where nobody may count, there is nothing to look at. */
static const char *missing(const char *test)
{
    static char reason[MC_TEXT_LEN];
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .exclude_kernel = 1};
    if (strncmp(test, "hardware", strlen("hardware")) == 0)
        return mc_perf_available(reason, sizeof reason) == MC_OK ? NULL : reason;
    attr.config = PERF_COUNT_SW_PAGE_FAULTS;
    int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    close(fd);
    return fd >= 0 ? NULL : "perf_event_open is refused";
}

static int run_test(int argc, char **argv, const named_test *tests, size_t n)
{
    mc_identity identity = {"pmu", "pmu", "none", 0, 1, 0, 1, 1, MC_MODE_PRELOAD};
    alarm(TEST_LIMIT_S);
    if (argc < 2)
        return 1;
    const char *why_not = missing(argv[1]);
    if (why_not) {
        fprintf(stderr, "%s\n", why_not);
        return CANNOT;
    }
    if (mc_start(&identity) != MC_OK)
        return 1;
    run_named(tests, n, argv[1]);
    __atomic_store_n(&mc_recording, 1, __ATOMIC_RELEASE);
    mc_forget();
    return n_failed;
}

#endif
