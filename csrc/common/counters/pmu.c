#define _GNU_SOURCE
#include "common/counters/pmu.h"

#include "common/counters/perf.h"
#include "common/options.h"
#include "common/proc.h"

#include <errno.h>
#include <link.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROW(name, type, config, is_usual) {name, type, config, is_usual},
static const struct {
    const char *name;
    uint32_t type;
    uint64_t config;
    int is_usual;
} events[] = {MC_PMU_EVENTS(ROW)};
enum { N_EVENTS = sizeof events / sizeof *events };
_Static_assert((int)N_EVENTS <= (int)MC_N_PMU, "a segment has no room for all events");

static struct {
    int fd; /* 0: not counted */
    uint64_t id;
} counters[N_EVENTS];
static uint64_t begin_cpu_ns;

/* Processor time with that of children, whose events are counted too. */
static uint64_t cpu_ns(void)
{
    struct rusage children = {0};
    getrusage(RUSAGE_CHILDREN, &children);
    uint64_t s = (uint64_t)(children.ru_utime.tv_sec + children.ru_stime.tv_sec);
    uint64_t us = (uint64_t)(children.ru_utime.tv_usec + children.ru_stime.tv_usec);
    return mc_clock_ns(CLOCK_PROCESS_CPUTIME_ID) + s * 1000000000u + us * 1000u;
}

static int is_listed(const char *list, const char *name)
{
    size_t length = strlen(name), n;
    for (const char *word = list; *word; word += n + (word[n] == ',')) {
        n = strcspn(word, ",");
        if (n == length && strncmp(word, name, n) == 0)
            return 1;
    }
    return 0;
}

static int is_wanted(const char *list, int i)
{
    return strcmp(list, "on") == 0 ? events[i].is_usual : is_listed(list, events[i].name);
}

/* Not pinned: the meter's counters are, and go first. */
static int open_event(int i)
{
    struct perf_event_attr attr;
    mc_perf_in_user_code(&attr, events[i].type, events[i].config);
    attr.inherit = 1;
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* 0: the kernel will not open any other event either. */
static int count(int i)
{
    int fd = open_event(i);
    if (fd < 0)
        return errno != EACCES && errno != EPERM && errno != ENOSYS && errno != EMFILE && errno != ENFILE;
    fd = mc_perf_keep(fd, &counters[i].id);
    counters[i].fd = fd < 0 ? 0 : fd;
    return fd >= 0;
}

static int counts_itself(struct dl_phdr_info *object, size_t size, void *unused)
{
    static const char *const libraries[] = {"libpapi.so", "liblikwid.so", "libpfm.so"};
    const char *name = basename(object->dlpi_name);
    (void)size, (void)unused;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (strncmp(name, libraries[i], strlen(libraries[i])) == 0)
            return 1;
    return 0;
}

int mc_pmu_is_wanted(void)
{
    const char *list = mc_option_text(MC_OPT_COUNTERS);
    if (strcmp(list, "on") == 0)
        return !dl_iterate_phdr(counts_itself, NULL);
    return strcmp(list, "off") != 0;
}

void mc_pmu_start(void)
{
    int saved_errno = errno;
    const char *list = mc_option_text(MC_OPT_COUNTERS);
    begin_cpu_ns = cpu_ns();
    for (int i = 0, may = 1; i < N_EVENTS && may; i++)
        may = !is_wanted(list, i) || count(i);
    errno = saved_errno;
}

/* Close it only if it is still ours: an application may close descriptors that it did not open, and their numbers
   are used again. */
static void end(int i)
{
    if (counters[i].fd && mc_perf_is_kept(counters[i].fd, counters[i].id))
        close(counters[i].fd);
    counters[i].fd = 0;
}

static int is_told(int i, mc_pmu_row *row)
{
    struct {
        uint64_t value, enabled_ns, running_ns;
    } counted;
    if (!counters[i].fd || !mc_perf_is_kept(counters[i].fd, counters[i].id) ||
        read(counters[i].fd, &counted, sizeof counted) != (ssize_t)sizeof counted)
        return 0;
    row->value = counted.value;
    row->enabled_ns = counted.enabled_ns;
    row->running_ns = counted.running_ns;
    snprintf(row->name, sizeof row->name, "%s", events[i].name);
    return 1;
}

void mc_pmu_stop(mc_segment *segment)
{
    int saved_errno = errno;
    segment->pmu_cpu_ns = cpu_ns() - begin_cpu_ns;
    for (int i = 0, n = 0; i < N_EVENTS; i++) {
        n += is_told(i, &segment->pmu[n]);
        end(i);
    }
    errno = saved_errno;
}

void mc_pmu_forget(void)
{
    int saved_errno = errno;
    for (int i = 0; i < N_EVENTS; i++)
        end(i);
    errno = saved_errno;
}

/* Try every event, also those that are refused today: whether the kernel refuses may change, and a filter's answer
   does not depend on the event. */
static void try_all(void)
{
    mc_pmu_row row;
    for (int i = 0; i < N_EVENTS; i++) {
        (void)count(i);
        (void)is_told(i, &row);
        end(i);
    }
}

int mc_pmu_is_safe(void)
{
    return mc_proc_survives(try_all);
}
