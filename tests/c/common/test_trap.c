/* After a debug exception without a reason a program goes on; whatever else sends SIGTRAP does what it did before. The
   exception is made up: its SIGTRAP is sent by the program to itself, as the kernel would. */
#define _GNU_SOURCE
#include "../support/check.h"
#include "common/trap.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOST_OK = 3, HANDLED = 4 };

/* Defines a function that sends itself that signal, whose place is the instruction `next`. */
#define TRAPPED_BEFORE(name, next) \
    static void name(void) \
    { \
        siginfo_t info; \
        long status, pid = getpid(), tid = syscall(SYS_gettid), number = SYS_rt_tgsigqueueinfo; \
        memset(&info, 0, sizeof info); \
        info.si_signo = SIGTRAP; \
        info.si_code = TRAP_BRKPT; \
        register siginfo_t *fourth __asm__("r10") = &info; \
        __asm__ volatile("lea 1f(%%rip), %%rax\n\tmov %%rax, %1\n\tmov %2, %%rax\n\tsyscall\n1:\t" next \
                         : "=&a"(status), "=m"(info.si_addr) \
                         : "r"(number), "D"(pid), "S"(tid), "d"((long)SIGTRAP), "r"(fourth) \
                         : "rcx", "r11", "memory"); \
        CHECK(status == 0); \
    }
#define INT1 ".byte 0xf1"

TRAPPED_BEFORE(lose_a_reason, "nop")
TRAPPED_BEFORE(int1_at_its_place, INT1)

static void lost(void)
{
    for (int i = 0; i < 3; i++)
        lose_a_reason();
    _exit(LOST_OK);
}

static void int1(void)
{
    __asm__ volatile(INT1);
    _exit(0);
}

static void int3(void)
{
    __asm__ volatile("int3");
    _exit(0);
}

static void raised(void)
{
    raise(SIGTRAP);
    _exit(LOST_OK);
}

static void by_name(int signal)
{
    _exit(signal == SIGTRAP ? HANDLED : 1);
}

static void with_info(int signal, siginfo_t *info, void *context)
{
    _exit(signal == SIGTRAP && info->si_code == SI_TKILL && context ? HANDLED : 1);
}

/* Executed, the instruction would come with another place on most machines. */
static void at_int1(int signal, siginfo_t *info, void *context)
{
    int is_there = info->si_code == TRAP_BRKPT && *(const unsigned char *)info->si_addr == 0xf1;
    _exit(signal == SIGTRAP && is_there && context ? HANDLED : 1);
}

/* How a process ends that does this, with that action before ours. */
static int end_of(void (*act)(void), const struct sigaction *before, int is_blocked)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        if (before)
            sigaction(SIGTRAP, before, NULL);
        mc_trap_guard();
        mc_trap_guard();
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, SIGTRAP);
        sigprocmask(is_blocked ? SIG_BLOCK : SIG_UNBLOCK, &only, NULL);
        int is_guarded = mc_trap_is_guarded(0);
        mc_trap_guard_thread();
        if (!act)
            _exit(mc_trap_is_guarded(0) ? is_guarded : 2);
        act();
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static int exits(int status, int code)
{
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static int is_trapped(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP;
}

int main(void)
{
    struct sigaction ignored = {.sa_handler = SIG_IGN}, named = {.sa_handler = by_name},
                     told = {.sa_sigaction = with_info, .sa_flags = SA_SIGINFO},
                     placed = {.sa_sigaction = at_int1, .sa_flags = SA_SIGINFO},
                     once = {.sa_handler = by_name, .sa_flags = (int)SA_RESETHAND};
    int lost_alone = end_of(lost, NULL, 0), lost_before = end_of(lost, &named, 0);
    CHECK(MC_TRAP_VIRTUAL ? exits(lost_alone, LOST_OK) : is_trapped(lost_alone));
    CHECK(exits(lost_before, MC_TRAP_VIRTUAL ? LOST_OK : HANDLED));
    CHECK(is_trapped(end_of(int1, NULL, 0)) && is_trapped(end_of(int3, NULL, 0)));
    CHECK(is_trapped(end_of(int1, &ignored, 0)) && is_trapped(end_of(int3, &ignored, 0)));
    CHECK(exits(end_of(int1_at_its_place, &placed, 0), HANDLED));
    CHECK(is_trapped(end_of(raised, NULL, 0)) && exits(end_of(raised, &ignored, 0), LOST_OK));
    CHECK(exits(end_of(int1, &named, 0), HANDLED) && exits(end_of(int3, &named, 0), HANDLED));
    CHECK(exits(end_of(raised, &told, 0), HANDLED) && exits(end_of(raised, &once, 0), HANDLED));
    /* One that blocks the signal would die of it. */
    CHECK(exits(end_of(NULL, NULL, 0), 1) && exits(end_of(NULL, NULL, 1), !MC_TRAP_VIRTUAL));
    return n_failed != 0;
}
