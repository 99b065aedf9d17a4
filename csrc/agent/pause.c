/* A shutter of another job: this job's ranks stand still, and say so on the board. */
#define _GNU_SOURCE
#include "agent/agent.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N_TIDS = 1024, N_LOOKS = 4 };

static const uint64_t FRESH_NS = 100000;

static uint64_t cpu_ns(const mc_agent *agent, const mc_rank *rank)
{
    struct timespec t;
    if (clock_gettime(rank->cpu_clock, &t) != 0)
        return 0;
    uint64_t ns = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    /* In tests the agent is a thread of a rank. */
    if ((uint32_t)rank->pid == (uint32_t)(agent->owner >> 32) && clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0)
        ns -= mc_min(ns, (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
    return ns;
}

static int within_duty(const mc_agent *agent, uint64_t now, uint64_t pause_ns)
{
    uint64_t allowance_ns = 2 * agent->option_duration_ns;
    double budget_ns = agent->duty_frac * (double)(now - agent->t_open) + (double)allowance_ns;
    return (double)(agent->paused_ns + pause_ns) <= budget_ns;
}

void mc_pause_prepare(mc_agent *agent, uint64_t i_target)
{
    mc_reservation *next = &agent->obeyed;
    mc_slot *slot = &agent->board->slots[agent->live[i_target].i_slot];
    int reserved = mc_slot_reservation(slot, next) == MC_OK && next->epoch == agent->t_instant &&
                   next->t0 == agent->t_instant && next->t1 > next->t0;
    if (!reserved) {
        next->epoch = 0;
        return;
    }
    uint64_t pause_ns = next->t1 - next->t0;
    if (pause_ns > agent->max_ns || !within_duty(agent, mc_now_ns(), pause_ns)) {
        agent->node->n_refused++;
        next->epoch = 0;
        return;
    }
    for (int i = 0; i < agent->n_ranks; i++) {
        mc_rank *rank = &agent->ranks[i];
        int signal = rank->segment->gate.signal;
        rank->may_signal = rank->alive && signal && mc_proc_catches(rank->pid, signal);
    }
}

static void set_gate(mc_gate *gate, const mc_reservation *shutter)
{
    __atomic_store_n(&gate->n_acks, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->t_first_enter, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->t_last_enter, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->t_first_resume, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->t_last_resume, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->deadline_ns, shutter->t1, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->epoch, shutter->epoch, __ATOMIC_RELEASE);
}

static int send_signal(const mc_rank *rank, int tid, int signal, uint64_t n_sleeps)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = signal;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    info.si_value.sival_ptr = (void *)(uintptr_t)MC_GATE_VALUE(n_sleeps);
    return syscall(SYS_rt_tgsigqueueinfo, rank->pid, tid, signal, &info) == 0;
}

/* A look at the thread that is fresh: whoever is told on an old one has begun other calls since. */
static int look(mc_proc_thread *thread, const mc_rank *rank, int tid, int signal)
{
    uint64_t now = mc_now_ns(), before;
    int status, n_looks = 0;
    do {
        before = now;
        status = mc_proc_read_thread(thread, rank->pid, tid, signal);
        now = mc_now_ns();
    } while (status == MC_OK && now - before > FRESH_NS && ++n_looks < N_LOOKS);
    return status;
}

/* A running thread that blocks the signal is left alone too: it would gather signals, and stand still too late. */
int mc_pause_each_running(const mc_rank *rank, int signal, int *n_untold)
{
    int tids[N_TIDS], own_tid = (int)syscall(SYS_gettid), n_running = 0;
    *n_untold = 0;
    int n = mc_proc_threads(rank->pid, tids, N_TIDS, n_untold);
    for (int i = 0; i < n; i++) {
        mc_proc_thread thread;
        if (tids[i] == own_tid || look(&thread, rank, tids[i], signal) != MC_OK)
            continue;
        int counts = thread.state == 'R' &&
                     (signal == 0 || (thread.handles && send_signal(rank, tids[i], signal, thread.n_sleeps)));
        n_running += counts;
        *n_untold += !counts;
    }
    return n_running;
}

/* Threads that sleep stay as they are: their system calls are not interrupted. */
static int tell_ranks(mc_agent *agent)
{
    int all_told = 1;
    for (int i = 0; i < agent->n_ranks; i++) {
        mc_rank *rank = &agent->ranks[i];
        rank->n_signalled = 0;
        if (!rank->alive)
            continue;
        if (!rank->may_signal) {
            all_told = 0;
            continue;
        }
        set_gate(&rank->segment->gate, &agent->obeyed);
        rank->n_signalled = mc_pause_each_running(rank, rank->segment->gate.signal, &rank->n_untold);
    }
    return all_told;
}

static uint64_t rank_moved_ns(const mc_agent *agent, const mc_rank *rank, mc_ack *ack)
{
    const mc_gate *gate = &rank->segment->gate;
    uint64_t used = cpu_ns(agent, rank), resumed = __atomic_load_n(&gate->t_first_resume, __ATOMIC_RELAXED);
    uint64_t t1 = agent->obeyed.t1, now = mc_now_ns(), n_signalled = (uint64_t)rank->n_signalled;
    if (resumed)
        ack->t_resume = mc_min(ack->t_resume, resumed);
    used -= mc_min(used, rank->cpu_ns);
    if (now >= t1) /* woken late: the ranks run again, rightly */
        return used - mc_min(used, (now - t1) * n_signalled);
    if (rank->n_untold == 0)
        return used;
    /* A thread that slept at t0 and woke since is running unpaused, but its processor time is not booked before the
       next tick. Threads told and not yet in the handler are runnable too: they wait for a processor, at rest. */
    int n_untold;
    uint64_t n_running = (uint64_t)mc_pause_each_running(rank, 0, &n_untold);
    uint64_t n_acks = __atomic_load_n(&gate->n_acks, __ATOMIC_RELAXED);
    return n_running + n_acks > n_signalled ? t1 - agent->obeyed.t0 : used;
}

static int pause_ranks(mc_agent *agent, mc_ack *ack)
{
    mc_reservation shutter = agent->obeyed;
    uint64_t duration_ns = shutter.t1 - shutter.t0, now = mc_now_ns();
    int all_told = tell_ranks(agent);
    ack->t_told = mc_now_ns();
    agent->node->n_pauses++;
    agent->paused_ns += shutter.t1 - mc_min(now, shutter.t1);
    agent->node->paused_ns = agent->paused_ns;
    /* A thread's processor time is booked when it has come off its processor, so wait for that. */
    mc_sleep_until(mc_min(mc_max(ack->t_told, shutter.t0 + mc_guard_ns(duration_ns)), shutter.t1), &agent->wake);
    for (int i = 0; i < agent->n_ranks; i++)
        agent->ranks[i].cpu_ns = cpu_ns(agent, &agent->ranks[i]);
    mc_sleep_until(shutter.t1 - mc_margin_ns(duration_ns), &agent->wake);
    for (int i = 0; i < agent->n_ranks; i++)
        if (agent->ranks[i].alive)
            ack->moved_ns += rank_moved_ns(agent, &agent->ranks[i], ack);
    return all_told;
}

void mc_pause_do(mc_agent *agent)
{
    mc_reservation shutter = agent->obeyed;
    if (shutter.epoch == 0)
        return;
    mc_sleep_until(shutter.t0, &agent->wake);
    uint64_t now = mc_now_ns();
    if (now < shutter.t0) /* told to stop */
        return;
    mc_ack ack = {.epoch = shutter.epoch, .t_told = now, .t_resume = shutter.t1};
    /* Too late to be of use to the target: say so and spare the ranks the pause. */
    int all_told = now > shutter.t0 + mc_guard_ns(shutter.t1 - shutter.t0) || pause_ranks(agent, &ack);
    if (all_told)
        mc_slot_acknowledge(agent->slot, &ack);
}
