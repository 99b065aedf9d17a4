/* The meter `ipc` counts instructions and cycles of all threads, in windows before, in and after each shutter of this
   job. */
#define _GNU_SOURCE
#include "agent/meters/meter.h"
#include "agent/meters/thread_counts.h"
#include "agent/shutter/intervals.h"
#include "common/counters/perf.h"
#include "common/proc.h"
#include "common/table.h"

#include <string.h>
#include <unistd.h>

enum { N_TIDS = 512 };

/* A window: its counters, its start and end, the end of counting in all windows of the shutter (span), and the flag
   that ends a wait. */
typedef struct window {
    mc_thread_counts *counts;
    uint64_t t0, t1, span;
    int *wake;
} window;

static void follow_threads(mc_thread_counts *counts, const mc_job_ranks *ranks, mc_node *node)
{
    mc_followed threads[N_TIDS];
    int tids[N_TIDS], n = 0, n_left = 0;
    for (int i = 0; i < ranks->n; i++) {
        const mc_rank *rank = &ranks->rows[i];
        int n_tids = rank->alive ? mc_proc_threads(rank->pid, tids, N_TIDS - n, &n_left) : 0;
        int has_laneless = __atomic_load_n(&rank->segment->counters.n_lane_overflow, __ATOMIC_RELAXED) != 0;
        for (int j = 0; j < n_tids; j++)
            threads[n++] = (mc_followed){tids[j], has_laneless, mc_lane_of_thread(rank->segment, tids[j])};
    }
    n_left += mc_thread_counts_follow(counts, threads, n);
    node->n_uncounted = mc_max(node->n_uncounted, (uint64_t)n_left);
}

/* Let threads count themselves until the time `until`, at which they stop even if this agent has died. If `until` is 0,
   they stop now. A rank that has more system-call filters than this process does not count, because a filter could kill
   it. */
static void let_threads_count(const mc_job_ranks *ranks, uint64_t until)
{
    uint64_t n_filters = until ? mc_proc_n_filters(getpid()) : 0;
    for (int i = 0; i < ranks->n; i++) {
        int may = !until || mc_proc_n_filters(ranks->rows[i].pid) <= n_filters;
        __atomic_store_n(&ranks->rows[i].segment->sampling.counts_until, may ? until : 0, __ATOMIC_RELEASE);
    }
}

/* Read the counters at instant t. Returns 0 if the counts are not from that instant, because the agent woke late or was
   preempted while it read the counters. */
static int read_at(const window *w, int i_end, uint64_t t)
{
    uint64_t late_ns = (w->t1 - w->t0) / 16;
    mc_sleep_until(t, w->wake);
    int in_time = mc_now_ns() >= t;
    mc_thread_counts_note(w->counts, i_end, w->span);
    return in_time && mc_now_ns() <= t + late_ns;
}

/* POPPA's Algorithm 1 with K = 1. *window_ns stays 0 if an end of the window was missed or the counters of a thread
   could not be read. Returns 1 if the counts outside MPI are known too. */
static int measure(const window *w, mc_ipc *all, mc_ipc *outside, uint64_t *window_ns)
{
    *all = *outside = (mc_ipc){0, 0};
    if (!read_at(w, 0, w->t0) || !read_at(w, 1, w->t1))
        return 0;
    int is_known = mc_thread_counts_between(w->counts, all, outside);
    if (is_known < 0)
        return 0;
    *window_ns = w->t1 - w->t0;
    return is_known;
}

/* POPPA's Algorithm 3, lines 3 to 9, for one target. */
static void measure_shutter(mc_meter *meter, mc_own_shutter *own, uint64_t around_ns, int *wake)
{
    (void)around_ns; /* windows are as long as the shutter */
    mc_thread_counts *counts = meter->state;
    mc_shutter *record = &own->record;
    uint64_t duration_ns = record->t1 - record->t0, t_before = own->reservation.t0 - MC_APART_NS;
    uint64_t t_after = own->reservation.t1 + MC_APART_NS, span = t_after + 2 * duration_ns;
    window before = {counts, t_before - duration_ns, t_before, span, wake};
    window during = {counts, record->t0, record->t1, span, wake};
    window after = {counts, t_after, t_after + duration_ns, span, wake};
    follow_threads(counts, meter->ranks, meter->node);
    let_threads_count(meter->ranks, span);
    int is_known = measure(&before, &record->before, &record->outside_before, &record->before_ns);
    mc_sleep_until(record->t0, wake);
    mc_own_shutter_read_waits(own, meter->ranks, 0);
    is_known &= measure(&during, &record->during, &record->outside_during, &record->during_ns);
    mc_own_shutter_read_waits(own, meter->ranks, 1);
    is_known &= measure(&after, &record->after, &record->outside_after, &record->after_ns);
    let_threads_count(meter->ranks, 0);
    if (!is_known)
        record->outside_before = record->outside_during = record->outside_after = (mc_ipc){0, 0};
}

static int open_counts(mc_meter *meter, uint64_t t_open)
{
    char why_not[MC_TEXT_LEN];
    (void)t_open;
    int status = mc_perf_available(why_not, sizeof why_not);
    if (status != MC_OK)
        memcpy(meter->node->meter_reason, why_not, sizeof why_not);
    meter->state = status == MC_OK ? mc_thread_counts_open() : NULL;
    return meter->state != NULL;
}

static void close_counts(mc_meter *meter)
{
    mc_thread_counts_close(meter->state);
}

static uint64_t around_ns(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns)
{
    (void)meter;
    (void)period_ns;
    return planned_ns;
}

const mc_meter_ops mc_meter_ipc = {.name = "ipc",
                                   .recorded_as = MC_METER_IPC,
                                   .open = open_counts,
                                   .close = close_counts,
                                   .around_ns = around_ns,
                                   .measure = measure_shutter};
