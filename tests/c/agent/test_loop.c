/* The meter loop. Exit code: number of failed checks. */
#define RANK_WORK(x) x = step(x)
static double step(double x);
#include "common/trap.h"
#include "common/counters/perf.h"
#include "../support/node.h"

enum { N_ROUNDS = 100000, N_LIMIT = 20 };

/* Some tenths of a millisecond, in more than one line of code: a breakpoint at its entry slows nothing but the
   entry. */
static MC_ONE_PLACE double step(double x)
{
    __asm__ volatile(".skip 80, 0x90");
    for (volatile int i = 0; i < N_ROUNDS; i++)
        x = x * 1.0000001 + 1e-9;
    return x;
}

static MC_ONE_PLACE double hot(double x)
{
    __asm__ volatile("");
    return x + 1e-9;
}

static pid_t start_child(double (*work)(double))
{
    pid_t pid = child();
    if (pid)
        return pid;
    volatile double x = 1.0;
    while (!told_to_stop)
        x = work(x);
    _exit(x == 0.0);
}

/* Of a place that is hit all the time the kernel counts no more than it was told, and the program goes on. */
static void test_limit(void)
{
    mc_probe probe;
    uint64_t n = 0, n_later = 1, ran_ns;
    int status = 0;
    pid_t pid = start_child(hot);
    CHECK(mc_probe_hits(&probe, pid, (uint64_t)(uintptr_t)hot, N_LIMIT) == MC_OK);
    CHECK(mc_probe_start(&probe, N_LIMIT) == MC_OK);
    WAIT_FOR(mc_probe_read(&probe, &n, &ran_ns) == MC_OK && n >= N_LIMIT, 30);
    nap_ms(50);
    CHECK(mc_probe_read(&probe, &n_later, &ran_ns) == MC_OK);
    CHECK(n == N_LIMIT && n_later == n);
    mc_probe_close(&probe);
    nap_ms(20);
    CHECK(waitpid(pid, &status, WNOHANG) == 0); /* no SIGTRAP */
    end_process(pid, SIGKILL);
}

typedef struct instants {
    uint64_t n, last_ns;
    int in_order;
} instants;

static void add_instant(void *data, const uint64_t *words, size_t n)
{
    instants *all = data;
    all->in_order &= n == 1 && words[0] > all->last_ns;
    all->last_ns = words[0];
    all->n++;
}

/* Each hit has its instant, on the clock of the shutters. */
static void test_times(void)
{
    mc_probe probe;
    uint64_t n = 0, ran_ns, t0 = mc_now_ns();
    instants all = {0, t0, 1};
    pid_t pid = start_child(step);
    CHECK(mc_probe_hits(&probe, pid, (uint64_t)(uintptr_t)step, 1000) == MC_OK);
    CHECK(mc_probe_start(&probe, N_LIMIT) == MC_OK);
    WAIT_FOR(mc_probe_read(&probe, &n, &ran_ns) == MC_OK && n >= N_LIMIT, 30);
    mc_probe_each(&probe, add_instant, &all);
    CHECK(all.n == N_LIMIT && all.in_order && all.last_ns < mc_now_ns());
    mc_probe_close(&probe);
    end_process(pid, SIGKILL);
}

static uint64_t own_offset(void *function)
{
    static mc_maps maps;
    CHECK(mc_maps_read(&maps, (int)getpid()) == MC_OK);
    const mc_map *map = mc_maps_find(&maps, (uint64_t)(uintptr_t)function);
    CHECK(map != NULL);
    CHECK(mc_maps_address(&maps, maps.paths[map->i_path], 0x10 + map->offset) == map->start + 0x10);
    return (uint64_t)(uintptr_t)function - map->start + map->offset;
}

/* Samples of a program that runs one function again and again lead to it, or to where its caller goes on. */
static void test_search(void)
{
    mc_search *search = mc_search_new(1.0);
    pid_t pid = start_child(step);
    const mc_candidate *best;
    uint64_t entry = own_offset((void *)(uintptr_t)step);
    CHECK(mc_search_sample(search, pid, pid) == MC_OK);
    WAIT_FOR(mc_search_n_places(search) >= 400, 30);
    CHECK(mc_search_candidates(search) > 0);
    while (mc_search_try(search))
        for (int i = 0; i == 0 || !mc_search_judge(search, i == 20); i++)
            nap_ms(100);
    CHECK((best = mc_search_best(search)) != NULL);
    CHECK(best && strstr(mc_candidate_path(best), "test_loop"));
    int n_entries = 0;
    for (int i = 0; i < search->n_candidates; i++)
        n_entries += search->candidates[i].offset == entry && search->candidates[i].n_hits > 0;
    CHECK(n_entries == 1);
    mc_search_free(search);
    end_process(pid, SIGKILL);
}

enum { BEFORE = 1, DURING = 2, AFTER = 4, ALL = 7 };

/* Windows of which some shutter has hits. On a crowded machine a rank may be off its processor in any one window. */
static int counted(const mc_node *node)
{
    int seen = 0;
    for (uint64_t i = 0; i < node->n_shutters && i < MC_N_SHUTTERS; i++) {
        const mc_shutter *shutter = &node->shutters[i];
        seen |= (shutter->hits_before.n ? BEFORE : 0) | (shutter->hits_during.n ? DURING : 0) |
                (shutter->hits_after.n ? AFTER : 0);
    }
    return seen;
}

static void check_job(const test_job *job)
{
    CHECK(job->node->meter == MC_METER_LOOP);
    CHECK(counted(job->node) == ALL);
    CHECK(strncmp(job->node->entry, "test_loop+0x", 12) == 0);
    CHECK(job->node->n_hits > 0 && job->node->hits_ns > 0);
    for (uint64_t i = 0; i < job->node->n_shutters && i < MC_N_SHUTTERS; i++) {
        const mc_shutter *shutter = &job->node->shutters[i];
        CHECK(!shutter->entry || shutter->hits_during.window_ns >= shutter->t1 - shutter->t0);
        CHECK(!shutter->entry || (shutter->edge_begin.window_ns > 0 && shutter->edge_end.window_ns > 0));
        CHECK(shutter->busy_frac >= 0.0 && shutter->busy_frac < 1.1);
        CHECK(shutter->entry || shutter->hits_during.n == 0);
    }
}

static void test_shutters(void)
{
    setenv("MPICOLOC_METER", "loop", 1);
    setenv("MPICOLOC_SHUTTER_DURATION_S", "0.01", 1);
    test_job a = start_job("a", 2), b = start_job("b", 1);
    WAIT_FOR(counted(a.node) == ALL && counted(b.node) == ALL, 55);
    end_job(&a);
    end_job(&b);
    print_job(&a);
    fprintf(stderr, "%s; %s, %d hits\n", a.node->meter_reason, a.node->entry, (int)a.node->n_hits);
    check_job(&a);
    check_job(&b);
    forget_job(&a);
    forget_job(&b);
}

/* Where code must not be changed, an agent takes this meter by itself for a job that calls no MPI, and says why. */
static void test_fallback(void)
{
    setenv("MPICOLOC_PATCHING", "0", 1);
    char reason[MC_TEXT_LEN];
    int has_pmu = mc_perf_available(reason, sizeof reason) == MC_OK;
    test_job a = start_job("a", 1), b = start_job("b", 1);
    int wanted = has_pmu                                              ? MC_METER_IPC
                 : mc_probe_available(reason, sizeof reason) == MC_OK ? MC_METER_LOOP
                                                                      : MC_METER_BURST;
    WAIT_FOR((int)a.node->meter == wanted, 40);
    end_job(&a);
    end_job(&b);
    fprintf(stderr, "meter %d: %s\n", (int)a.node->meter, a.node->meter_reason);
    CHECK((int)a.node->meter == wanted);
    CHECK(has_pmu || wanted != MC_METER_LOOP || strstr(a.node->meter_reason, "between MPI calls"));
    forget_job(&a);
    forget_job(&b);
}

/* Where there are no breakpoints, who asks for them gets bursts, and the reason. */
static void test_refused(void)
{
    setenv("MPICOLOC_METER", "loop", 1);
    test_job a = start_job("a", 1);
    end_job(&a);
    CHECK(a.node->meter == MC_METER_BURST);
    CHECK(strstr(a.node->meter_reason, "option meter is loop; no meter loop: no hardware breakpoints") != NULL);
    forget_job(&a);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } tests[] = {{"limit", test_limit},       {"times", test_times},       {"search", test_search},
                 {"shutters", test_shutters}, {"fallback", test_fallback}, {"refused", test_refused}};
    char reason[MC_TEXT_LEN];
    alarm(TEST_LIMIT_S + 20);
    mc_trap_guard(); /* as ranks have it from MPI_Init on */
    if (argc > 1 && strcmp(argv[1], "available") == 0 && mc_probe_available(reason, sizeof reason) != MC_OK)
        fprintf(stderr, "unavailable: %s\n", reason);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (argc > 1 && strcmp(argv[1], tests[i].name) == 0)
            tests[i].run();
    return n_failed;
}
