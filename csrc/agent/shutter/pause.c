#define _GNU_SOURCE
#include "agent/shutter/pause.h"

#include "agent/shutter/intervals.h"
#include "common/proc.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N_TIDS = 1024, N_READS_MAX = 4 };

static const uint64_t FRESH_NS = 100000;

static uint64_t cpu_ns(const mc_board_view *view, const mc_rank *rank)
{
    uint64_t ns = mc_clock_ns(rank->cpu_clock);
    /* In tests the agent is a thread of a rank: subtract its own time. */
    int is_within = (uint32_t)rank->pid == (uint32_t)(view->owner >> 32);
    return is_within ? ns - mc_min(ns, mc_clock_ns(CLOCK_THREAD_CPUTIME_ID)) : ns;
}

void mc_pause_prepare(mc_pause *pause, const mc_board_view *view, mc_job_ranks *ranks, mc_node *node, int i_live,
                      uint64_t t_instant)
{
    mc_reservation *next = &pause->shutter;
    int is_reserved = mc_slot_reservation(mc_view_slot(view, i_live), next) == MC_OK && next->epoch == t_instant &&
                      next->t0 == t_instant && next->t1 > next->t0;
    if (!is_reserved || mc_is_spared(next, mc_view_own_slot(view))) {
        next->epoch = 0;
        return;
    }
    uint64_t duration_ns = next->t1 - next->t0, now = mc_now_ns();
    mc_duty_update(&pause->duty, ranks, node, now);
    if (duration_ns > pause->duty.longest_ns || !mc_duty_allows(&pause->duty, duration_ns, now)) {
        node->n_refused++;
        next->epoch = 0;
        return;
    }
    for (int i = 0; i < ranks->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        int signal = rank->segment->gate.signal;
        rank->has_handler = rank->alive && signal && mc_proc_catches(rank->pid, signal);
    }
}

void mc_gate_set(mc_gate *gate, uint64_t deadline_ns, uint64_t epoch)
{
    __atomic_store_n(&gate->n_acks, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->t_first_enter, 0, __ATOMIC_RELAXED);
    if (deadline_ns) /* without a deadline, keep the value of the last pause, which is still needed */
        __atomic_store_n(&gate->t_first_resume, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->deadline_ns, deadline_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&gate->epoch, epoch, __ATOMIC_RELEASE);
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

/* Re-read until the sample is less than 100 us old: a thread that was seen running before may be asleep in a system
   call by now. */
static int read_fresh(mc_proc_thread *thread, const mc_rank *rank, int tid, int signal)
{
    uint64_t now = mc_now_ns(), before;
    int status, n_reads = 0;
    do {
        before = now;
        status = mc_proc_read_thread(thread, rank->pid, tid, signal);
        now = mc_now_ns();
    } while (status == MC_OK && now - before > FRESH_NS && ++n_reads < N_READS_MAX);
    return status;
}

/* A running thread that blocks the signal is not signalled either, because signals would queue up and pause the thread
   too late. */
int mc_signal_running_threads(const mc_rank *rank, int signal, int *n_skipped)
{
    int tids[N_TIDS], own_tid = (int)syscall(SYS_gettid), n_running = 0;
    *n_skipped = 0;
    int n = mc_proc_threads(rank->pid, tids, N_TIDS, n_skipped);
    for (int i = 0; i < n; i++) {
        mc_proc_thread thread;
        if (tids[i] == own_tid || read_fresh(&thread, rank, tids[i], signal) != MC_OK)
            continue;
        int counts = thread.state == 'R' &&
                     (signal == 0 || (thread.handles && send_signal(rank, tids[i], signal, thread.n_sleeps)));
        n_running += counts;
        *n_skipped += !counts;
    }
    return n_running;
}

/* Withdraw a patch request that a killed agent has left behind. Threads would otherwise wait for that request instead
   of pausing. */
static void withdraw_request(mc_counting *counting)
{
    uint32_t request = __atomic_load_n(&counting->request, __ATOMIC_ACQUIRE);
    if (request >= MC_PATCH_ASSEMBLE && request <= MC_PATCH_REMOVE)
        __atomic_compare_exchange_n(&counting->request, &request, MC_PATCH_NONE, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Signal the running threads of all ranks. Sleeping threads are not signalled, because a signal would interrupt their
   system calls. Returns 0 if a rank cannot be signalled. */
static int signal_ranks(const mc_pause *pause, mc_job_ranks *ranks)
{
    int all_signalled = 1;
    for (int i = 0; i < ranks->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        rank->n_signalled = 0;
        if (!rank->alive)
            continue;
        if (!rank->has_handler) {
            all_signalled = 0;
            continue;
        }
        withdraw_request(&rank->segment->counting);
        mc_gate_set(&rank->segment->gate, pause->shutter.t1, pause->shutter.epoch);
        rank->n_signalled = mc_signal_running_threads(rank, rank->segment->gate.signal, &rank->n_skipped);
    }
    return all_signalled;
}

/* Processor time that the rank has used inside the shutter. */
static uint64_t moved_ns(const mc_reservation *shutter, const mc_board_view *view, const mc_rank *rank, mc_ack *ack)
{
    const mc_gate *gate = &rank->segment->gate;
    uint64_t used = cpu_ns(view, rank), resumed = __atomic_load_n(&gate->t_first_resume, __ATOMIC_RELAXED);
    uint64_t now = mc_now_ns(), n_signalled = (uint64_t)rank->n_signalled;
    if (resumed)
        ack->t_resume = mc_min(ack->t_resume, resumed);
    used -= mc_min(used, rank->cpu_ns);
    if (now >= shutter->t1) /* the agent woke late, and the ranks run again, as they should */
        return used - mc_min(used, (now - shutter->t1) * n_signalled);
    if (rank->n_skipped == 0)
        return used;
    /* A thread that slept at t0 and has woken since runs unpaused, but the kernel books its processor time only at the
       next tick. So compare numbers of threads. Threads that were signalled and are not yet in the handler are runnable
       too, but do no work, because they wait for a processor. */
    int n_skipped;
    uint64_t n_running = (uint64_t)mc_signal_running_threads(rank, 0, &n_skipped);
    uint64_t n_acks = __atomic_load_n(&gate->n_acks, __ATOMIC_RELAXED);
    return n_running + n_acks > n_signalled ? shutter->t1 - shutter->t0 : used;
}

int mc_pause_begin(mc_pause *pause, mc_job_ranks *ranks, mc_node *node, int *wake)
{
    const mc_reservation *shutter = &pause->shutter;
    pause->is_begun = pause->has_ack = 0;
    if (shutter->epoch == 0)
        return 0;
    mc_sleep_until(shutter->t0, wake);
    uint64_t now = mc_now_ns();
    if (now < shutter->t0) /* woken by *wake */
        return 0;
    pause->ack = (mc_ack){.epoch = shutter->epoch, .t_told = now, .t_resume = shutter->t1};
    /* Too late for a valid shutter: acknowledge that, and do not pause the ranks. */
    pause->has_ack = now > shutter->t0 + mc_guard_ns(shutter->t1 - shutter->t0);
    if (pause->has_ack)
        return 0;
    pause->is_begun = 1;
    pause->has_ack = signal_ranks(pause, ranks);
    pause->ack.t_told = mc_now_ns();
    node->n_pauses++;
    pause->duty.asked_ns += shutter->t1 - mc_min(now, shutter->t1);
    node->paused_ns = pause->duty.asked_ns;
    return pause->has_ack;
}

void mc_pause_stand(const mc_pause *pause, const mc_board_view *view, mc_job_ranks *ranks, int *wake)
{
    const mc_reservation *shutter = &pause->shutter;
    uint64_t duration_ns = shutter->t1 - shutter->t0;
    if (!pause->is_begun)
        return;
    /* The kernel books a thread's processor time only when the thread leaves its processor, so wait until it has
       left. */
    mc_sleep_until(mc_min(mc_max(pause->ack.t_told, shutter->t0 + mc_guard_ns(duration_ns)), shutter->t1), wake);
    for (int i = 0; i < ranks->n; i++)
        ranks->rows[i].cpu_ns = cpu_ns(view, &ranks->rows[i]);
    mc_sleep_until(shutter->t1 - mc_margin_ns(duration_ns), wake);
}

void mc_pause_end(mc_pause *pause, const mc_board_view *view, const mc_job_ranks *ranks)
{
    for (int i = 0; i < ranks->n && pause->is_begun; i++)
        if (ranks->rows[i].alive)
            pause->ack.moved_ns += moved_ns(&pause->shutter, view, &ranks->rows[i], &pause->ack);
}

void mc_pause_acknowledge(const mc_pause *pause, const mc_board_view *view)
{
    if (pause->has_ack)
        mc_slot_acknowledge(view->slot, &pause->ack);
}
