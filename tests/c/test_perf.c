/* The ipc meter. Compiled with software events where the machine has no PMU. Exit code: number of failed checks. */
#include "node.h"

static int is_measured(const mc_shutter *shutter)
{
    return shutter->before.cycles && shutter->during.cycles && shutter->after.cycles;
}

static const mc_shutter *measured(const mc_node *node)
{
    for (uint64_t i = 0; i < node->n_shutters && i < MC_N_SHUTTERS; i++)
        if (is_measured(&node->shutters[i]))
            return &node->shutters[i];
    return NULL;
}

static void check_counts(const test_job *job)
{
    const mc_shutter *shutter = measured(job->node);
    CHECK(job->node->meter == MC_METER_IPC);
    CHECK(shutter != NULL);
    if (!shutter)
        return;
    fprintf(stderr, "%s: %llu %llu %llu\n", job->key, (unsigned long long)shutter->before.cycles,
            (unsigned long long)shutter->during.cycles, (unsigned long long)shutter->after.cycles);
    /* Task clock of two threads: no more than two windows' time, and some slack of the sleeps. */
    uint64_t most_ns = 2 * (shutter->t1 - shutter->t0) * 5 / 4;
    CHECK(shutter->during.cycles <= most_ns);
    CHECK(shutter->before.cycles <= most_ns);
    CHECK(shutter->after.cycles <= most_ns);
}

static void test_shutters(void)
{
    test_job a = start_job("a", 2), b = start_job("b", 1);
    WAIT_FOR(measured(a.node) && measured(b.node), 30);
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
