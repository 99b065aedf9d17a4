#define _GNU_SOURCE
#include "common/counters/perf.h"

#include "common/counters/tally.h"
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

enum {
    N_THREADS_MAX = 512,
    LEAST_FD = 256, /* applications use small numbers without asking, and may have closed and opened them again */
};

static const struct {
    uint32_t type;
    uint64_t config;
} events[MC_N_EVENTS] = {MC_PERF_EVENTS};

/* What a thread had counted and published at one instant. */
typedef struct seen {
    mc_ipc total;
    mc_tally tally;
    int is_read;
    int is_known; /* its part outside MPI is known */
} seen;

typedef struct watched {
    mc_followed thread;
    mc_group group;
    int kept;      /* it stays while the list is renewed */
    int has_ahead; /* the thread has counted itself: */
    mc_ipc ahead;  /* our group has counted at most so much more than its own */
    seen at[2];
} watched;

struct mc_perf {
    int n;
    watched threads[N_THREADS_MAX];
};

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
    /* For the leader of the group; the other events follow it. */
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
    /* Enable all at once: an event that joins a counting group may wait until its thread gets a processor again. */
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
    /* The kernel lets too many events share too few counters by turns. */
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

void mc_perf_why_not_tried(char *reason, size_t size)
{
    snprintf(reason, size,
             "perf_event_open not tried: a child that did so behind a filter of system calls (seccomp) died");
}

static int count_oneself(char *reason, size_t size)
{
    mc_group self;
    mc_ipc counts;
    uint64_t id;
    int is_shared, status = MC_E_PERF;
    for (int is_pinned = 1; status != MC_OK && is_pinned >= 0; is_pinned--) {
        if (mc_group_open(&self, 0, is_pinned) != MC_OK) {
            mc_perf_why("hardware counters", errno, reason, size);
            return MC_E_PERF;
        }
        status = mc_group_read(&self, &counts, &is_shared);
        /* The job's threads will make this call: no system-call filter may kill them for it. */
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
    mc_perf_why_not_tried(reason, size);
    return MC_E_PERF;
}

mc_perf *mc_perf_open(void)
{
    return calloc(1, sizeof(mc_perf));
}

static void drop(mc_perf *perf, int i)
{
    mc_group_close(&perf->threads[i].group);
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
        if (perf->threads[i].thread.tid == tid)
            return &perf->threads[i];
    return NULL;
}

static watched *add(mc_perf *perf, int tid)
{
    watched *new = &perf->threads[perf->n];
    errno = ENOSPC;
    if (perf->n == N_THREADS_MAX)
        return NULL;
    memset(new, 0, sizeof *new);
    if (mc_group_open(&new->group, tid, 1) != MC_OK)
        return NULL;
    perf->n++;
    return new;
}

int mc_perf_follow(mc_perf *perf, const mc_followed *threads, int n)
{
    int n_left = 0;
    for (int i = 0; i < perf->n; i++)
        perf->threads[i].kept = 0;
    for (int i = 0; i < n; i++) {
        watched *one = find(perf, threads[i].tid);
        if (!one)
            one = add(perf, threads[i].tid);
        n_left += !one && errno != ESRCH; /* else the thread has ended */
        if (!one)
            continue;
        one->kept = 1;
        one->thread = threads[i];
    }
    for (int i = perf->n - 1; i >= 0; i--)
        if (!perf->threads[i].kept)
            drop(perf, i);
    return n_left;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Take the smaller signed difference. */
static uint64_t nearer(uint64_t a, uint64_t b)
{
    return (int64_t)a < (int64_t)b ? a : b;
}

/* Read the thread's tally. If no call has begun or ended in this span yet, return the tally that the span will begin
   with. Read the thread's own times first: they change after its tally. */
static int find_tally(const mc_followed *thread, uint64_t span, mc_tally *tally)
{
    const mc_lane_head *lane = thread->lane;
    *tally = (mc_tally){.span = 0, .state = MC_TALLY_OUTSIDE};
    if (!lane)
        return !thread->is_untold;
    uint64_t t_enter = __atomic_load_n(&lane->t_enter, __ATOMIC_ACQUIRE);
    uint64_t t_last = __atomic_load_n(&lane->calls.t_last, __ATOMIC_ACQUIRE);
    int status = mc_tally_read(&lane->tally, tally);
    /* a thread that has ended has given back its lane */
    if (status != MC_OK || __atomic_load_n(&lane->owner_tid, __ATOMIC_ACQUIRE) != (uint64_t)thread->tid)
        return 0;
    if (tally->state == MC_TALLY_NONE)
        return 0;
    if (tally->span != span)
        *tally = (mc_tally){.span = 0, .state = t_enter > t_last ? MC_TALLY_INSIDE : MC_TALLY_OUTSIDE};
    return 1;
}

/* Other programs have pinned so many counters that none is left: from now on take turns. */
static void give_way(watched *one)
{
    mc_group_close(&one->group);
    (void)mc_group_open(&one->group, one->thread.tid, 0);
    one->has_ahead = 0;
}

static void note(watched *one, seen *now, uint64_t span)
{
    int is_shared = 0;
    memset(now, 0, sizeof *now);
    now->is_known = find_tally(&one->thread, span, &now->tally);
    now->is_read = mc_group_read(&one->group, &now->total, &is_shared) == MC_OK;
    if (!now->is_read || is_shared)
        now->is_known = 0;
    if (!now->is_read)
        give_way(one);
    if (!now->is_known || !now->tally.span)
        return;
    /* What the thread has counted since its tally is in our count too, so the least difference ever is the best. */
    mc_ipc ahead = {now->total.instructions - now->tally.total.instructions,
                    now->total.cycles - now->tally.total.cycles};
    if (one->has_ahead)
        ahead = (mc_ipc){nearer(one->ahead.instructions, ahead.instructions), nearer(one->ahead.cycles, ahead.cycles)};
    one->ahead = ahead;
    one->has_ahead = 1;
}

void mc_perf_note(mc_perf *perf, int i_end, uint64_t span)
{
    for (int i = 0; i < perf->n; i++)
        note(&perf->threads[i], &perf->threads[i].at[i_end], span);
}

static uint64_t outside_at(const seen *at, uint64_t outside, uint64_t own, uint64_t total, uint64_t ahead)
{
    return at->tally.state == MC_TALLY_OUTSIDE ? outside + (total - ahead - own) : outside;
}

/* Modulo 2^64: a thread that began to count itself after the window's begin has a negative count there. */
static uint64_t outside_between(uint64_t begin, uint64_t end, uint64_t all)
{
    return (int64_t)(end - begin) < 0 ? 0 : less(end - begin, all);
}

/* A call that began or ended together with the span was not published, or only after the window's begin. The first
   tally of the span is more accurate. */
static seen at_begin(const watched *one)
{
    seen begin = one->at[0];
    if (!begin.tally.span && one->at[1].tally.span)
        begin.tally.state = one->at[1].tally.began;
    return begin;
}

static void add_thread(const watched *one, mc_ipc *all, mc_ipc *outside)
{
    const seen first = at_begin(one), *a = &first, *b = &one->at[1];
    uint64_t instructions = b->total.instructions - less(a->total.instructions, b->total.instructions);
    uint64_t cycles = b->total.cycles - less(a->total.cycles, b->total.cycles);
    all->instructions += instructions;
    all->cycles += cycles;
#define OUTSIDE(at, count) \
    outside_at(at, (at)->tally.outside.count, (at)->tally.total.count, (at)->total.count, one->ahead.count)
    outside->instructions += outside_between(OUTSIDE(a, instructions), OUTSIDE(b, instructions), instructions);
    outside->cycles += outside_between(OUTSIDE(a, cycles), OUTSIDE(b, cycles), cycles);
#undef OUTSIDE
}

int mc_perf_between(const mc_perf *perf, mc_ipc *all, mc_ipc *outside)
{
    int is_known = 1;
    *all = *outside = (mc_ipc){0, 0};
    for (int i = 0; i < perf->n; i++) {
        const watched *one = &perf->threads[i];
        if (!one->at[0].is_read || !one->at[1].is_read) {
            *all = *outside = (mc_ipc){0, 0};
            return MC_E_PERF;
        }
        add_thread(one, all, outside);
        is_known = is_known && one->at[0].is_known && one->at[1].is_known;
    }
    return is_known;
}
