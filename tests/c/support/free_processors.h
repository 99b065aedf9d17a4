/* What is left of the processors for threads of the lowest priority, as bubbles are. */
#ifndef MC_TEST_FREE_PROCESSORS_H
#define MC_TEST_FREE_PROCESSORS_H

#define _GNU_SOURCE
#include "common/proc.h"

#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Processor time of a process; -1: it is not there. */
static inline double cpu_s(pid_t pid)
{
    struct timespec t;
    clockid_t clock;
    return clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &t) == 0
               ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec
               : -1.0;
}

/* Part of the first processor that is there for whoever asks last, in percent. */
static inline int free_percent(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        const struct sched_param none = {0};
        cpu_set_t set;
        int cpu = 0;
        sched_getaffinity(0, sizeof set, &set);
        while (!CPU_ISSET(cpu, &set))
            cpu++;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
        sched_setscheduler(0, SCHED_IDLE, &none);
        double before_s = cpu_s(getpid());
        for (uint64_t end = mc_now_ns() + 1000000000u; mc_now_ns() < end;)
            ;
        _exit((int)(100.0 * (cpu_s(getpid()) - before_s)));
    }
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

#endif
