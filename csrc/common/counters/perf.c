#define _GNU_SOURCE
#include "common/counters/perf.h"

#include "common/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A test counts software events instead, to run this code without a PMU. */
#ifndef MC_PERF_EVENTS
#define MC_PERF_EVENTS \
    {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS}, \
    { \
        PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES \
    }
#endif

/* Smallest descriptor to use. Applications assume that small descriptors are their own, and may close and reopen
   them. */
enum { LEAST_FD = 256 };

static const struct {
    uint32_t type;
    uint64_t config;
} events[MC_N_EVENTS] = {MC_PERF_EVENTS};

void mc_perf_in_user_code(struct perf_event_attr *attr, uint32_t type, uint64_t config)
{
    memset(attr, 0, sizeof *attr);
    attr->size = sizeof *attr;
    attr->type = type;
    attr->config = config;
    attr->exclude_kernel = 1;
    attr->exclude_hv = 1;
    attr->read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
}

static int open_event(int i_event, int tid, int group, int is_pinned)
{
    struct perf_event_attr attr;
    mc_perf_in_user_code(&attr, events[i_event].type, events[i_event].config);
    /* These two attributes apply only to the group's leader; the other events follow the leader. */
    attr.disabled = group < 0;
    attr.pinned = is_pinned && group < 0;
    attr.read_format |= PERF_FORMAT_GROUP;
    return (int)syscall(SYS_perf_event_open, &attr, tid, -1, group, PERF_FLAG_FD_CLOEXEC);
}

void mc_group_close(mc_group *group)
{
    for (int i = MC_N_EVENTS - 1; i >= 0; i--) {
        if (group->fds[i] >= 0)
            close(group->fds[i]);
        group->fds[i] = -1;
    }
}

static int close_again(mc_group *group)
{
    int error = errno;
    mc_group_close(group);
    errno = error;
    return MC_E_PERF;
}

int mc_group_open(mc_group *group, int tid, int is_pinned)
{
    *group = (mc_group){{-1, -1}};
    for (int i = 0; i < MC_N_EVENTS; i++) {
        group->fds[i] = open_event(i, tid, i ? group->fds[0] : -1, is_pinned);
        if (group->fds[i] < 0)
            return close_again(group);
    }
    /* Enable all events at once: if an event is added to a group that counts already, it may not count until its thread
       is scheduled again. */
    return ioctl(group->fds[0], PERF_EVENT_IOC_ENABLE, 0) == 0 ? MC_OK : close_again(group);
}

int mc_group_read(const mc_group *group, mc_ipc *out, int *is_shared)
{
    struct {
        uint64_t n, enabled_ns, running_ns, values[MC_N_EVENTS];
    } counts;
    if (read(group->fds[0], &counts, sizeof counts) != (ssize_t)sizeof counts || counts.n != MC_N_EVENTS)
        return MC_E_PERF;
    *is_shared = counts.enabled_ns > counts.running_ns + MC_LOST_NS;
    *out = (mc_ipc){counts.values[0], counts.values[1]};
    if (!*is_shared)
        return MC_OK;
    /* If there are more events than counters, the kernel lets them take turns. */
    double scale = counts.running_ns ? (double)counts.enabled_ns / (double)counts.running_ns : 0.0;
    out->instructions = (uint64_t)((double)out->instructions * scale);
    out->cycles = (uint64_t)((double)out->cycles * scale);
    return MC_OK;
}

int mc_perf_keep(int fd, uint64_t *id)
{
    int kept = fcntl(fd, F_DUPFD_CLOEXEC, LEAST_FD);
    close(fd);
    if (kept >= 0 && ioctl(kept, PERF_EVENT_IOC_ID, id) != 0) {
        close(kept);
        kept = -1;
    }
    return kept;
}

int mc_perf_is_kept(int fd, uint64_t id)
{
    uint64_t found = 0;
    return ioctl(fd, PERF_EVENT_IOC_ID, &found) == 0 && found == id;
}

static int paranoid_level(void)
{
    char text[16];
    return mc_proc_read_text("/proc/sys/kernel/perf_event_paranoid", text, sizeof text) > 0 ? atoi(text) : -2;
}

static void say_why(int error, char *reason, size_t size)
{
    int paranoid = paranoid_level();
    int forbidden = error == EACCES || error == EPERM;
    if (forbidden && paranoid >= 0 && paranoid <= 2)
        snprintf(reason, size,
                 "perf_event_open refused, though kernel.perf_event_paranoid is %d, perhaps by a container", paranoid);
    else if (forbidden)
        snprintf(reason, size, "perf_event_open refused: kernel.perf_event_paranoid is %d and must be 2 or lower",
                 paranoid);
    else if (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)
        snprintf(reason, size, "no hardware counters on this machine (virtual machine?): not supported");
    else if (error == ENOSPC)
        snprintf(reason, size, "no hardware counters: all in use, perhaps by a debugger");
    else if (error == ENOSYS)
        snprintf(reason, size, "kernel without perf_event_open");
    else
        snprintf(reason, size, "perf_event_open: %s (kernel.perf_event_paranoid %d)", strerror(error), paranoid);
}

static int count_oneself(char *reason, size_t size)
{
    mc_group self;
    mc_ipc counts;
    uint64_t id;
    int is_shared, status = MC_E_PERF;
    for (int is_pinned = 1; status != MC_OK && is_pinned >= 0; is_pinned--) {
        if (mc_group_open(&self, 0, is_pinned) != MC_OK) {
            say_why(errno, reason, size);
            return MC_E_PERF;
        }
        status = mc_group_read(&self, &counts, &is_shared);
        /* Try this call too, because the job's threads will make it, and a system-call filter could kill them for
           it. */
        self.fds[0] = mc_perf_keep(self.fds[0], &id);
        mc_group_close(&self);
    }
    snprintf(reason, size, "%s", status == MC_OK ? "" : "hardware counters cannot be read as a group");
    return status;
}

static void try_oneself(void)
{
    char reason[MC_TEXT_LEN];
    (void)count_oneself(reason, sizeof reason);
}

int mc_perf_available(char *reason, size_t size)
{
    if (mc_proc_survives(try_oneself))
        return count_oneself(reason, size);
    snprintf(reason, size,
             "perf_event_open not used: a child that tried it behind a filter of system calls (seccomp) died");
    return MC_E_PERF;
}
