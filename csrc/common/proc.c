#define _GNU_SOURCE
#include "common/proc.h"

#include "common/mpicoloc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Number of bytes of /proc/PID/status to read. The signals are listed after the groups, and a user may have thousands
   of groups. */
enum { STATUS_BYTES = 32768 };

static const unsigned long TIMER_SLACK_NS = 1000;
static const uint64_t SLICE_NS = 100000;

/* The kernel's struct, for the raw system call: glibc's readdir would allocate 32 KiB on the application's heap. */
struct dirent64_raw {
    uint64_t ino;
    int64_t off;
    unsigned short size;
    unsigned char type;
    char name[];
};

uint64_t mc_clock_ns(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) == 0 ? (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec : 0;
}

uint64_t mc_now_ns(void)
{
    return mc_clock_ns(CLOCK_MONOTONIC);
}

void mc_nap_until(uint64_t t_ns, int *wake)
{
    struct timespec until = {(time_t)(t_ns / 1000000000u), (long)(t_ns % 1000000000u)};
    /* FUTEX_WAIT_BITSET takes an absolute time, so a sleep that starts late still ends on time. */
    syscall(SYS_futex, wake, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

void mc_sleep_until(uint64_t t_ns, int *wake)
{
    while (mc_now_ns() < t_ns && !__atomic_load_n(wake, __ATOMIC_ACQUIRE))
        mc_nap_until(t_ns, wake);
}

void mc_wake(int *wake)
{
    __atomic_store_n(wake, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, wake, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

/* The kernel's struct, which glibc defines only since 2.41. */
struct sched_attr_raw {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

void mc_wake_promptly(void)
{
    struct sched_attr_raw attr = {.size = sizeof attr};
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) != 0 || attr.policy != SCHED_OTHER)
        return;
    /* From Linux 6.12 on, a short slice gives an early virtual deadline. With two busy threads per core the median
       wake-up latency falls from 3.9 ms to 0.05 ms. Older kernels ignore the slice, and preempt on wake-up anyway. */
    attr.runtime_ns = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &attr, 0);
}

ssize_t mc_proc_read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    text[0] = '\0';
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n;
}

int mc_proc_read_stat(mc_proc_stat *out, int pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (mc_proc_read_text(path, text, sizeof text) <= 0)
        return MC_E_GONE;
    char *field = strrchr(text, ')'); /* the name may contain blanks and brackets */
    if (!field || field[1] != ' ')
        return MC_E_GONE;
    out->state = field[2];
    for (int i = 0; field && i < 20; i++)
        field = strchr(field + 1, ' ');
    out->start_ticks = field ? strtoull(field, NULL, 10) : 0;
    return MC_OK;
}

int mc_proc_alive(int pid, uint64_t start_ticks)
{
    mc_proc_stat stat;
    if (pid <= 0 || mc_proc_read_stat(&stat, pid) != MC_OK)
        return 0;
    return stat.state != 'Z' && stat.state != 'X' && (uint32_t)stat.start_ticks == (uint32_t)start_ticks;
}

/* The value is checked because it comes from shared memory, which may be damaged. */
static int is_signal(int signal)
{
    return signal > 0 && signal <= 64;
}

static uint64_t number_after(const char *text, const char *label, int base)
{
    const char *line = strstr(text, label);
    return line ? strtoull(line + strlen(label), NULL, base) : 0;
}

/* A number from /proc/PID/status; 0 if it cannot be read. */
static uint64_t number_of_process(int pid, const char *label, int base)
{
    char path[64], text[STATUS_BYTES];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    return mc_proc_read_text(path, text, sizeof text) > 0 ? number_after(text, label, base) : 0;
}

int mc_proc_catches(int pid, int signal)
{
    return is_signal(signal) && (number_of_process(pid, "\nSigCgt:", 16) >> (signal - 1) & 1);
}

int mc_proc_is_traced(int pid)
{
    return number_of_process(pid, "\nTracerPid:", 10) != 0;
}

uint64_t mc_proc_n_filters(int pid)
{
    char path[64], text[STATUS_BYTES];
    snprintf(path, sizeof path, pid ? "/proc/%d/status" : "/proc/thread-self/status", pid);
    if (mc_proc_read_text(path, text, sizeof text) <= 0)
        return UINT64_MAX;
    /* Before 5.9, Linux reports only whether there are filters, not how many. */
    return number_after(text, "\nSeccomp:", 10) + number_after(text, "\nSeccomp_filters:", 10);
}

int mc_proc_survives(void (*what)(void))
{
    int status = -1;
    if (mc_proc_n_filters(0) == 0)
        return 1;
    pid_t pid = fork(), ended;
    if (pid == 0) {
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* write no core file */
        what();
        _exit(0);
    }
    do
        ended = pid > 0 ? waitpid(pid, &status, 0) : -1;
    while (ended < 0 && errno == EINTR);
    return ended == pid && status == 0;
}

int mc_proc_read_thread(mc_proc_thread *out, int pid, int tid, int signal)
{
    char path[64], text[STATUS_BYTES];
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", pid, tid);
    if (mc_proc_read_text(path, text, sizeof text) <= 0)
        return MC_E_GONE;
    /* The process's name is on an earlier line. It cannot imitate this line, because line ends in the name are
       escaped. */
    const char *state = strstr(text, "\nState:\t");
    out->state = state ? state[8] : '?';
    uint64_t off = number_after(text, "\nSigPnd:", 16) | number_after(text, "\nSigBlk:", 16);
    out->handles = is_signal(signal) && (number_after(text, "\nSigCgt:", 16) & ~off) >> (signal - 1) & 1;
    out->n_sleeps = number_after(text, "\nvoluntary_ctxt_switches:", 10);
    return MC_OK;
}

static void each_name(int fd, void (*found)(void *, const char *), void *data)
{
    _Alignas(8) char buffer[4096];
    for (;;) {
        long n = syscall(SYS_getdents64, fd, buffer, sizeof buffer);
        if (n <= 0)
            return;
        for (long i = 0; i < n;) {
            const struct dirent64_raw *entry = (const void *)(buffer + i);
            found(data, entry->name);
            i += entry->size;
        }
    }
}

struct tid_list {
    int *tids;
    int n, n_max, n_left;
};

static void add_tid(void *data, const char *name)
{
    struct tid_list *list = data;
    int tid = atoi(name);
    if (tid > 0 && list->n < list->n_max)
        list->tids[list->n++] = tid;
    else if (tid > 0)
        list->n_left++;
}

int mc_proc_threads(int pid, int *tids, int n_max, int *n_left)
{
    char path[64];
    struct tid_list list = {tids, 0, n_max, 0};
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        each_name(fd, add_tid, &list);
        close(fd);
    }
    *n_left += list.n_left;
    return list.n;
}

struct dir_match {
    const char *prefix, *suffix;
    void (*found)(void *, const char *);
    void *data;
};

static void match_name(void *data, const char *name)
{
    const struct dir_match *match = data;
    size_t n_prefix = strlen(match->prefix), n_suffix = strlen(match->suffix), n = strlen(name);
    char middle[256];
    if (n <= n_prefix + n_suffix || n - n_prefix - n_suffix >= sizeof middle)
        return;
    if (memcmp(name, match->prefix, n_prefix) != 0 || memcmp(name + n - n_suffix, match->suffix, n_suffix) != 0)
        return;
    memcpy(middle, name + n_prefix, n - n_prefix - n_suffix);
    middle[n - n_prefix - n_suffix] = '\0';
    match->found(match->data, middle);
}

void mc_dir_scan(const char *dir, const char *prefix, const char *suffix, void (*found)(void *, const char *),
                 void *data)
{
    struct dir_match match = {prefix, suffix, found, data};
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    each_name(fd, match_name, &match);
    close(fd);
}

uint64_t mc_proc_waited_ns(int pid, int tid)
{
    char path[64], text[96];
    unsigned long long ran_ns, waited_ns;
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", pid, tid);
    if (mc_proc_read_text(path, text, sizeof text) <= 0 || sscanf(text, "%llu %llu", &ran_ns, &waited_ns) != 2 ||
        ran_ns == 0) /* the kernel does not count these times */
        return UINT64_MAX;
    return waited_ns;
}
