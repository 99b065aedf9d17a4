#define _GNU_SOURCE
#include "perf.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A test puts software events here, to run this code where there is no PMU. */
#ifndef MC_PERF_EVENTS
#define MC_PERF_EVENTS \
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS}, \
    { \
        PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES \
    }
#endif

enum { I_INSTRUCTIONS = 0, I_CYCLES = 1, N_EVENTS = 2, N_THREADS_MAX = 512 };

static const struct {
    uint32_t type;
    uint64_t config;
} events[N_EVENTS] = {MC_PERF_EVENTS};

typedef struct watched {
    int tid, fds[N_EVENTS];
    int kept; /* still wanted, while the list is renewed */
} watched;

struct mc_perf {
    int n;
    mc_ipc ended; /* counts of threads no longer followed */
    watched threads[N_THREADS_MAX];
};

static int open_event(int i_event, int tid, int group)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = events[i_event].type;
    attr.config = events[i_event].config;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    return (int)syscall(SYS_perf_event_open, &attr, tid, -1, group, PERF_FLAG_FD_CLOEXEC);
}

static void close_thread(watched *thread)
{
    for (int i = N_EVENTS - 1; i >= 0; i--)
        if (thread->fds[i] >= 0)
            close(thread->fds[i]);
}

static int open_thread(watched *thread, int tid)
{
    *thread = (watched){.tid = tid, .fds = {-1, -1}, .kept = 1};
    for (int i = 0; i < N_EVENTS; i++) {
        thread->fds[i] = open_event(i, tid, i ? thread->fds[0] : -1);
        if (thread->fds[i] < 0) {
            int error = errno;
            close_thread(thread);
            errno = error;
            return MC_E_PERF;
        }
    }
    return MC_OK;
}

static int read_thread(const watched *thread, mc_ipc *out)
{
    struct {
        uint64_t n, enabled_ns, running_ns, values[N_EVENTS];
    } group;
    if (read(thread->fds[0], &group, sizeof group) != (ssize_t)sizeof group || group.n != N_EVENTS)
        return MC_E_PERF;
    /* The kernel shares too few counters among too many events by turns. */
    double scale = group.running_ns ? (double)group.enabled_ns / (double)group.running_ns : 0.0;
    out->instructions = (uint64_t)((double)group.values[I_INSTRUCTIONS] * scale);
    out->cycles = (uint64_t)((double)group.values[I_CYCLES] * scale);
    return MC_OK;
}

static int paranoid_level(void)
{
    char text[16] = "";
    int fd = open("/proc/sys/kernel/perf_event_paranoid", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    return n > 0 ? atoi(text) : -2;
}

void mc_perf_why(const char *what, int error, char *reason, size_t size)
{
    int paranoid = paranoid_level();
    int forbidden = error == EACCES || error == EPERM;
    if (forbidden && paranoid >= 0 && paranoid <= 2)
        snprintf(reason, size, "perf_event_open refused, though kernel.perf_event_paranoid is %d: by a container?",
                 paranoid);
    else if (forbidden)
        snprintf(reason, size, "perf_event_open refused: kernel.perf_event_paranoid is %d and must be 2 or lower",
                 paranoid);
    else if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
        snprintf(reason, size, "no %s on this machine (virtual machine?): not supported", what);
    else if (error == ENOSPC)
        snprintf(reason, size, "no %s: all in use, perhaps by a debugger", what);
    else if (error == ENOSYS)
        snprintf(reason, size, "kernel without perf_event_open");
    else
        snprintf(reason, size, "perf_event_open: %s (kernel.perf_event_paranoid %d)", strerror(error), paranoid);
}

int mc_perf_available(char *reason, size_t size)
{
    watched self;
    mc_ipc counts;
    if (open_thread(&self, 0) != MC_OK) {
        mc_perf_why("hardware counters", errno, reason, size);
        return MC_E_PERF;
    }
    int status = read_thread(&self, &counts);
    close_thread(&self);
    snprintf(reason, size, "%s", status == MC_OK ? "" : "hardware counters cannot be read as a group");
    return status;
}

mc_perf *mc_perf_open(void)
{
    return calloc(1, sizeof(mc_perf));
}

static void drop(mc_perf *perf, int i)
{
    mc_ipc counts;
    if (read_thread(&perf->threads[i], &counts) == MC_OK) {
        perf->ended.instructions += counts.instructions;
        perf->ended.cycles += counts.cycles;
    }
    close_thread(&perf->threads[i]);
    perf->threads[i] = perf->threads[--perf->n];
}

void mc_perf_close(mc_perf *perf)
{
    while (perf && perf->n)
        drop(perf, perf->n - 1);
    free(perf);
}

static watched *find(mc_perf *perf, int tid)
{
    for (int i = 0; i < perf->n; i++)
        if (perf->threads[i].tid == tid)
            return &perf->threads[i];
    return NULL;
}

void mc_perf_follow(mc_perf *perf, const int *tids, int n)
{
    for (int i = 0; i < perf->n; i++)
        perf->threads[i].kept = 0;
    for (int i = 0; i < n; i++) {
        watched *known = find(perf, tids[i]);
        if (known)
            known->kept = 1;
        else if (perf->n < N_THREADS_MAX && open_thread(&perf->threads[perf->n], tids[i]) == MC_OK)
            perf->n++;
    }
    for (int i = perf->n - 1; i >= 0; i--)
        if (!perf->threads[i].kept)
            drop(perf, i);
}

mc_ipc mc_perf_read(mc_perf *perf)
{
    mc_ipc total = perf->ended;
    for (int i = 0; i < perf->n; i++) {
        mc_ipc counts;
        if (read_thread(&perf->threads[i], &counts) != MC_OK)
            continue;
        total.instructions += counts.instructions;
        total.cycles += counts.cycles;
    }
    return total;
}
