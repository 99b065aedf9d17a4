#define _GNU_SOURCE
#include "agent/count/patching.h"

#include "agent/shutter/pause.h"
#include "common/proc.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const uint64_t POLL_NS = 50000, BUSY_NS = 20000000, LEASE_NS = 1000000000;

static void wake_all(mc_counting *counting)
{
    syscall(SYS_futex, &counting->request, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void set_request(mc_counting *counting, uint32_t request)
{
    __atomic_store_n(&counting->request, request, __ATOMIC_RELEASE);
}

static uint32_t get_request(const mc_counting *counting)
{
    return __atomic_load_n(&counting->request, __ATOMIC_ACQUIRE);
}

int mc_patching_may(const mc_rank *rank)
{
    const mc_segment *segment = rank->segment;
    int signal = segment->gate.signal;
    return rank->alive && segment->counting.counters_offset && signal &&
           __atomic_load_n(&segment->state, __ATOMIC_ACQUIRE) == MC_RANK_RUNNING &&
           mc_proc_catches(rank->pid, signal) && !mc_proc_is_traced(rank->pid);
}

/* Send a request to a rank. Returns 0 if none of its threads runs at the moment. */
static int ask(mc_rank *rank, uint32_t request)
{
    mc_counting *counting = &rank->segment->counting;
    mc_gate_set(&rank->segment->gate, 0, mc_now_ns());
    set_request(counting, MC_PATCH_ASSEMBLE);
    int n = mc_signal_running_threads(rank, rank->segment->gate.signal, &rank->n_skipped);
    counting->n_awaited = (uint32_t)n;
    set_request(counting, n ? request : MC_PATCH_NONE);
    wake_all(counting);
    return n > 0;
}

static int is_over(const mc_rank *rank)
{
    uint32_t request = get_request(&rank->segment->counting);
    return request == MC_PATCH_NONE || request == MC_PATCH_DONE || request == MC_PATCH_FAILED;
}

static void wait_for(const mc_rank *rank, uint64_t t_limit, int *wake)
{
    while (!is_over(rank) && mc_now_ns() < t_limit && !__atomic_load_n(wake, __ATOMIC_ACQUIRE))
        mc_nap_until(mc_now_ns() + POLL_NS, wake);
}

/* Withdraw the request if no thread has begun to serve it. If a thread has begun, give that thread some more time.
   Returns 1 if the change was made. */
static int conclude(mc_rank *rank, uint32_t request, int *wake)
{
    mc_counting *counting = &rank->segment->counting;
    uint32_t asked = request;
    if (__atomic_compare_exchange_n(&counting->request, &asked, MC_PATCH_NONE, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        wake_all(counting);
    else
        wait_for(rank, mc_now_ns() + BUSY_NS, wake);
    return get_request(counting) == MC_PATCH_DONE;
}

/* Time for which the rank was stopped. This time ended when the rank's code was changed, even if the agent then waited
   for other ranks. */
static uint64_t stood_ns(const mc_segment *segment, uint64_t now)
{
    uint64_t first = __atomic_load_n(&segment->gate.t_first_enter, __ATOMIC_RELAXED);
    uint64_t last = __atomic_load_n(&segment->counting.t_changed, __ATOMIC_RELAXED);
    if (last < first) /* the rank's code was not changed */
        last = now;
    return first && first < last ? last - first : 0;
}

/* A thread that was preempted while changing code may still write the jumps at any time. */
int mc_patching_is_clean(const mc_rank *rank)
{
    const mc_counting *counting = &rank->segment->counting;
    return get_request(counting) != MC_PATCH_BUSY && !__atomic_load_n(&counting->n_patched, __ATOMIC_ACQUIRE);
}

static int is_wanted(const mc_rank *rank, uint32_t request)
{
    return rank->alive && get_request(&rank->segment->counting) != MC_PATCH_BUSY &&
           (request == MC_PATCH_INSTALL || !mc_patching_is_clean(rank)) && mc_patching_may(rank);
}

/* Do the slow checks of all ranks first, so that the ranks stop at the same time. Ranks wait for each other, so the job
   loses least if all of them stop together. */
static int ask_all(mc_job_ranks *ranks, uint32_t request)
{
    int n_asked = 0;
    for (int i = 0; i < ranks->n; i++)
        ranks->rows[i].is_asked = is_wanted(&ranks->rows[i], request);
    mc_patching_renew(ranks, mc_now_ns());
    for (int i = 0; i < ranks->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        rank->is_asked = rank->is_asked && ask(rank, request);
        n_asked += rank->is_asked;
    }
    return n_asked;
}

int mc_patching_change(mc_job_ranks *ranks, uint32_t request, uint64_t limit_ns, uint64_t *stopped_ns, int *wake)
{
    int n_done = 0, n_failed = 0, never = 0;
    uint64_t longest_ns = 0;
    /* Remove jumps even if the agent has been told to end. */
    wake = request == MC_PATCH_REMOVE ? &never : wake;
    int n_asked = ask_all(ranks, request);
    uint64_t t_limit = mc_now_ns() + limit_ns;
    for (int i = 0; i < ranks->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        if (!rank->is_asked)
            continue;
        wait_for(rank, t_limit, wake);
        n_done += conclude(rank, request, wake);
        uint64_t ns = stood_ns(rank->segment, mc_now_ns());
        longest_ns = ns > longest_ns ? ns : longest_ns;
        n_failed += get_request(&rank->segment->counting) == MC_PATCH_FAILED;
    }
    *stopped_ns += longest_ns;
    if (n_failed)
        return MC_E_ARG;
    return n_done == n_asked && (n_asked || request == MC_PATCH_REMOVE) ? MC_OK : MC_E_GONE;
}

void mc_patching_renew(mc_job_ranks *ranks, uint64_t t)
{
    for (int i = 0; i < ranks->n; i++)
        if (ranks->rows[i].is_asked)
            __atomic_store_n(&ranks->rows[i].segment->counting.lease_until_ns, t + LEASE_NS, __ATOMIC_RELAXED);
}

int mc_patching_lasts(const mc_job_ranks *ranks)
{
    for (int i = 0; i < ranks->n; i++) {
        const mc_rank *rank = &ranks->rows[i];
        if (rank->is_asked && !__atomic_load_n(&rank->segment->counting.n_patched, __ATOMIC_ACQUIRE))
            return 0;
    }
    return 1;
}

int mc_patching_ask_to_read(mc_job_ranks *ranks)
{
    int64_t answer = MC_READER_ALLOWED;
    for (int i = 0; i < ranks->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        mc_counting *counting = &rank->segment->counting;
        if (!mc_patching_may(rank))
            continue;
        int64_t its = __atomic_load_n(&counting->reader_answer, __ATOMIC_ACQUIRE);
        if (its == MC_READER_UNKNOWN) {
            __atomic_store_n(&counting->reader_pid, getpid(), __ATOMIC_RELEASE);
            mc_gate_set(&rank->segment->gate, 0, mc_now_ns());
            mc_signal_running_threads(rank, rank->segment->gate.signal, &rank->n_skipped);
        }
        if (its != MC_READER_ALLOWED && answer != MC_READER_UNKNOWN)
            answer = its;
    }
    return (int)answer;
}

static int is_refused_to_read(const mc_job_ranks *ranks)
{
    uint64_t word; /* address 0 suffices: the kernel checks the permission before it looks for the memory */
    struct iovec local = {&word, sizeof word}, remote = {NULL, sizeof word};
    for (int i = 0; i < ranks->n; i++) {
        const mc_rank *rank = &ranks->rows[i];
        if (mc_patching_may(rank) && process_vm_readv(rank->pid, &local, 1, &remote, 1, 0) < 0 && errno == EPERM)
            return 1;
    }
    return 0;
}

/* 1: the kernel lets a process name the process that may read its memory (Yama, ptrace_scope 1). */
static int obeys_ranks(void)
{
    char scope[8];
    return mc_proc_read_text("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof scope) > 0 && scope[0] == '1';
}

int mc_patching_may_read(mc_job_ranks *ranks)
{
    if (!is_refused_to_read(ranks))
        return MC_READER_ALLOWED;
    int answer = obeys_ranks() ? mc_patching_ask_to_read(ranks) : MC_READER_TAKEN;
    return answer == MC_READER_ALLOWED && is_refused_to_read(ranks) ? MC_READER_TAKEN : answer;
}

int mc_patching_is_patched(const mc_job_ranks *ranks)
{
    for (int i = 0; i < ranks->n; i++)
        if (ranks->rows[i].alive && !mc_patching_is_clean(&ranks->rows[i]))
            return 1;
    return 0;
}
