/* Resources that a rank's process has used. The rank reads them itself: another process could read them only after
   waiting in MPI_Finalize has changed them. */
#define _GNU_SOURCE
#include "common/proc.h"
#include "guest/hooks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { N_THREADS_MAX = 1024, SCHED_BYTES = 2048, SCHEDSTAT_BYTES = 96 };

static uint64_t ns(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u;
}

static void add_migrations(mc_usage *out, int tid)
{
    static const char label[] = "\nse.nr_migrations";
    char path[64], text[SCHED_BYTES];
    snprintf(path, sizeof path, "/proc/self/task/%d/sched", tid);
    const char *line = mc_proc_read_text(path, text, sizeof text) > 0 ? strstr(text, label) : NULL;
    const char *colon = line ? strchr(line, ':') : NULL;
    if (!colon)
        return;
    out->n_migrating++;
    out->migrations += strtoull(colon + 1, NULL, 10);
}

/* Add the second number of schedstat (Documentation/scheduler/sched-stats.rst). The first number is time on a
   processor. As every thread has run, 0 means that the kernel does not count. */
static void add_run_delay(mc_usage *out, int tid)
{
    char path[64], text[SCHEDSTAT_BYTES];
    snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
    char *blank = NULL;
    if (mc_proc_read_text(path, text, sizeof text) <= 0 || strtoull(text, &blank, 10) == 0 || *blank != ' ')
        return;
    out->n_scheduled++;
    out->run_delay_ns += strtoull(blank + 1, NULL, 10);
}

/* This function is never inlined, so that its large stack frame exists only if threads are read. */
__attribute__((noinline)) static void add_all_threads(mc_usage *out)
{
    int n_left = 0;
    int tids[N_THREADS_MAX], n = mc_proc_threads((int)getpid(), tids, N_THREADS_MAX, &n_left);
    for (int i = 0; i < n && n_left == 0; i++) { /* count all threads or none, because a partial sum would mislead */
        add_migrations(out, tids[i]);
        add_run_delay(out, tids[i]);
    }
}

void mc_usage_read(mc_usage *out, int with_threads)
{
    int saved_errno = errno;
    struct rusage usage;
    memset(out, 0, sizeof *out);
    if (with_threads)
        add_all_threads(out);
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        out->cpu_ns = ns(usage.ru_utime) + ns(usage.ru_stime);
        out->minor_faults = (uint64_t)usage.ru_minflt;
        out->major_faults = (uint64_t)usage.ru_majflt;
        out->voluntary_switches = (uint64_t)usage.ru_nvcsw;
        out->involuntary_switches = (uint64_t)usage.ru_nivcsw;
        __atomic_store_n(&out->is_known, 1, __ATOMIC_RELEASE); /* stored last, because others may read at any time */
    }
    errno = saved_errno;
}
