/* Counting before and in a shutter. */
#define _GNU_SOURCE
#include "agent/meters/count.h"

#include "agent/count/patching.h"
#include "agent/shutter/intervals.h"
#include "common/proc.h"
#include "common/table.h"

#include <string.h>

enum { N_VAIN_MAX = 6 };

/* Edges of the time before the shutter, and of its window. */
enum { N_BEFORE = MC_N_BEFORE_WINDOWS, BEFORE_END = N_BEFORE, DURING_BEGIN = N_BEFORE + 1, DURING_END = N_BEFORE + 2 };

static const uint64_t CHANGE_NS = 8000000;
static const double BUSY_MIN = 0.9;

size_t mc_count_n_active(const mc_snapshot *begin, const mc_snapshot *end)
{
    size_t n = 0;
    for (size_t i = 0; i < end->n && i < begin->n; i++)
        n += memcmp(&begin->rows[i], &end->rows[i], sizeof *begin->rows) != 0;
    return n ? n : 1;
}

static int take_at(mc_count_meter *count, int i_edge, uint64_t t, uint64_t late_ns, int *wake)
{
    mc_snapshot *edge = &count->edges[i_edge];
    mc_patching_renew(count->ranks, mc_max(t, mc_now_ns()));
    mc_sleep_until(t, wake);
    int is_taken = mc_now_ns() >= t && mc_snapshot_take(edge, count->ranks) == MC_OK && edge->t <= t + late_ns;
    mc_window_samples_edge(count->samples, i_edge);
    if (i_edge == 0 || i_edge == BEFORE_END || i_edge == DURING_END)
        count->moved[i_edge] = mc_moved_until_now(count->ranks, count->node);
    return is_taken;
}

/* Processor time that the ranks have used so far. */
static uint64_t cpu_ns(const mc_job_ranks *ranks)
{
    uint64_t ns = 0;
    for (int i = 0; i < ranks->n; i++) {
        struct timespec t;
        if (ranks->rows[i].alive && clock_gettime(ranks->rows[i].cpu_clock, &t) == 0)
            ns += (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    }
    return ns;
}

/* How late an edge may be. Before the shutter by a quarter of a window: the estimator takes the eight for equally long, so
   the pace in one may be wrong by that. The last of them ends well before the pauses. The window in the shutter may begin
   late, too; where it ends late by a sixteenth, co-runners may run again in that. */
static uint64_t may_be_late_ns(int i_edge, uint64_t before_ns, uint64_t during_ns)
{
    return i_edge < BEFORE_END      ? before_ns / 4
           : i_edge == BEFORE_END   ? MC_APART_NS
           : i_edge == DURING_BEGIN ? during_ns / 4
                                    : during_ns / 16;
}

/* Windows with an edge that was missed keep length 0. There is none after the shutter: co-runners that have rested run
   ahead then, and what they do to caches and to the processor's frequency builds up over a tenth of a second. */
static void take_all(mc_count_meter *count, const mc_own_shutter *own, uint64_t around_ns, uint64_t windows_ns[],
                     int *wake)
{
    uint64_t before = own->reservation.t0 - MC_QUIET_NS;
    uint64_t begin = mc_max(own->reservation.t0 - MC_APART_NS - around_ns, mc_now_ns());
    uint64_t each_ns = (before - mc_min(begin, before)) / N_BEFORE, t[MC_N_COUNT_EDGES];
    uint64_t during_ns = own->record.t1 - own->record.t0;
    int is_taken[MC_N_COUNT_EDGES];
    for (int i = 0; i < N_BEFORE; i++)
        t[i] = begin + (uint64_t)i * each_ns;
    t[BEFORE_END] = before;
    t[DURING_BEGIN] = own->record.t0;
    t[DURING_END] = own->record.t1;
    for (int i = 0; i < MC_N_COUNT_EDGES; i++)
        is_taken[i] = take_at(count, i, t[i], may_be_late_ns(i, each_ns, during_ns), wake);
    for (int i = 0; i < MC_N_COUNT_WINDOWS; i++) {
        int i_begin = mc_window_begin(i), i_end = i_begin + 1;
        if (is_taken[i_begin] && is_taken[i_end])
            windows_ns[i] = count->edges[i_end].t - count->edges[i_begin].t;
    }
}

/* Of all windows before the shutter; 0: an edge was missed. */
static uint64_t before_ns(const uint64_t windows_ns[])
{
    uint64_t ns = 0;
    for (int i = 0; i < N_BEFORE; i++) {
        if (!windows_ns[i])
            return 0;
        ns += windows_ns[i];
    }
    return ns;
}

static uint64_t note_row(mc_count_meter *count, const mc_own_shutter *own, const uint64_t windows_ns[])
{
    mc_counts *counts = &count->node->counts;
    mc_count_row *row = &counts->rows[counts->n_rows % MC_N_COUNT_ROWS];
    uint64_t n_all = 0;
    memset(row, 0, sizeof *row);
    row->epoch = own->record.epoch;
    row->i_set = (uint64_t)count->i_set;
    for (int i = 0; i < MC_N_COUNT_WINDOWS; i++) {
        const mc_snapshot *begin = &count->edges[mc_window_begin(i)];
        uint64_t sums[MC_N_PLACES];
        if (!windows_ns[i])
            continue;
        n_all += mc_snapshot_between(begin, begin + 1, sums);
        for (int j = 0; j < MC_N_PLACES; j++)
            row->n[i][j] = (uint32_t)mc_min(sums[j], UINT32_MAX);
    }
    counts->n_passes += n_all;
    __atomic_store_n(&counts->n_rows, counts->n_rows + 1, __ATOMIC_RELEASE);
    return n_all;
}

/* The agent looks for co-runners in steps. */
static const double ALONE_MAX = 0.1;

/* One rank stands for all, and its first thread that calls MPI: reading a table costs its memory. */
MC_READS_TORN static uint64_t bytes_of(const mc_segment *segment)
{
    uint64_t bytes = 0;
    for (int i = 0; i < MC_N_SITES; i++) {
        const mc_site_row *site = &segment->lanes[0].sites[i];
        bytes += site->sent_bytes + site->recv_bytes;
    }
    return bytes;
}

static uint64_t alone_ns(const mc_node *node)
{
    uint64_t watched_ns = node->t_last > node->t_open ? node->t_last - node->t_open : 0;
    return watched_ns > node->shared_ns ? watched_ns - node->shared_ns : 0;
}

mc_moved mc_moved_until_now(const mc_job_ranks *ranks, const mc_node *node)
{
    mc_moved moved = {.paused_ns = node->paused_ns + node->counts.stopped_ns, .alone_ns = alone_ns(node)};
    for (int i = 0; i < ranks->n && !moved.t; i++) {
        const mc_rank *rank = &ranks->rows[i];
        if (!rank->alive)
            continue;
        moved.bytes = bytes_of(rank->segment);
        moved.pid = rank->pid;
        moved.t = mc_now_ns();
    }
    return moved;
}

void mc_moved_between(const mc_moved *from, const mc_moved *to, uint64_t *ns, uint64_t *bytes)
{
    int is_same = from->t && to->t > from->t && from->pid == to->pid && to->bytes >= from->bytes;
    uint64_t whole_ns = is_same ? to->t - from->t : 0, paused_ns = to->paused_ns - from->paused_ns;
    int is_shared = (double)(to->alone_ns - from->alone_ns) <= ALONE_MAX * (double)whole_ns;
    int is_known = is_same && is_shared && paused_ns < whole_ns;
    *ns = is_known ? whole_ns - paused_ns : 0;
    *bytes = is_known ? to->bytes - from->bytes : 0;
}

static void note_moved(mc_count_meter *count, mc_shutter *shutter)
{
    const mc_moved *edges = count->moved;
    uint64_t ns;
    mc_moved_between(&count->moved_before, &edges[0], &shutter->since_ns, &shutter->since_bytes);
    mc_moved_between(&edges[0], &edges[BEFORE_END], &ns, &shutter->before_bytes);
    shutter->since_ns = ns ? shutter->since_ns : 0;
    count->moved_before = edges[MC_N_COUNT_EDGES - 1];
}

/* The next shutter must not take this one for time beside co-runners. */
void mc_count_skip(mc_count_meter *count)
{
    count->moved_before = (mc_moved){0};
}

static void note_samples(mc_count_meter *count, const mc_place_set *set, mc_own_shutter *own)
{
    const mc_counted_code code = {set, count->decoder, &count->files, &count->node->counts};
    mc_window_samples_end(count->samples, &code, &own->record, &count->node->counts.sampled_ns);
}

/* The program may be in a phase that the trials did not see: places are passed more often. */
static void thin(mc_count_meter *count, const uint64_t windows_ns[])
{
    const mc_counts *counts = &count->node->counts;
    for (int i = 0; i < MC_N_COUNT_WINDOWS && !count->has_thinned; i++) {
        const mc_snapshot *begin = &count->edges[mc_window_begin(i)], *end = begin + 1;
        uint64_t sums[MC_N_PLACES];
        double costs[MC_N_PLACES];
        if (!windows_ns[i])
            continue;
        mc_snapshot_between(begin, end, sums);
        double threads_ns = (double)windows_ns[i] * (double)mc_count_n_active(begin, end);
        for (int j = 0; j < MC_N_PLACES; j++)
            costs[j] = (double)sums[j] * counts->pass_ns / threads_ns;
        count->has_thinned = mc_places_thin(&counts->sets[count->i_set], costs, &count->thinned);
    }
    if (!count->has_thinned)
        return;
    mc_count_drop_set(count);
}

void mc_count_measure(mc_count_meter *count, mc_own_shutter *own, uint64_t around_ns, int *wake)
{
    uint64_t windows_ns[MC_N_COUNT_WINDOWS] = {0};
    const mc_place_set *set = &count->node->counts.sets[count->i_set]; /* which may be dropped meanwhile */
    /* First: pages that are writable while jumps are in them are not known as code. */
    int i_first = (int)(count->node->n_shutters % MC_N_SHUTTERS) * MC_N_SAMPLERS; /* ranks in turn */
    mc_window_samples_begin(count->samples, count->ranks, i_first);
    int is_installed = mc_count_change(count, MC_PATCH_INSTALL, mc_max(CHANGE_NS, around_ns / 8), wake);
    uint64_t t_begin = mc_now_ns(), begin_cpu_ns = cpu_ns(count->ranks);
    if (is_installed)
        take_all(count, own, around_ns, windows_ns, wake);
    int has_lasted = mc_patching_lasts(count->ranks);
    uint64_t took_ns = mc_now_ns() - t_begin, used_ns = cpu_ns(count->ranks) - begin_cpu_ns;
    mc_count_change(count, MC_PATCH_REMOVE, CHANGE_NS, wake);
    note_samples(count, set, own);
    if (is_installed)
        note_moved(count, &own->record);
    else
        mc_count_skip(count);
    if (!is_installed || !has_lasted || !windows_ns[N_BEFORE])
        return;
    count->n_vain = note_row(count, own, windows_ns) ? 0 : count->n_vain + 1;
    if (count->n_vain == N_VAIN_MAX)
        count->t_next = 0;
    thin(count, windows_ns);
    size_t n_threads = mc_count_n_active(&count->edges[DURING_BEGIN], &count->edges[DURING_END]);
    own->record.busy_frac = (double)used_ns / ((double)took_ns * (double)n_threads);
    count->takes_turns = own->record.busy_frac < BUSY_MIN;
    own->record.before_ns = before_ns(windows_ns);
    own->record.during_ns = windows_ns[N_BEFORE];
}
