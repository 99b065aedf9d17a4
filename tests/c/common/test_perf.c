/* The ipc meter. Compiled with software events where the machine has no PMU. Exit code: number of failed checks. */

/* Of their time ranks are a third outside MPI. */
#define RANK_WORK(x) \
    do { \
        mc_frame frame; \
        for (int i = 0; i < 60000; i++) { \
            if (i == 20000) \
                mc_enter(&frame, 7, &frame); \
            x = x * 1.0000001 + 1e-9; \
        } \
        mc_leave(&frame, 8, 0); \
    } while (0)

#include "agent/meters/thread_counts.h"
#include "common/counters/perf.h"
#include "../support/node.h"

#include <pthread.h>
#include <sys/resource.h>

enum { BEFORE = 1, DURING = 2, AFTER = 4, ALL = 7, ENOUGH_NS = 60000000 };

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

/* The part of the counts that is outside MPI, over all windows of which it is known. */
static double outside_frac(const mc_node *node)
{
    double outside = 0, all = 0;
    for (uint64_t i = 0; i < node->n_shutters && i < MC_N_SHUTTERS; i++) {
        const mc_shutter *shutter = &node->shutters[i];
        if (!shutter->outside_during.cycles)
            continue;
        all += (double)(shutter->before.cycles + shutter->during.cycles + shutter->after.cycles);
        outside +=
            (double)(shutter->outside_before.cycles + shutter->outside_during.cycles + shutter->outside_after.cycles);
    }
    return all > ENOUGH_NS ? outside / all : 0;
}

static void test_shutters(void)
{
    test_job a = start_job("a", 2), b = start_job("b", 1);
    WAIT_FOR(measured(a.node) == ALL && measured(b.node) == ALL && outside_frac(a.node) && outside_frac(b.node), 40);
    end_job(&a);
    end_job(&b);
    print_job(&a);
    check_counts(&a);
    check_counts(&b);
    fprintf(stderr, "outside MPI: %.3f, %.3f\n", outside_frac(a.node), outside_frac(b.node));
    CHECK(outside_frac(a.node) > 0.25 && outside_frac(a.node) < 0.42);
    CHECK(outside_frac(b.node) > 0.25 && outside_frac(b.node) < 0.42);
    for (int i = 0; i < a.n_ranks; i++)
        CHECK(a.segments[i]->sampling.counts_until == 0 ||
              a.segments[i]->sampling.counts_until < mc_now_ns() + 1000000000u);
    forget_job(&a);
    forget_job(&b);
}

/* Both events of a thread count from the opening on, and not only from when it is next given a processor: what a thread
   counts by itself and what is counted from outside would drift apart by so much. */
static void test_counting_at_once(void)
{
    for (int i = 0; i < 40; i++) {
        mc_group own;
        mc_ipc begin = {0, 0}, now;
        int is_shared, is_read = mc_group_open(&own, 0, i % 2) == MC_OK;
        is_read = is_read && mc_group_read(&own, &begin, &is_shared) == MC_OK;
        for (now = begin; is_read && now.instructions - begin.instructions < 200000;)
            is_read = mc_group_read(&own, &now, &is_shared) == MC_OK;
        CHECK(is_read && now.cycles > begin.cycles);
        mc_group_close(&own);
    }
}

/* Threads come and go, and one that goes takes its counts with it. */
static void test_following(void)
{
    mc_thread_counts *counts = mc_thread_counts_open();
    mc_followed followed[2];
    mc_ipc all, outside;
    int n_naps = 300;
    for (int i = 0; i < 2; i++) {
        followed[i] = (mc_followed){child(), 0, NULL};
        if (followed[i].tid == 0)
            for (;;)
                told_to_stop = told_to_stop;
    }
    for (int i = 0; i < 6; i++) {
        mc_thread_counts_follow(counts, followed + i % 2, i < 4 ? 2 - i % 2 : 0);
        mc_thread_counts_note(counts, 0, 1);
        do {
            nap_ms(30);
            mc_thread_counts_note(counts, 1, 1);
            CHECK(mc_thread_counts_between(counts, &all, &outside) == 1);
        } while (i < 4 && all.cycles == 0 && n_naps-- > 0); /* on a crowded machine they wait for a processor */
        CHECK((all.cycles > 0) == (i < 4));
        CHECK(all.cycles == outside.cycles && all.instructions == outside.instructions);
    }
    followed[0].is_unpublished = 1;
    mc_thread_counts_follow(counts, followed, 1);
    mc_thread_counts_note(counts, 0, 1);
    mc_thread_counts_note(counts, 1, 1);
    CHECK(mc_thread_counts_between(counts, &all, &outside) == 0);
    end_process(followed[0].tid, SIGKILL);
    end_process(followed[1].tid, SIGKILL);
    mc_thread_counts_close(counts);
}

static void *wait_for_stop(void *unused)
{
    while (!told_to_stop)
        nap_ms(5);
    return unused;
}

/* What cannot be watched, or listed, for want of room is told by its number. */
static void test_limits(void)
{
    mc_thread_counts *counts = mc_thread_counts_open();
    mc_followed followed[3];
    pthread_t threads[3];
    struct rlimit before, few;
    int tids[8], n_left = 0;
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, wait_for_stop, NULL) == 0);
    CHECK(mc_proc_threads(getpid(), tids, 8, &n_left) == 4 && n_left == 0);
    for (int i = 0; i < 3; i++)
        followed[i] = (mc_followed){tids[i + 1], 0, NULL};
    CHECK(mc_proc_threads(getpid(), tids, 1, &n_left) == 1 && n_left == 3);
    CHECK(mc_proc_threads(getpid(), tids, 0, &n_left) == 0 && n_left == 7);
    int first_free = dup(0);
    close(first_free);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = (struct rlimit){(rlim_t)first_free + MC_N_EVENTS + 1, before.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHECK(mc_thread_counts_follow(counts, followed, 3) == 2);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(mc_thread_counts_follow(counts, followed, 3) == 0);
    told_to_stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    mc_thread_counts_follow(counts, followed, 0);
    CHECK(mc_thread_counts_follow(counts, followed, 3) == 0); /* they have ended */
    told_to_stop = 0;
    mc_thread_counts_close(counts);
}

int main(int argc, char **argv)
{
    char reason[MC_TEXT_LEN];
    alarm(TEST_LIMIT_S + 20);
    int status = mc_perf_available(reason, sizeof reason);
    if (argc > 1 && strcmp(argv[1], "unavailable") == 0) {
        fprintf(stderr, "reason: %s\n", reason);
        CHECK(status == MC_E_PERF);
        CHECK(strlen(reason) > 10);
        return n_failed;
    }
    CHECK(status == MC_OK);
    test_counting_at_once();
    test_following();
    test_limits();
    test_shutters();
    return n_failed;
}
