/* The gate, which pauses a rank. Its signal handler can run in any thread, at any instruction of the application. */
#define _GNU_SOURCE
#include "common/options.h"
#include "guest/count/patch.h"
#include "guest/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* The C library cancels threads with this signal and hides it: an application cannot handle, block or await it. The
   library's own handler ignores the signal when another process has sent it. */
enum { GATE_SIGNAL = 32, MASK_BYTES = 8 };

/* The kernel's struct, for the raw system call: the C library's sigaction refuses the library's own signals. */
typedef struct kernel_sigaction {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
#ifndef __riscv
    void (*restorer)(void);
#endif
    uint64_t mask;
} kernel_sigaction;

static mc_segment *segment;
static int own_pid;
static __thread volatile unsigned n_entries; /* number of times that this thread has entered the gate */
static kernel_sigaction previous;            /* the handler before ours */

/* ---- restart of system calls that the gate's signal interrupted and that the kernel does not restart ---- */

#ifdef __x86_64__

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

enum { N_BEFORE = 32, N_SYSCALL = 2, N_NUMBER = 5, N_LOAD = 5 };

/* Length of the instruction `mov disp(%rsp),reg` at `code`; 0 for any other instruction. If a function has saved its
   arguments on the stack, compilers put such instructions between the load of the system call's number and the call. */
static size_t stack_load(const unsigned char *code, size_t n)
{
    size_t rex = n && (code[0] & 0xf0) == 0x40;
    const unsigned char *rest = code + rex;
    int is_load = n >= rex + N_LOAD - 1 && rest[0] == 0x8b && (rest[1] & 0xc7) == 0x44 && rest[2] == 0x24;
    int into_rax = (rest[1] & 0x38) == 0 && !(rex && code[0] & 4);
    return is_load && !into_rax ? rex + N_LOAD - 1 : 0;
}

/* Number of the system call if `code` ends with the load of that number and the instruction `syscall`; otherwise -1.
   The number must be read from the code because the call's result has overwritten its register. */
static long number_of(const unsigned char code[N_BEFORE])
{
    const unsigned char *end = code + N_BEFORE - N_SYSCALL;
    if (end[0] != 0x0f || end[1] != 0x05)
        return -1;
    if (end[-2] == 0x31 && end[-1] == 0xc0 && (end[-3] & 0xf0) != 0x40) /* xor %eax,%eax */
        return 0;
    for (const unsigned char *at = end - N_NUMBER; at > code; at--) {
        int32_t number;
        /* An odd REX prefix would make this a move into %r8d. */
        if (at[0] != 0xb8 || (at[-1] & 0xf1) == 0x41)
            continue;
        const unsigned char *next = at + N_NUMBER;
        for (size_t n = 1; next < end && n; next += n)
            n = stack_load(next, (size_t)(end - next));
        memcpy(&number, at + 1, sizeof number);
        if (next == end)
            return number;
    }
    return -1;
}

/* These calls have had no effect when they return EINTR, so they can be repeated. */
static const short restartable[] = {
    SYS_poll,     SYS_select, SYS_epoll_wait,  SYS_nanosleep,    SYS_clock_nanosleep, SYS_futex,
    SYS_semop,    SYS_msgrcv, SYS_msgsnd,      SYS_semtimedop,   SYS_rt_sigtimedwait, SYS_io_getevents,
    SYS_read,     SYS_readv,  SYS_recvfrom,    SYS_recvmsg,      SYS_recvmmsg,        SYS_accept,
    SYS_write,    SYS_writev, SYS_sendto,      SYS_sendmsg,      SYS_connect,         SYS_accept4,
    SYS_pselect6, SYS_ppoll,  SYS_epoll_pwait, SYS_epoll_pwait2, SYS_pause,           SYS_rt_sigsuspend,
};

/* Copy through the kernel, because a direct read faults if the memory is not mapped. */
static int read_there(void *copy, const void *there, size_t n)
{
    struct iovec from = {(void *)(uintptr_t)there, n}, to = {copy, n};
    return syscall(SYS_process_vm_readv, getpid(), &to, 1ul, &from, 1ul, 0ul) == (long)n;
}

/* Address of the signal mask that this system call sets for its duration; NULL if it sets none. */
static const void *mask_of_call(long number, const greg_t *registers)
{
    const void *mask = NULL;
    switch (number) {
    case SYS_rt_sigsuspend:
        return (const void *)registers[REG_RDI];
    case SYS_ppoll:
        return (const void *)registers[REG_R10];
    case SYS_pselect6: /* a pointer to the pointer */
        return registers[REG_R9] && read_there(&mask, (const void *)registers[REG_R9], sizeof mask) ? mask : NULL;
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
        return (const void *)registers[REG_R8];
    default:
        return NULL;
    }
}

/* Whether a system call waits for signals. */
typedef enum signal_wait {
    NO_WAIT,  /* does not wait for signals */
    MAY_WAIT, /* can wait for a signal that could also have come before the call */
    WAITS,    /* waits for a signal that the caller unblocks only during the call */
} signal_wait;

static signal_wait waits_for_signals(long number, const ucontext_t *context)
{
    const void *there = mask_of_call(number, context->uc_mcontext.gregs);
    uint64_t mask, blocked;
    memcpy(&blocked, &context->uc_sigmask, sizeof blocked);
    if (there)
        return !read_there(&mask, there, sizeof mask) || blocked & ~mask ? WAITS : MAY_WAIT;
    return number == SYS_pause ? MAY_WAIT : NO_WAIT;
}

/* Our signal may have interrupted the call, or a signal of the application may have ended it just before ours came. The
   two cases look the same. In the second case, a repeated call would wait for a signal that has already come. So calls
   that wait for signals are not repeated; their callers expect spurious wake-ups. */
static int may_begin_again(long number, const ucontext_t *context, int just_begun)
{
    signal_wait wait = waits_for_signals(number, context);
    if (wait == WAITS || (wait == MAY_WAIT && !just_begun))
        return 0;
    for (size_t i = 0; i < sizeof restartable / sizeof *restartable; i++)
        if (restartable[i] == number)
            return 1;
    return 0;
}

/* 1 if a signal that the application handles came together with ours and is pending until our handler returns. In that
   case, the application's signal ends the call. */
static int others_wait(const ucontext_t *context)
{
    uint64_t waiting = 0, blocked;
    memcpy(&blocked, &context->uc_sigmask, sizeof blocked);
    if (syscall(SYS_rt_sigpending, &waiting, sizeof waiting) != 0)
        return 1;
    waiting &= ~blocked;
    for (int signal = 1; waiting; signal++, waiting >>= 1) {
        uint64_t action[4] = {0}; /* the handler comes first */
        if ((waiting & 1) && syscall(SYS_rt_sigaction, signal, NULL, action, sizeof waiting) == 0 && action[0] > 1)
            return 1;
    }
    return 0;
}

/* For a signal handler: if this signal alone interrupted a system call that the kernel does not restart, make the
   call begin again when the handler returns. MAY_WAIT calls restart only if `just_begun`; calls that wait for signals
   never restart. Async-signal-safe. */
static void restart_call(ucontext_t *context, int just_begun)
{
    greg_t *registers = context->uc_mcontext.gregs;
    unsigned char code[N_BEFORE];
    /* The page before may be unmapped, and code pages need not be readable. */
    if (registers[REG_RAX] != -EINTR || !read_there(code, (const char *)registers[REG_RIP] - N_BEFORE, N_BEFORE))
        return;
    long number = number_of(code);
    if (number < 0 || !may_begin_again(number, context, just_begun) || others_wait(context))
        return;
    registers[REG_RAX] = number;
    registers[REG_RIP] -= N_SYSCALL;
}

#else

#define restart_call(context, just_begun) ((void)(context), (void)(just_begun))

#endif

/* ---- pauses ---- */

static void keep_lowest(uint64_t *field, uint64_t value)
{
    uint64_t seen = __atomic_load_n(field, __ATOMIC_RELAXED);
    while ((seen == 0 || value < seen) &&
           !__atomic_compare_exchange_n(field, &seen, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

/* Sleep until deadline_ns. This function never returns early, and returns late by the scheduler's latency. Signals of
   the application are handled meanwhile, and *n_handled counts them. */
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
            *n_handled += n_entries == n_before; /* do not count the gate's own signal, which requests another pause */
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
    mc_patch_register_thread();
    if (mc_patch_is_asked()) {
        mc_patch_take_part();
        account(mc_now_ns() - now);
    } else if (deadline > now) {
        uint64_t until = deadline - now > max_ns ? now + max_ns : deadline;
        uint64_t t = stand_still(now, until, &context->uc_sigmask, &n_handled);
        account(t - now);
        if (__atomic_load_n(&gate->epoch, __ATOMIC_RELAXED) == epoch)
            keep_lowest(&gate->t_first_resume, t);
    }
    return n_handled;
}

/* Pass on a signal that we have not sent, because the C library cancels threads with the same signal. */
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

/* The signal's handler. It makes only async-signal-safe calls. */
static void on_gate(int signal, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    uint64_t value = (uint64_t)(uintptr_t)info->si_value.sival_ptr;
    int is_marked = value == MC_GATE_VALUE(value);
    if (is_marked && info->si_code == SI_TIMER) {
        mc_patch_obey_lease();
        restart_call(context, 0);
    } else if (!is_marked || info->si_code != SI_QUEUE) {
        hand_on(signal, info, context);
    } else {
        /* Read this before the pause adds a sleep. If the thread has slept once since the agent saw it running, it
           slept in the call that our signal interrupted. */
        uint32_t n_sleeps = n_sleeps_of_thread();
        /* A forked child inherits handler and mapping, but is not the rank. */
        int n_handled = segment && (int)syscall(SYS_getpid) == own_pid ? pass_gate(context) : 0;
        if (!n_handled)
            restart_call(context, n_sleeps == (uint32_t)value + 1);
    }
    errno = saved_errno;
}

#ifdef __x86_64__
/* The code to which the handler returns. Debuggers and unwinders (thread cancellation) recognise it by exactly these
   bytes, after an instruction that is not a call. */
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

/* Install our handler in front of the present one. */
static int take_signal(void)
{
    kernel_sigaction present, action = {.handler = on_gate,
                                        /* SA_ONSTACK: runtimes with tiny or moving stacks (Go) require it */
                                        .flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK | RETURN_FLAG,
#ifndef __riscv
                                        .restorer = mc_gate_return,
#endif
                                        /* Block the application's signals until we know which system call our signal
                                           has interrupted. */
                                        .mask = ~(uint64_t)0};
    if (kernel_action(NULL, &present) != 0)
        return MC_E_SIGNAL;
    if (present.handler == on_gate)
        return MC_OK;
    previous = present;
    return kernel_action(&action, NULL) == 0 ? MC_OK : MC_E_SIGNAL;
}

/* Wrapper that installs our handler again, because the C library replaces it when a program first cancels a thread. */
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
    own_segment->gate.max_ns = (uint64_t)(mc_option_number(MC_OPT_SHUTTER_MAX_S) * 1e9);
    own_segment->gate.signal = 0;
    segment = own_segment;
    own_pid = (int)getpid();
    if (take_signal() != MC_OK)
        return MC_E_SIGNAL;
    uint64_t only = (uint64_t)1 << (GATE_SIGNAL - 1);
    /* the signal may be blocked, because a process inherits its parent's signal mask */
    syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &only, NULL, (size_t)MASK_BYTES);
    own_segment->gate.signal = GATE_SIGNAL;
    return MC_OK;
}
