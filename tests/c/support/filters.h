/* Filters of system calls, as containers have. */
#ifndef MC_TEST_FILTERS_H
#define MC_TEST_FILTERS_H

#include "check.h"

#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static inline void filter(struct sock_filter *lines, unsigned short n)
{
    struct sock_fprog code = {n, lines};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &code) == 0);
}

static inline void filter_call(uint32_t number, uint32_t answer)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filter(lines, sizeof lines / sizeof *lines);
}

static inline void filter_perf(uint32_t answer)
{
    filter_call(SYS_perf_event_open, answer);
}

/* Threads cannot be put on processors. */
static inline void filter_affinity(uint32_t answer)
{
    filter_call(SYS_sched_setaffinity, answer);
}

/* A counter may be opened and read, but not asked which one it is. */
static inline void filter_ids(uint32_t answer)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)PERF_EVENT_IOC_ID, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, answer),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    filter(lines, sizeof lines / sizeof *lines);
}

#endif
