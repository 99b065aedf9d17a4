#define _GNU_SOURCE
#include "common/counters/pmu.h"

#include "common/counters/perf.h"
#include "common/options.h"
#include "common/proc.h"

#include <errno.h>
#include <link.h>
#include <linux/perf_event.h>
#include <stdlib.h>
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
enum { N_EVENTS = sizeof events / sizeof *events, RAW_DIGITS = 16 };

static struct {
    char name[MC_NAME_LEN];
    uint32_t type;
    uint64_t config;
    int fd; /* 0: not counted */
    uint64_t id;
} counters[MC_N_PMU];
static int n_counters;
static uint64_t begin_cpu_ns;

/* Processor time of this process and its children, whose events are counted too. */
static uint64_t cpu_ns(void)
{
    struct rusage children = {0};
    getrusage(RUSAGE_CHILDREN, &children);
    uint64_t s = (uint64_t)(children.ru_utime.tv_sec + children.ru_stime.tv_sec);
    uint64_t us = (uint64_t)(children.ru_utime.tv_usec + children.ru_stime.tv_usec);
    return mc_clock_ns(CLOCK_PROCESS_CPUTIME_ID) + s * 1000000000u + us * 1000u;
}

static void choose(const char *name, size_t length, uint32_t type, uint64_t config)
{
    for (int i = 0; i < n_counters; i++)
        if (counters[i].type == type && counters[i].config == config)
            return;
    if (n_counters == MC_N_PMU)
        return;
    memset(&counters[n_counters], 0, sizeof *counters);
    memcpy(counters[n_counters].name, name, length);
    counters[n_counters].type = type;
    counters[n_counters++].config = config;
}

static int is_word(const char *word, size_t length, const char *name)
{
    return strlen(name) == length && strncmp(word, name, length) == 0;
}

/* Choose an event by its name or by perf's raw code (r01c2). "on" chooses the usual events. Ignore other words. */
static void choose_word(const char *word, size_t length)
{
    int is_on = is_word(word, length, "on");
    for (int i = 0; i < N_EVENTS; i++)
        if ((is_on && events[i].is_usual) || is_word(word, length, events[i].name))
            choose(events[i].name, strlen(events[i].name), events[i].type, events[i].config);
    if (word[0] == 'r' && length > 1 && length <= 1 + RAW_DIGITS &&
        strspn(word + 1, "0123456789abcdefABCDEF") == length - 1)
        choose(word, length, PERF_TYPE_RAW, strtoull(word + 1, NULL, 16));
}

static void choose_events(const char *list)
{
    size_t length;
    n_counters = 0;
    for (const char *word = list; *word; word += length + (word[length] == ',')) {
        length = strcspn(word, ",");
        choose_word(word, length);
    }
}

/* The event is not pinned, so that the meter's counters, which are pinned, take precedence. */
static int open_event(int i)
{
    struct perf_event_attr attr;
    mc_perf_in_user_code(&attr, counters[i].type, counters[i].config);
    attr.inherit = 1;
    return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Count one event. Returns 0 if the kernel will not open other events either. */
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
    begin_cpu_ns = cpu_ns();
    choose_events(mc_option_text(MC_OPT_COUNTERS));
    for (int i = 0; i < n_counters && count(i); i++)
        ;
    errno = saved_errno;
}

/* Close the descriptor only if it is still ours: an application may close descriptors that it did not open, and the
   numbers are then reused. */
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
    memcpy(row->name, counters[i].name, sizeof row->name);
    return 1;
}

void mc_pmu_stop(mc_segment *segment)
{
    int saved_errno = errno;
    segment->pmu_cpu_ns = cpu_ns() - begin_cpu_ns;
    for (int i = 0, n = 0; i < n_counters; i++) {
        n += is_told(i, &segment->pmu[n]);
        end(i);
    }
    errno = saved_errno;
}

void mc_pmu_forget(void)
{
    int saved_errno = errno;
    for (int i = 0; i < n_counters; i++)
        end(i);
    errno = saved_errno;
}

/* Try all events, even those that the kernel refuses now: it may allow these events later, and a filter does not
   distinguish events. Page faults can be counted without a PMU too. */
static void try_usual(void)
{
    mc_pmu_row row;
    choose_events("on,page-faults");
    for (int i = 0; i < n_counters; i++) {
        (void)count(i);
        (void)is_told(i, &row);
        end(i);
    }
}

int mc_pmu_is_safe(void)
{
    return mc_proc_survives(try_usual);
}
