/* Make-believe jobs for tests of the node agent: rank processes that only compute, and agent processes. */
#ifndef MC_TEST_NODE_H
#define MC_TEST_NODE_H

#define _GNU_SOURCE
#include "agent/agent.h"
#include "agent/thread.h"
#include "check.h"
#include "guest/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MC_TEST_LIMIT_S /* longer in an emulator */
#define MC_TEST_LIMIT_S 60
#endif
enum { TEST_LIMIT_S = MC_TEST_LIMIT_S, N_TEST_RANKS = 4 };

typedef struct test_job {
    const char *key;
    int n_ranks;
    pid_t agent, ranks[N_TEST_RANKS];
    mc_node *node;
    mc_segment *segments[N_TEST_RANKS];
} test_job;

static inline void nap_ms(int ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000l};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

/* Other work on the machine may make anything late, so wait for what must come at last. */
#define WAIT_FOR(condition, limit_s) \
    for (int i_nap = 0; i_nap < (limit_s)*50 && !(condition); i_nap++) \
    nap_ms(20)

#define CHECK_SOON(condition, limit_s) \
    do { \
        WAIT_FOR(condition, limit_s); \
        CHECK(condition); \
    } while (0)

static volatile sig_atomic_t told_to_stop;

static void on_term(int signal)
{
    (void)signal;
    told_to_stop = 1;
}

static inline pid_t child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(2 * TEST_LIMIT_S); /* only in case that the test itself is killed */
        signal(SIGTERM, on_term);
    }
    return pid;
}

/* A test may give its ranks other work. */
#ifndef RANK_WORK
#define RANK_WORK(x) \
    for (int i = 0; i < 2000; i++) \
    x = x * 1.0000001 + 1e-9
#endif

/* Of jobs that are started from here on; more than one: with coordinators, whom the test stands in for. */
static int n_test_nodes = 1;

/* What the rank saw: its longest standstill, in counters.n_events; so many rounds of work, in n_calls. */
static inline void be_rank(const char *key, int rank, int n_ranks)
{
    int mode = n_test_nodes > 1 ? MC_MODE_WRAP : MC_MODE_PRELOAD;
    mc_identity identity = {key, key, "none", rank, n_ranks, rank, n_ranks, n_test_nodes, mode};
    if (mc_start(&identity) != MC_OK)
        _exit(3);
    mc_segment *segment = mc_own_segment();
    volatile double x = 1.0;
    while (!told_to_stop) {
        uint64_t paused_ns = *(volatile uint64_t *)&mc_thread_paused_ns;
        RANK_WORK(x);
        __atomic_fetch_add(&segment->counters.n_calls, 1, __ATOMIC_RELAXED);
        paused_ns = *(volatile uint64_t *)&mc_thread_paused_ns - paused_ns;
        if (paused_ns > segment->counters.n_events)
            __atomic_store_n(&segment->counters.n_events, paused_ns, __ATOMIC_RELAXED);
    }
    mc_stop(MC_RANK_FINALIZING);
    _exit(0);
}

static inline void be_agent(const char *key)
{
    mc_agent *agent;
    setsid(); /* as the keeper does */
    if (mc_agent_open(&agent, key, key) != MC_OK)
        _exit(3);
    while (!told_to_stop)
        mc_agent_step(agent, 50000000);
    mc_agent_close(agent);
    _exit(0);
}

static inline void *map_when_there(const char *key, const char *what, size_t size_bytes)
{
    char path[MC_PATH_LEN];
    void *map = NULL;
    mc_shm_path(path, sizeof path, key, what);
    for (int i = 0; i < 500 && mc_shm_map(&map, path, size_bytes, 0) != MC_OK; i++)
        nap_ms(10);
    if (!map)
        fprintf(stderr, "%s did not appear\n", path);
    return map;
}

static inline test_job start_job(const char *key, int n_ranks)
{
    test_job job = {.key = key, .n_ranks = n_ranks};
    for (int i = 0; i < n_ranks; i++) {
        char what[32];
        if ((job.ranks[i] = child()) == 0)
            be_rank(key, i, n_ranks);
        snprintf(what, sizeof what, "%d.seg", i);
        job.segments[i] = map_when_there(key, what, sizeof(mc_segment));
    }
    if ((job.agent = child()) == 0)
        be_agent(key);
    job.node = map_when_there(key, "node", sizeof(mc_node));
    return job;
}

static inline void end_process(pid_t pid, int signal)
{
    if (pid <= 0)
        return;
    kill(pid, signal);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static inline void kill_agent(test_job *job)
{
    end_process(job->agent, SIGKILL);
    job->agent = 0;
}

/* Its first rank works on. */
static inline void check_that_it_runs(const test_job *job)
{
    uint64_t rounds = job->segments[0]->counters.n_calls;
    CHECK_SOON(job->segments[0]->counters.n_calls > rounds, 5);
}

/* What stays in the maps can still be looked at. */
static inline void end_job(test_job *job)
{
    char path[MC_PATH_LEN], what[32];
    end_process(job->agent, SIGTERM);
    for (int i = 0; i < job->n_ranks; i++)
        end_process(job->ranks[i], SIGTERM);
    for (int i = 0; i < job->n_ranks; i++) {
        snprintf(what, sizeof what, "%d.seg", i);
        mc_shm_path(path, sizeof path, job->key, what);
        unlink(path);
    }
    mc_shm_path(path, sizeof path, job->key, "node");
    unlink(path);
    job->agent = 0;
}

static inline void forget_job(test_job *job)
{
    for (int i = 0; i < job->n_ranks; i++)
        mc_shm_unmap(job->segments[i], sizeof(mc_segment));
    mc_shm_unmap(job->node, sizeof(mc_node));
}

static inline void finish_job(test_job *job)
{
    end_job(job);
    forget_job(job);
}

static inline int count_verdicts(const mc_node *node, uint64_t verdict)
{
    int n = 0;
    for (uint64_t i = 0; i < node->n_shutters && i < MC_N_SHUTTERS; i++)
        n += node->shutters[i].verdict == verdict;
    return n;
}

static inline void print_job(const test_job *job)
{
    const mc_node *node = job->node;
    fprintf(stderr, "%s: %d shutters, %d valid, %d moved, %d late, %d silent; %d pauses of %.4f s in all, %d refused\n",
            job->key, (int)node->n_shutters, count_verdicts(node, MC_VERDICT_VALID),
            count_verdicts(node, MC_VERDICT_MOVED), count_verdicts(node, MC_VERDICT_LATE),
            count_verdicts(node, MC_VERDICT_SILENT), (int)node->n_pauses, (double)node->paused_ns * 1e-9,
            (int)node->n_refused);
}

#endif
