/* The gate: how a rank stands still. Its handler may run in any thread, at any instruction of the application. */
#define _GNU_SOURCE
#include "hooks.h"
#include "options.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { N_SIGNALS_TRIED = 16 };

static const double LONGEST_MAX_S = 1.0;

static mc_segment *segment;
static int own_pid;

static void keep_lowest(uint64_t *field, uint64_t value)
{
    uint64_t seen = __atomic_load_n(field, __ATOMIC_RELAXED);
    while ((seen == 0 || value < seen) &&
           !__atomic_compare_exchange_n(field, &seen, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void keep_highest(uint64_t *field, uint64_t value)
{
    uint64_t seen = __atomic_load_n(field, __ATOMIC_RELAXED);
    while (value > seen && !__atomic_compare_exchange_n(field, &seen, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Stand still until deadline_ns. Returns early never, late by the scheduler's latency. */
static uint64_t stand_still(uint64_t now, uint64_t deadline_ns)
{
    struct timespec until = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    uint64_t t = now;
    while (t < deadline_ns) {
        if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINVAL)
            break;
        t = mc_now_ns();
    }
    return t;
}

static void account(uint64_t paused_ns)
{
    mc_thread_paused_ns += paused_ns;
    __atomic_fetch_add(&segment->counters.n_pauses, 1, __ATOMIC_RELAXED);
    if ((int)syscall(SYS_gettid) == own_pid)
        __atomic_fetch_add(&segment->counters.paused_ns, paused_ns, __ATOMIC_RELAXED);
}

/* The signal's handler: only async-signal-safe calls. */
static void on_gate(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    int saved_errno = errno;
    /* A forked child inherits handler and mapping, but is not the rank. */
    if (segment && (int)syscall(SYS_getpid) == own_pid) {
        mc_gate *gate = &segment->gate;
        uint64_t now = mc_now_ns(), epoch = __atomic_load_n(&gate->epoch, __ATOMIC_ACQUIRE);
        uint64_t deadline = __atomic_load_n(&gate->deadline_ns, __ATOMIC_RELAXED), max_ns = gate->max_ns;
        __atomic_fetch_add(&gate->n_acks, 1, __ATOMIC_RELAXED);
        keep_lowest(&gate->t_first_enter, now);
        keep_highest(&gate->t_last_enter, now);
        if (deadline > now) {
            uint64_t t = stand_still(now, deadline - now > max_ns ? now + max_ns : deadline);
            account(t - now);
            if (__atomic_load_n(&gate->epoch, __ATOMIC_RELAXED) == epoch) {
                keep_lowest(&gate->t_first_resume, t);
                keep_highest(&gate->t_last_resume, t);
            }
        }
    }
    errno = saved_errno;
}

static int free_signal(void)
{
    for (int signal = SIGRTMAX - 3, i = 0; signal > SIGRTMIN && i < N_SIGNALS_TRIED; signal--, i++) {
        struct sigaction present;
        if (sigaction(signal, NULL, &present) == 0 && !(present.sa_flags & SA_SIGINFO) && present.sa_handler == SIG_DFL)
            return signal;
    }
    return 0;
}

int mc_gate_install(mc_segment *own_segment)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_gate;
    /* SA_ONSTACK: runtimes with tiny or moving stacks (Go) ask for it; without an alternate stack it changes nothing. */
    action.sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    double max_s = mc_option_number(MC_OPT_SHUTTER_MAX_S);
    max_s = max_s > LONGEST_MAX_S ? LONGEST_MAX_S : max_s > 0 ? max_s : 0;
    own_segment->gate.max_ns = (uint64_t)(max_s * 1e9);
    own_segment->gate.signal = 0;
    segment = own_segment;
    own_pid = (int)getpid();
    int signal = free_signal();
    if (signal == 0 || sigaction(signal, &action, NULL) != 0)
        return MC_E_SIGNAL;
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL); /* the launcher may have left it blocked */
    own_segment->gate.signal = signal;
    return MC_OK;
}
