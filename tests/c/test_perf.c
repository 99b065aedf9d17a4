/* The ipc meter. Compiled with software events where the machine has no PMU. Exit code: number of failed checks. */
#include "node.h"

enum { BEFORE = 1, DURING = 2, AFTER = 4, ALL = 7 };

/* Windows of which some shutter has counts. On a crowded machine a rank may be off its processor in any one window. */
static int measured(const mc_node *node)
{
    int seen = 0;
    for (uint64_t i = 0; i < node->n_shutters && i < MC_N_SHUTTERS; i++) {
        const mc_shutter *shutter = &node->shutters[i];
        seen |= (shutter->before.cycles ? BEFORE : 0) | (shutter->during.cycles ? DURING : 0) |
                (shutter->after.cycles ? AFTER : 0);
    }
    return seen;
}

static void check_counts(const test_job *job)
{
    CHECK(job->node->meter == MC_METER_IPC);
    CHECK(measured(job->node) == ALL);
    for (uint64_t i = 0; i < job->node->n_shutters && i < MC_N_SHUTTERS; i++) {
        const mc_shutter *shutter = &job->node->shutters[i];
        /* Task clock of the job's threads: no more than so many windows' time, and some slack of the sleeps. */
        uint64_t most_ns = (uint64_t)job->n_ranks * (shutter->t1 - shutter->t0) * 5 / 4;
        CHECK(shutter->before.cycles <= most_ns);
        CHECK(shutter->during.cycles <= most_ns);
        CHECK(shutter->after.cycles <= most_ns);
    }
}

static void test_shutters(void)
{
    test_job a = start_job("a", 2), b = start_job("b", 1);
    WAIT_FOR(measured(a.node) == ALL && measured(b.node) == ALL, 30);
    end_job(&a);
    end_job(&b);
    print_job(&a);
    check_counts(&a);
    check_counts(&b);
    forget_job(&a);
    forget_job(&b);
}

/* Threads come and go; the sum never falls. */
static void test_following(void)
{
    mc_perf *perf = mc_perf_open();
    pid_t pids[2];
    uint64_t last = 0;
    for (int i = 0; i < 2; i++)
        if ((pids[i] = child()) == 0)
            for (;;)
                told_to_stop = told_to_stop;
    for (int i = 0; i < 6; i++) {
        mc_perf_follow(perf, pids + i % 2, i < 4 ? 2 - i % 2 : 0);
        nap_ms(30);
        uint64_t now = mc_perf_read(perf).cycles;
        CHECK(now >= last);
        last = now;
    }
    CHECK(last > 0);
    end_process(pids[0], SIGKILL);
    end_process(pids[1], SIGKILL);
    mc_perf_close(perf);
}

int main(int argc, char **argv)
{
    char reason[MC_TEXT_LEN];
    alarm(TEST_LIMIT_S);
    int status = mc_perf_available(reason, sizeof reason);
    if (argc > 1 && strcmp(argv[1], "unavailable") == 0) {
        fprintf(stderr, "reason: %s\n", reason);
        CHECK(status == MC_E_PERF);
        CHECK(strlen(reason) > 10);
        return n_failed;
    }
    CHECK(status == MC_OK);
    test_following();
    test_shutters();
    return n_failed;
}
