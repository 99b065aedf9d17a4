#define _GNU_SOURCE
#include "agent/loop/probe.h"

#include "common/counters/perf.h"
#include "common/mpicoloc.h"
#include "common/proc.h"
#include "common/trap.h"

#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A test uses a type that no kernel knows. */
#ifndef MC_PROBE_TYPE
#define MC_PROBE_TYPE PERF_TYPE_BREAKPOINT
#endif

enum {
    STACK_PAGES = 32,
    STACK_BYTES = 4096,
    STACK_RECORD_BYTES = STACK_BYTES + 32,
    STACK_EVERY_NS = 4000000,
    PLACE_PAGES = 16,
    PLACE_RECORD_BYTES = 16,
    PLACE_EVERY_NS = 250000,
    HIT_BYTES = 16,  /* in the ring */
    N_OWN_HITS = 24, /* hits to measure what one costs */
    N_OWN_ROUNDS = 3,
    N_SPINS = 20000,
    N_SPIN_ROUNDS = 5,
};

static int open_event(const struct perf_event_attr *attr, int tid)
{
    return (int)syscall(SYS_perf_event_open, attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static int map_ring(mc_probe *probe, size_t n_pages)
{
    size_t bytes = (n_pages + 1) * (size_t)sysconf(_SC_PAGESIZE);
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, probe->fd, 0);
    if (map == MAP_FAILED) {
        int error = errno;
        mc_probe_close(probe);
        errno = error;
        return MC_E_PERF;
    }
    probe->ring = map;
    probe->ring_bytes = bytes;
    return MC_OK;
}

static int sample(mc_probe *probe, int tid, int with_stack, uint64_t every_ns)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_TASK_CLOCK;
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    attr.disabled = 1;
    attr.sample_period = every_ns;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    attr.sample_type = PERF_SAMPLE_IP | (with_stack ? PERF_SAMPLE_STACK_USER : 0);
    attr.sample_stack_user = with_stack ? STACK_BYTES : 0;
    *probe = (mc_probe){.fd = open_event(&attr, tid)};
    if (probe->fd < 0 || map_ring(probe, with_stack ? STACK_PAGES : PLACE_PAGES) != MC_OK)
        return MC_E_PERF;
    /* If the agent does not look in time, the kernel stops the event when the ring is full. */
    size_t n_records = probe->ring_bytes / (with_stack ? STACK_RECORD_BYTES : PLACE_RECORD_BYTES);
    return mc_probe_start(probe, (int)n_records);
}

int mc_probe_sample(mc_probe *probe, int tid, int with_stack)
{
    return sample(probe, tid, with_stack, with_stack ? STACK_EVERY_NS : PLACE_EVERY_NS);
}

int mc_probe_sample_places(mc_probe *probe, int tid, uint64_t every_ns)
{
    return sample(probe, tid, 0, every_ns);
}

int mc_probe_hits(mc_probe *probe, int tid, uint64_t address, int n_times)
{
    struct perf_event_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.size = sizeof attr;
    attr.type = MC_PROBE_TYPE;
    attr.bp_type = HW_BREAKPOINT_X;
    attr.bp_addr = address;
    attr.bp_len = sizeof(long);
    attr.exclude_kernel = 1;
    attr.exclude_hv = 1;
    attr.disabled = 1;
    attr.sample_period = 1; /* the kernel limits the rate of samples, not of counts */
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    if (n_times) {
        attr.sample_type = PERF_SAMPLE_TIME;
        attr.use_clockid = 1;
        attr.clockid = CLOCK_MONOTONIC;
    }
    *probe = (mc_probe){.fd = -1};
    if (!mc_trap_is_guarded(tid)) {
        errno = ENOTSUP;
        return MC_E_PERF;
    }
    probe->fd = open_event(&attr, tid);
    if (probe->fd < 0)
        return MC_E_PERF;
    size_t n_pages = 1;
    while (n_pages * (size_t)sysconf(_SC_PAGESIZE) < (size_t)n_times * HIT_BYTES)
        n_pages *= 2;
    return n_times ? map_ring(probe, n_pages) : MC_OK;
}

int mc_probe_start(const mc_probe *probe, int n_max)
{
    return ioctl(probe->fd, PERF_EVENT_IOC_REFRESH, n_max) == 0 ? MC_OK : MC_E_PERF;
}

int mc_probe_read(const mc_probe *probe, uint64_t *n, uint64_t *ran_ns)
{
    uint64_t values[3]; /* hits, time enabled, time running */
    if (probe->fd < 0 || read(probe->fd, values, sizeof values) != (ssize_t)sizeof values)
        return MC_E_PERF;
    *n = values[0];
    *ran_ns = values[2];
    return MC_OK;
}

void mc_probe_each(const mc_probe *probe, void (*found)(void *data, const uint64_t *words, size_t n), void *data)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!probe->ring)
        return;
    /* Nothing is ever taken out, so the kernel stops at the ring's end and no record wraps around. */
    const struct perf_event_mmap_page *head = (const void *)probe->ring;
    uint64_t n_written = __atomic_load_n(&head->data_head, __ATOMIC_ACQUIRE), at = 0;
    n_written = n_written < probe->ring_bytes - page ? n_written : probe->ring_bytes - page;
    while (at + sizeof(struct perf_event_header) <= n_written) {
        const struct perf_event_header *record = (const void *)(probe->ring + page + at);
        if (record->size < sizeof *record || record->size > n_written - at)
            return;
        if (record->type == PERF_RECORD_SAMPLE)
            found(data, (const uint64_t *)(const void *)(record + 1),
                  (record->size - sizeof *record) / sizeof(uint64_t));
        at += record->size;
    }
}

void mc_probe_stop(const mc_probe *probe)
{
    ioctl(probe->fd, PERF_EVENT_IOC_DISABLE, 0);
}

void mc_probe_close(mc_probe *probe)
{
    if (probe->ring)
        munmap(probe->ring, probe->ring_bytes);
    if (probe->fd >= 0)
        close(probe->fd);
    *probe = (mc_probe){.fd = -1};
}

MC_ONE_PLACE static void place(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Hit a breakpoint in this thread; *took_ns: how long all hits took. */
static int try_oneself(uint64_t *n, uint64_t *took_ns)
{
    mc_probe probe;
    uint64_t ran_ns;
    mc_trap_guard_thread(); /* the agent's threads block all signals */
    int status = mc_probe_hits(&probe, 0, (uint64_t)(uintptr_t)place, 0);
    if (status == MC_OK && (status = mc_probe_start(&probe, N_OWN_HITS + 1)) == MC_OK) {
        uint64_t t = mc_now_ns();
        for (int i = 0; i < N_OWN_HITS; i++)
            place();
        *took_ns = mc_now_ns() - t;
        status = mc_probe_read(&probe, n, &ran_ns);
    }
    int error = errno;
    if (probe.fd >= 0)
        mc_probe_close(&probe);
    errno = error;
    return status;
}

uint64_t mc_probe_hit_ns(void)
{
    uint64_t n = 0, took_ns = 0, best = 0;
    for (int i = 0; i < N_OWN_ROUNDS && try_oneself(&n, &took_ns) == MC_OK; i++)
        best = best && best < took_ns ? best : took_ns;
    return best / N_OWN_HITS;
}

#ifdef __x86_64__
void mc_probe_spin(long n);
extern const char mc_probe_spin_end[];
__asm__(".text\n\t.balign 64\n\t.hidden mc_probe_spin\n\t.globl mc_probe_spin\n\t.type mc_probe_spin,@function\n"
        "mc_probe_spin:\n1:\tdec %rdi\n\tjnz 1b\n\tret\n\t.hidden mc_probe_spin_end\n\t.globl mc_probe_spin_end\n"
        "mc_probe_spin_end:\n\tnop\n\t.size mc_probe_spin,.-mc_probe_spin\n\t.balign 64");

/* The shortest of some rounds, as other processes run too. */
static uint64_t spin_ns(void)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < N_SPIN_ROUNDS; i++) {
        uint64_t t = mc_now_ns();
        mc_probe_spin(N_SPINS);
        t = mc_now_ns() - t;
        best = t < best ? t : best;
    }
    return best ? best : 1;
}

double mc_probe_line_cost(void)
{
    mc_probe probe;
    uint64_t without = spin_ns(), with = without;
    if (mc_probe_hits(&probe, 0, (uint64_t)(uintptr_t)mc_probe_spin_end, 0) != MC_OK)
        return 1.0;
    if (mc_probe_start(&probe, 1) == MC_OK)
        with = spin_ns();
    mc_probe_close(&probe);
    return with > without ? (double)with / (double)without : 1.0;
}
#else
double mc_probe_line_cost(void)
{
    return 1.0;
}
#endif

/* Make every kind of system call that the meter makes. */
static void try_all(void)
{
    mc_probe probe;
    uint64_t n, took_ns;
    (void)try_oneself(&n, &took_ns);
    if (mc_probe_sample(&probe, 0, 1) == MC_OK)
        mc_probe_stop(&probe);
    mc_probe_close(&probe);
}

int mc_probe_available(char *reason, size_t size)
{
    uint64_t n = 0, took_ns;
    if (!mc_proc_survives(try_all)) {
        mc_perf_why_not_tried(reason, size);
        return MC_E_PERF;
    }
    if (try_oneself(&n, &took_ns) != MC_OK) {
        mc_perf_why("hardware breakpoints", errno, reason, size);
        return MC_E_PERF;
    }
    snprintf(reason, size, "%s", n == N_OWN_HITS ? "" : "hardware breakpoints do not count on this machine");
    return n == N_OWN_HITS ? MC_OK : MC_E_PERF;
}
