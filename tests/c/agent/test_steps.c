/* An agent is killed at each step of a shutter, its own and another's: at system calls spread over both. Exit code:
   number of failed checks. */
#include "../support/node.h"

#include <sys/ptrace.h>

enum { N_KILLS = 14, MAX_MS = 30, SLACK_MS = 200, CANNOT = 77 };

static int n_compared;

/* Run a stopped process to its next system call or out of it; 0: it has ended. */
static int run_on(pid_t pid)
{
    int status;
    return ptrace(PTRACE_SYSCALL, pid, 0, 0) == 0 && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status);
}

/* Stops at a moment that is the same each time: a shutter of another has just been obeyed. */
static void stop_after_pause(const test_job *job)
{
    int status;
    uint64_t n_pauses = job->node->n_pauses;
    WAIT_FOR(job->node->n_pauses > n_pauses, 10);
    CHECK(ptrace(PTRACE_SEIZE, job->agent, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, job->agent, 0, 0) == 0);
    CHECK(waitpid(job->agent, &status, 0) == job->agent && WIFSTOPPED(status));
}

/* Stops of the agent from one pause to the next that have its own shutter between: on a busy machine it comes too late for
   some. */
static int count_stops(void)
{
    int n = 0;
    test_job job = start_job("count", 1);
    stop_after_pause(&job);
    uint64_t n_pauses = job.node->n_pauses, n_shutters = job.node->n_shutters;
    while (run_on(job.agent)) {
        n++;
        if (job.node->n_pauses == n_pauses)
            continue;
        if (job.node->n_shutters > n_shutters)
            break;
        n_pauses = job.node->n_pauses;
        n = 0;
    }
    fprintf(stderr, "%d stops from pause to pause, %d shutters\n", n, (int)job.node->n_shutters);
    CHECK(job.node->n_shutters > n_shutters);
    kill_agent(&job);
    finish_job(&job);
    return n;
}

/* No shutter counts in which the orphaned rank moved. */
static void check_samples(const test_job *survivor, const test_job *orphan)
{
    const mc_gate *gate = &orphan->segments[0]->gate;
    const mc_node *node = survivor->node;
    for (uint64_t i = 0; i < node->n_shutters && i < MC_N_SHUTTERS; i++) {
        const mc_shutter *shutter = &node->shutters[i];
        if (shutter->verdict != MC_VERDICT_VALID || shutter->epoch != gate->epoch || gate->n_acks == 0)
            continue;
        /* It may have entered late, if it had no processor at t0: then it stood still all the same. */
        n_compared++;
        CHECK(gate->t_first_resume == 0 || gate->t_first_resume >= shutter->t1);
    }
}

static void kill_at(const test_job *survivor, int n_stops)
{
    test_job job = start_job("victim", 1);
    stop_after_pause(&job);
    for (int i = 0; i < n_stops; i++)
        CHECK(run_on(job.agent));
    kill_agent(&job);
    nap_ms(MAX_MS);
    check_that_it_runs(&job);
    CHECK(job.segments[0]->counters.n_events < (MAX_MS + SLACK_MS) * 1000000u);
    check_samples(survivor, &job);
    finish_job(&job);
}

static int can_trace(void)
{
    pid_t pid = child();
    if (pid == 0)
        for (;;)
            pause();
    int can = ptrace(PTRACE_SEIZE, pid, 0, 0) == 0;
    end_process(pid, SIGKILL);
    return can;
}

int main(void)
{
    setenv("MPICOLOC_SHUTTER_MAX_S", "0.03", 1);
    if (!can_trace())
        return CANNOT;
    alarm(85);
    test_job survivor = start_job("survivor", 1);
    int n_stops = count_stops();
    for (int i = 0; i < N_KILLS; i++)
        kill_at(&survivor, i * n_stops / N_KILLS);
    uint64_t rounds = survivor.segments[0]->counters.n_calls;
    WAIT_FOR(survivor.segments[0]->sampling.alone && survivor.segments[0]->counters.n_calls > rounds, 5);
    CHECK(survivor.segments[0]->sampling.alone); /* none of the dead is taken for a co-runner */
    CHECK(survivor.segments[0]->counters.n_events < (MAX_MS + SLACK_MS) * 1000000u);
    fprintf(stderr, "%d valid shutters in which a rank without agent stood still\n", n_compared);
    end_job(&survivor);
    print_job(&survivor);
    forget_job(&survivor);
    return n_failed;
}
