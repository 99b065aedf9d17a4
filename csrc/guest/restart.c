#define _GNU_SOURCE
#include "guest/restart.h"

#ifdef __x86_64__

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

enum { N_BEFORE = 32, N_SYSCALL = 2, N_NUMBER = 5, N_LOAD = 5 };

/* Length of the instruction `mov disp(%rsp),reg` at code; 0 if it is another one. Compilers put it between the
   call's number and the call when a function has had to save its arguments. */
static size_t stack_load(const unsigned char *code, size_t n)
{
    size_t rex = n && (code[0] & 0xf0) == 0x40;
    const unsigned char *rest = code + rex;
    int is_load = n >= rex + N_LOAD - 1 && rest[0] == 0x8b && (rest[1] & 0xc7) == 0x44 && rest[2] == 0x24;
    int into_rax = (rest[1] & 0x38) == 0 && !(rex && code[0] & 4);
    return is_load && !into_rax ? rex + N_LOAD - 1 : 0;
}

/* `code` ends with the instruction `syscall`. Returns the call's number if it is loaded just before; else -1, as the
   register that held it is overwritten. */
static long number_of(const unsigned char code[N_BEFORE])
{
    const unsigned char *end = code + N_BEFORE - N_SYSCALL;
    if (end[0] != 0x0f || end[1] != 0x05)
        return -1;
    if (end[-2] == 0x31 && end[-1] == 0xc0 && (end[-3] & 0xf0) != 0x40) /* xor %eax,%eax */
        return 0;
    for (const unsigned char *at = end - N_NUMBER; at > code; at--) {
        int32_t number;
        /* An odd REX prefix would make it a move into %r8d. */
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

/* These calls have done nothing yet when they return EINTR, so they may begin again. */
static const short restartable[] = {
    SYS_poll,     SYS_select, SYS_epoll_wait,  SYS_nanosleep,    SYS_clock_nanosleep, SYS_futex,
    SYS_semop,    SYS_msgrcv, SYS_msgsnd,      SYS_semtimedop,   SYS_rt_sigtimedwait, SYS_io_getevents,
    SYS_read,     SYS_readv,  SYS_recvfrom,    SYS_recvmsg,      SYS_recvmmsg,        SYS_accept,
    SYS_write,    SYS_writev, SYS_sendto,      SYS_sendmsg,      SYS_connect,         SYS_accept4,
    SYS_pselect6, SYS_ppoll,  SYS_epoll_pwait, SYS_epoll_pwait2, SYS_pause,           SYS_rt_sigsuspend,
};

/* Copy through the kernel, as the memory may be unmapped. */
static int read_there(void *copy, const void *there, size_t n)
{
    struct iovec from = {(void *)(uintptr_t)there, n}, to = {copy, n};
    return syscall(SYS_process_vm_readv, getpid(), &to, 1ul, &from, 1ul, 0ul) == (long)n;
}

/* Address of the signal mask that this call sets while it lasts; NULL: it sets none. */
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

/* What a call does about signals that come while it lasts. */
typedef enum signal_wait {
    NO_WAIT,  /* it does not wait for signals */
    MAY_WAIT, /* it may wait for a signal that could also have come before the call */
    WAITS,    /* it waits for a signal that its caller lets in only during the call */
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

/* A call that our signal interrupted looks the same as one that a signal of the application has ended, whose handler
   has just returned. Beginning the latter again would wait for a signal that has already come. So calls that wait
   for signals do not begin again: their callers expect to wake for nothing. */
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

/* A signal of the application came together with ours and waits behind our handler: it is the one that ends the
   call. */
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

int mc_restart_call(ucontext_t *context, int just_begun)
{
    greg_t *registers = context->uc_mcontext.gregs;
    unsigned char code[N_BEFORE];
    if (registers[REG_RAX] != -EINTR)
        return 0;
    /* The page before may not be mapped, and code need not be readable. */
    if (!read_there(code, (const char *)registers[REG_RIP] - N_BEFORE, N_BEFORE))
        return 0;
    long number = number_of(code);
    if (number < 0 || !may_begin_again(number, context, just_begun) || others_wait(context))
        return 0;
    registers[REG_RAX] = number;
    registers[REG_RIP] -= N_SYSCALL;
    return 1;
}

#else

int mc_restart_call(ucontext_t *context, int just_begun)
{
    (void)context, (void)just_begun;
    return 0;
}

#endif
