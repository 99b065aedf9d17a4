/* Some hypervisors deliver the debug exception of a breakpoint with an empty DR6, once in thousands of times. Linux
   then believes that the instruction INT1 was executed and sends SIGTRAP. The program would die of it: it hit a
   breakpoint of the agent's, which it knows nothing about. Seen on a virtual machine with an Intel Xeon. Nothing is
   known of real machines. */
#define _GNU_SOURCE
#include "common/trap.h"

#ifdef __x86_64__

#include "common/mpicoloc.h"
#include "common/proc.h"

#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { INT1 = 0xf1, PAGE_BYTES = 4096, HYPERVISOR_BIT = 31 };

static struct sigaction previous; /* the handler of SIGTRAP before ours */

/* A test may say whether the machine is virtual. */
#ifdef MC_TRAP_VIRTUAL
static int is_virtual(void)
{
    return MC_TRAP_VIRTUAL;
}
#else
static int is_virtual(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c >> HYPERVISOR_BIT & 1);
}
#endif

/* A breakpoint reports its own address, as that instruction was not executed yet. INT1 reports the address behind
   it; under some hypervisors (seen with an AMD EPYC) also its own. */
static int has_lost_its_reason(const siginfo_t *info, const ucontext_t *context)
{
    uintptr_t place = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    const unsigned char *next = (const unsigned char *)place;
    if (info->si_code != TRAP_BRKPT || (uintptr_t)info->si_addr != place || next[0] == INT1)
        return 0;
    return place % PAGE_BYTES == 0 || next[-1] != INT1;
}

static void on_trap(int signal, siginfo_t *info, void *context)
{
    if (has_lost_its_reason(info, context))
        return; /* the instruction runs again, and now the breakpoint counts it */
    struct sigaction before = previous;
    if (before.sa_flags & (int)SA_RESETHAND)
        previous = (struct sigaction){.sa_handler = SIG_DFL};
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signal, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(signal);
    else if (before.sa_handler == SIG_DFL || info->si_code > 0) { /* an exception of the processor cannot be ignored */
        struct sigaction fatal = {.sa_handler = SIG_DFL};
        sigaction(signal, &fatal, NULL);
        raise(signal);
    }
}

void mc_trap_guard(void)
{
    struct sigaction action = {.sa_sigaction = on_trap}, present;
    if (!is_virtual() || sigaction(SIGTRAP, NULL, &present) != 0 || present.sa_sigaction == on_trap)
        return;
    previous = present;
    action.sa_mask = present.sa_mask;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | (present.sa_flags & (SA_NODEFER | SA_RESTART));
    sigaction(SIGTRAP, &action, NULL);
}

void mc_trap_guard_thread(void)
{
    sigset_t only;
    mc_trap_guard();
    sigemptyset(&only);
    sigaddset(&only, SIGTRAP);
    pthread_sigmask(SIG_UNBLOCK, &only, NULL);
}

int mc_trap_is_guarded(int tid)
{
    mc_proc_thread thread;
    int of = tid ? tid : (int)syscall(SYS_gettid);
    return !is_virtual() || (mc_proc_read_thread(&thread, of, of, SIGTRAP) == MC_OK && thread.handles);
}

#else

void mc_trap_guard(void)
{
}

void mc_trap_guard_thread(void)
{
}

int mc_trap_is_guarded(int tid)
{
    (void)tid;
    return 1;
}

#endif
