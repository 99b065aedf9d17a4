/* The gate: how a rank stands still. Its handler may run in any thread, at any instruction of the application. */
#define _GNU_SOURCE
#include "common/options.h"
#include "guest/count/patch.h"
#include "guest/hooks.h"
#include "guest/restart.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The C library cancels threads with this signal. An application can neither handle, block nor wait for it, because
   the library hides it. The library's own handler ignores it when another process has sent it. */
enum { GATE_SIGNAL = 32, MASK_BYTES = 8 };

/* As the kernel defines it: the C library's sigaction refuses its own signals. */
typedef struct kernel_sigaction {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
#ifndef __riscv
    void (*restorer)(void);
#endif
    uint64_t mask;
} kernel_sigaction;

static const double LONGEST_MAX_S = 1.0;

static mc_segment *segment;
static int own_pid;
static __thread volatile unsigned n_entries; /* how often this thread has entered the gate */
static kernel_sigaction previous;            /* the handler before ours */

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

/* Stand still until deadline_ns. Returns early never, late by the scheduler's latency. Signals of the application
   are handled meanwhile; *n_handled tells whether there were any. */
static uint64_t stand_still(uint64_t now, uint64_t deadline_ns, const sigset_t *mask, int *n_handled)
{
    uint64_t t = now;
    while (t < deadline_ns) {
        uint64_t rest_ns = deadline_ns - t;
        unsigned n_before = n_entries;
        struct timespec rest = {(time_t)(rest_ns / 1000000000u), (long)(rest_ns % 1000000000u)};
        if (syscall(SYS_ppoll, NULL, 0ul, &rest, mask, (size_t)MASK_BYTES) < 0) {
            if (errno != EINTR)
                break;
            *n_handled += n_entries == n_before; /* do not count a second pause that began within this one */
        }
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

static int pass_gate(const ucontext_t *context)
{
    mc_gate *gate = &segment->gate;
    int n_handled = 0;
    n_entries++;
    uint64_t now = mc_now_ns(), epoch = __atomic_load_n(&gate->epoch, __ATOMIC_ACQUIRE);
    uint64_t deadline = __atomic_load_n(&gate->deadline_ns, __ATOMIC_RELAXED), max_ns = gate->max_ns;
    __atomic_fetch_add(&gate->n_acks, 1, __ATOMIC_RELAXED);
    keep_lowest(&gate->t_first_enter, now);
    keep_highest(&gate->t_last_enter, now);
    mc_patch_register_thread();
    if (mc_patch_is_asked()) {
        mc_patch_take_part();
        account(mc_now_ns() - now);
    } else if (deadline > now) {
        uint64_t until = deadline - now > max_ns ? now + max_ns : deadline;
        uint64_t t = stand_still(now, until, &context->uc_sigmask, &n_handled);
        account(t - now);
        if (__atomic_load_n(&gate->epoch, __ATOMIC_RELAXED) == epoch) {
            keep_lowest(&gate->t_first_resume, t);
            keep_highest(&gate->t_last_resume, t);
        }
    }
    return n_handled;
}

/* Not ours: the C library cancels threads with this signal. */
static void hand_on(int signal, siginfo_t *info, ucontext_t *context)
{
    void (*handler)(int, siginfo_t *, void *) = previous.handler;
    uint64_t mask;
    if ((uintptr_t)handler == (uintptr_t)SIG_DFL || (uintptr_t)handler == (uintptr_t)SIG_IGN)
        return;
    memcpy(&mask, &context->uc_sigmask, sizeof mask);
    mask |= previous.mask | (uint64_t)1 << (signal - 1);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, (size_t)MASK_BYTES);
    handler(signal, info, context);
}

static uint32_t n_sleeps_of_thread(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint32_t)usage.ru_nvcsw : 0;
}

/* The signal's handler: only async-signal-safe calls. */
static void on_gate(int signal, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
    int is_marked = value == MC_GATE_VALUE(value);
    if (is_marked && info->si_code == SI_TIMER) {
        mc_patch_obey_lease();
        mc_restart_call(context, 0);
    } else if (!is_marked || info->si_code != SI_QUEUE) {
        hand_on(signal, info, context);
    } else {
        /* Read this before the thread sleeps here. If it has slept once since the agent saw it running, it did so in
           the call that we interrupted. */
        uint32_t n_sleeps = n_sleeps_of_thread();
        /* A forked child inherits handler and mapping, but is not the rank. */
        int n_handled = segment && (int)syscall(SYS_getpid) == own_pid ? pass_gate(context) : 0;
        if (!n_handled)
            mc_restart_call(context, n_sleeps == (uint32_t)value + 1);
    }
    errno = saved_errno;
}

#ifdef __x86_64__
/* The kernel must be told how a handler returns. Debuggers and unwinders (thread cancellation) recognise exactly
   these bytes, behind an instruction that is no call. */
void mc_gate_return(void);
__asm__(".text\n\tnop\n\t.balign 16\n\t.hidden mc_gate_return\n\t.globl mc_gate_return\n"
        "\t.type mc_gate_return,@function\nmc_gate_return:\n\tmovq $15, %rax\n\tsyscall\n"
        "\t.size mc_gate_return,.-mc_gate_return");
enum { RETURN_FLAG = 0x04000000 };
#else
#define mc_gate_return NULL
enum { RETURN_FLAG = 0 };
#endif

static long kernel_action(const kernel_sigaction *action, kernel_sigaction *old)
{
    return syscall(SYS_rt_sigaction, GATE_SIGNAL, action, old, (size_t)MASK_BYTES);
}

/* Put our handler in front of the present one. */
static int take_signal(void)
{
    kernel_sigaction present, action = {.handler = on_gate,
                                        /* SA_ONSTACK: runtimes with tiny or moving stacks (Go) require it */
                                        .flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK | RETURN_FLAG,
#ifndef __riscv
                                        .restorer = mc_gate_return,
#endif
                                        /* Block the application's signals until we know which system call ours has
                                           interrupted. */
                                        .mask = ~(uint64_t)0};
    if (kernel_action(NULL, &present) != 0)
        return MC_E_SIGNAL;
    if (present.handler == on_gate)
        return MC_OK;
    previous = present;
    return kernel_action(&action, NULL) == 0 ? MC_OK : MC_E_SIGNAL;
}

/* When a program cancels its first thread, the C library installs its own handler again. */
__attribute__((visibility("default"))) int pthread_cancel(pthread_t thread)
{
    static int (*real)(pthread_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_cancel");
    int status = real ? real(thread) : ENOSYS;
    if (segment && segment->gate.signal && (int)getpid() == own_pid)
        take_signal();
    return status;
}

int mc_gate_install(mc_segment *own_segment)
{
    double max_s = mc_option_number(MC_OPT_SHUTTER_MAX_S);
    max_s = max_s > LONGEST_MAX_S ? LONGEST_MAX_S : max_s > 0 ? max_s : 0;
    own_segment->gate.max_ns = (uint64_t)(max_s * 1e9);
    own_segment->gate.signal = 0;
    segment = own_segment;
    own_pid = (int)getpid();
    if (take_signal() != MC_OK)
        return MC_E_SIGNAL;
    uint64_t only = (uint64_t)1 << (GATE_SIGNAL - 1);
    /* the signal may be blocked: a process inherits its mask */
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &only, NULL, (size_t)MASK_BYTES);
    own_segment->gate.signal = GATE_SIGNAL;
    return MC_OK;
}
