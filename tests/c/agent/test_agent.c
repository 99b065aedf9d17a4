/* Two and more make-believe jobs on one board. Exit code: number of failed checks. */
#include "../support/node.h"

static const double DUTY_FRAC = 0.02;
/* Slack: a thread whose pause is over still waits for a processor, on a crowded machine long. */
static const uint64_t MAX_NS = 100000000, SLACK_NS = 200000000;

static void check_pauses(const test_job *job, double elapsed_s)
{
    CHECK((double)job->node->paused_ns * 1e-9 <= DUTY_FRAC * elapsed_s + 0.0065);
    for (int i = 0; i < job->n_ranks; i++)
        CHECK(job->segments[i]->counters.n_events < MAX_NS + SLACK_NS);
}

static int enough(const test_job *job)
{
    return job->segments[0]->counters.n_pauses >= 5 && count_verdicts(job->node, MC_VERDICT_VALID) > 0 &&
           job->segments[0]->counters.paused_ns >= 10000000;
}

/* In some shutter the time for which ranks waited for a processor is known, with every meter. */
static int knows_waits(const mc_node *node)
{
    int n = access("/proc/self/schedstat", R_OK) != 0;
    for (uint64_t i = 0; i < node->n_shutters && i < MC_N_SHUTTERS; i++)
        n += node->shutters[i].waited_frac >= 0.0 && node->shutters[i].waited_frac <= 1.0;
    return n > 0;
}

static int used_our_processors(const mc_corunner *other)
{
    uint64_t there_ns = other->t_last - other->t_first;
    return other->cpu_ns >= there_ns / 8 && other->cpu_ns <= there_ns * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
}

static void test_sharing(void)
{
    test_job a = start_job("a", 1), b = start_job("b", 1);
    uint64_t t_start = mc_now_ns();
    WAIT_FOR(enough(&a) && enough(&b) && mc_now_ns() > t_start + 3000000000u, 20);
    double elapsed_s = (double)(mc_now_ns() - t_start) * 1e-9 + 1.0;
    end_job(&a);
    end_job(&b);
    print_job(&a);
    print_job(&b);
    for (test_job *job = &a; job; job = job == &a ? &b : NULL) {
        CHECK(job->node->n_shutters >= 4);
        CHECK(count_verdicts(job->node, MC_VERDICT_VALID) >= 1);
        CHECK(knows_waits(job->node));
        CHECK(job->node->n_corunners == 1);
        CHECK(strcmp(job->node->corunners[0].job_id, job == &a ? "b" : "a") == 0);
        CHECK(used_our_processors(&job->node->corunners[0]));
        CHECK(job->node->shared_ns > 2000000000u);
        CHECK(job->segments[0]->sampling.n_windows - job->node->n_shutters <= 1); /* one may wait for its verdict */
        CHECK(job->segments[0]->counters.n_pauses >= 4);
        CHECK(job->segments[0]->counters.paused_ns >= 8000000);
        check_pauses(job, elapsed_s);
        forget_job(job);
    }
}

/* POPPA's K: one job wishes three shutters a turn, and both take as many. */
static void test_turns(void)
{
    enum { PER_TURN = 3, PERIOD_NS = 200000000, N_TURNS = 64 };
    int n_shutters[2][N_TURNS] = {0}, n_valid[2][N_TURNS] = {0}, n_whole[2] = {0};
    setenv("MPICOLOC_SHUTTER_ADAPT", "0", 1);
    setenv("MPICOLOC_SHUTTER_PER_TURN", "3", 1);
    test_job jobs[2] = {start_job("a", 1)};
    unsetenv("MPICOLOC_SHUTTER_PER_TURN");
    jobs[1] = start_job("b", 1);
    WAIT_FOR(jobs[0].node->n_shutters >= 9 && jobs[1].node->n_shutters >= 9, 20);
    for (int i = 0; i < 2; i++) {
        end_job(&jobs[i]);
        print_job(&jobs[i]);
        for (uint64_t j = 0; j < jobs[i].node->n_shutters; j++) {
            const mc_shutter *shutter = &jobs[i].node->shutters[j];
            uint64_t turn = shutter->epoch / PERIOD_NS / PER_TURN % N_TURNS;
            n_shutters[i][turn]++;
            n_valid[i][turn] += shutter->verdict == MC_VERDICT_VALID;
        }
        forget_job(&jobs[i]);
    }
    for (int turn = 0; turn < N_TURNS; turn++) {
        /* An agent that got no processor for long may not know of the other job's wish. */
        CHECK(!n_valid[0][turn] || !n_valid[1][turn]);
        for (int i = 0; i < 2; i++)
            n_whole[i] += n_shutters[i][turn] == PER_TURN;
    }
    CHECK(n_whole[0] >= 1 && n_whole[1] >= 1);
}

static void test_alone(void)
{
    test_job a = start_job("a", 2);
    nap_ms(1000);
    WAIT_FOR(a.node->t_last > a.node->t_open, 5);
    CHECK(a.segments[0]->sampling.alone == 1 && a.segments[1]->sampling.alone == 1);
    CHECK(a.node->n_shutters == 0 && a.node->n_pauses == 0 && a.node->shared_ns == 0);
    test_job b = start_job("b", 1);
    CHECK_SOON(!a.segments[0]->sampling.alone && !b.segments[0]->sampling.alone, 5);
    end_job(&b);
    CHECK_SOON(a.segments[1]->sampling.alone == 1, 5);
    end_job(&a);
    forget_job(&a);
    forget_job(&b);
    char path[MC_PATH_LEN];
    mc_board_path(path, sizeof path);
    CHECK(access(path, F_OK) != 0); /* the last one took the board away */
}

/* Killed at any moment, also inside a shutter: nobody stays paused, the others take its slot away. */
static void test_killed_agent(void)
{
    test_job a = start_job("a", 1), b = start_job("b", 1);
    for (int i = 0; i < 10000 && b.node->n_pauses < 2; i++)
        nap_ms(1);
    CHECK(b.node->n_pauses >= 2);
    kill_agent(&b);
    nap_ms(150);
    uint64_t rounds = b.segments[0]->counters.n_calls;
    nap_ms(500);
    CHECK(b.segments[0]->counters.n_calls > rounds);
    test_job c = start_job("c", 1); /* whoever comes takes a dead job's slot */
    WAIT_FOR(c.node->n_corunners, 5);
    mc_board *board;
    CHECK(mc_board_open(&board) == MC_OK);
    int n_slots = 0;
    for (int i = 0; i < MC_N_SLOTS; i++)
        n_slots += board->slots[i].owner != 0;
    CHECK(n_slots == 2);
    mc_board_unmap(board);
    end_job(&a);
    end_job(&b);
    end_job(&c);
    check_pauses(&b, 12.0);
    forget_job(&a);
    forget_job(&b);
    forget_job(&c);
}

static void test_killed_rank(void)
{
    test_job a = start_job("a", 2), b = start_job("b", 1);
    nap_ms(1200);
    end_process(a.ranks[1], SIGKILL);
    a.ranks[1] = 0;
    uint64_t n_shutters = b.node->n_shutters;
    CHECK_SOON(b.node->n_shutters > n_shutters, 10);
    finish_job(&a);
    finish_job(&b);
}

/* A job that asks for more than is right: too long a shutter, shutters all the time, times that are no times. */
static void test_greedy_neighbour(void)
{
    test_job a = start_job("a", 1);
    uint64_t t_start = mc_now_ns();
    mc_board *board;
    mc_slot *slot;
    mc_proc_stat self;
    CHECK(mc_board_open(&board) == MC_OK);
    mc_proc_read_stat(&self, getpid());
    uint64_t owner = mc_board_owner(getpid(), self.start_ticks), period_ns = 200000000;
    CHECK(mc_board_claim(board, owner, "greedy", &slot) == MC_OK);
    slot->n_ranks = 1;
    slot->t_joined = 1;
    for (int i = 0; i < 200; i++) {
        uint64_t now = mc_now_ns(), q = (now + 5000000) / period_ns, t0 = mc_instant_ns(q, period_ns);
        if (t0 <= now + 5000000)
            t0 = mc_instant_ns(q + 1, period_ns);
        slot->heartbeat = now;
        uint64_t length_ns = i < 60 ? 5000000000u : i < 80 ? (uint64_t)-1 - t0 : 80000000;
        mc_slot_reserve(slot, &(mc_reservation){.epoch = t0, .t0 = t0, .t1 = t0 + length_ns});
        nap_ms(20);
    }
    mc_board_release(board, slot);
    mc_board_unmap(board);
    end_job(&a);
    print_job(&a);
    CHECK(a.node->n_refused >= 3);
    check_pauses(&a, (double)(mc_now_ns() - t_start) * 1e-9 + 1.0);
    forget_job(&a);
}

static int is_paused(const test_job *job)
{
    const mc_gate *gate = &job->segments[0]->gate;
    return gate->n_acks && gate->t_first_resume == 0 && gate->deadline_ns > mc_now_ns() + 1000000;
}

/* Lateness of a pause counts up to 100 ms. */
static int is_over_limit(const test_job *job, uint64_t before_ns)
{
    uint64_t late_ns = job->segments[0]->counters.paused_ns - before_ns, most_ns = MAX_NS + 100000000;
    double allowed_ns = DUTY_FRAC * (double)(mc_now_ns() - job->node->t_open) + 6400000.0;
    return (double)(before_ns + (late_ns < most_ns ? late_ns : most_ns)) > allowed_ns;
}

/* Its rank has no processor for a while when a pause ends: until that is made up for, it obeys no shutter. */
static void test_late_end(void)
{
    test_job a = start_job("a", 1), b = start_job("b", 1);
    int is_stopped = 0;
    uint64_t before_ns = 0;
    for (uint64_t end = mc_now_ns() + 20000000000u; mc_now_ns() < end && !is_stopped;) {
        if (!is_paused(&a))
            continue;
        kill(a.ranks[0], SIGSTOP);
        is_stopped = is_paused(&a);
        before_ns = a.segments[0]->counters.paused_ns;
        nap_ms(is_stopped ? 190 : 0);
        kill(a.ranks[0], SIGCONT);
    }
    CHECK(is_stopped);
    nap_ms(20);
    uint64_t n_pauses = a.node->n_pauses, n_refused = a.node->n_refused;
    while (is_over_limit(&a, before_ns) && a.node->n_refused < n_refused + 3) {
        CHECK(a.node->n_pauses == n_pauses);
        nap_ms(1);
    }
    CHECK(!is_over_limit(&a, before_ns) || a.node->n_refused >= n_refused + 3);
    end_job(&a);
    end_job(&b);
    print_job(&a);
    forget_job(&a);
    forget_job(&b);
}

static void test_coming_and_going(void)
{
    static const char *const keys[] = {"s0", "s1", "s2", "s3"};
    test_job jobs[4];
    unsigned random = 12345;
    for (int i = 0; i < 4; i++)
        jobs[i] = start_job(keys[i], 1 + i % 2);
    uint64_t end = mc_now_ns() + 5000000000u;
    while (mc_now_ns() < end) {
        random = random * 1103515245u + 12345u;
        int i = (int)(random >> 16) % 4;
        if (random >> 24 & 1)
            kill_agent(&jobs[i]);
        end_job(&jobs[i]);
        check_pauses(&jobs[i], 10.0);
        forget_job(&jobs[i]);
        nap_ms((int)(random >> 20) % 400);
        jobs[i] = start_job(keys[i], 1 + i % 2);
    }
    for (int i = 0; i < 4; i++)
        finish_job(&jobs[i]);
}

/* Processor time of an agent with four ranks and a neighbour, as a share of one core: 0.3 % on a quiet day, with the
   sanitizers. */
static void test_agent_cost(void)
{
    setenv("MPICOLOC_METER", "burst", 1);
    test_job a = start_job("a", 4), b = start_job("b", 1);
    struct timespec t0, t1;
    clockid_t clock;
    nap_ms(1000);
    CHECK(clock_getcpuclockid(a.agent, &clock) == 0);
    clock_gettime(clock, &t0);
    nap_ms(4000);
    clock_gettime(clock, &t1);
    double cost_s = (double)(t1.tv_sec - t0.tv_sec) + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-9;
    end_job(&a);
    end_job(&b);
    print_job(&a);
    fprintf(stderr, "agent of 4 ranks: %.3f %% of a core\n", cost_s / 4.0 * 100.0);
    CHECK(cost_s / 4.0 < 0.03);
    CHECK(a.node->t_last > a.node->t_open);
    forget_job(&a);
    forget_job(&b);
}

/* LD_PRELOAD alone: the agent is a thread of the rank, sees it work, does not pause itself, stops at once. */
static void be_rank_with_agent(void)
{
    mc_identity identity = {"t", "job t", "none", 0, 1, 0, 1, 1, MC_MODE_PRELOAD};
    CHECK(mc_start(&identity) == MC_OK);
    CHECK(mc_agent_thread_start("t", "job t") == MC_OK);
    volatile double x = 1.0;
    for (uint64_t end = mc_now_ns() + 10000000000u; mc_now_ns() < end && !told_to_stop;)
        x = x * 1.0000001 + 1e-9;
    if (fork() == 0) { /* a child of the application that calls exit handlers must not hang */
        mc_agent_thread_stop();
        _exit(0);
    }
    uint64_t t = mc_now_ns();
    mc_agent_thread_stop();
    CHECK(mc_now_ns() - t < 500000000u);
    mc_stop(MC_RANK_FINALIZING);
    _exit(n_failed);
}

static void test_thread(void)
{
    char path[MC_PATH_LEN];
    int status = -1;
    pid_t pid = child();
    if (pid == 0)
        be_rank_with_agent();
    mc_segment *segment = map_when_there("t", "0.seg", sizeof(mc_segment));
    mc_node *node = map_when_there("t", "node", sizeof(mc_node));
    test_job a = start_job("a", 1);
    WAIT_FOR(count_verdicts(a.node, MC_VERDICT_VALID) && node->n_shutters > 1 && segment->counters.n_pauses > 1, 8);
    CHECK(node->agent_pid == pid && node->n_shutters > 1 && segment->counters.n_pauses > 1);
    kill(pid, SIGTERM);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(strcmp(a.node->corunners[0].job_id, "job t") == 0);
    mc_shm_unmap(segment, sizeof *segment);
    mc_shm_unmap(node, sizeof *node);
    finish_job(&a);
    mc_shm_path(path, sizeof path, "t", "node");
    unlink(path);
    mc_shm_path(path, sizeof path, "t", "0.seg");
    unlink(path);
}

static const named_test tests[] = {
    {"sharing", test_sharing},
    {"turns", test_turns},
    {"alone", test_alone},
    {"killed_agent", test_killed_agent},
    {"killed_rank", test_killed_rank},
    {"greedy_neighbour", test_greedy_neighbour},
    {"late_end", test_late_end},
    {"coming_and_going", test_coming_and_going},
    {"agent_cost", test_agent_cost},
    {"thread", test_thread},
};

int main(int argc, char **argv)
{
    alarm(TEST_LIMIT_S);
    run_named(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : NULL);
    return n_failed;
}
