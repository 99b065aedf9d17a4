#define _GNU_SOURCE
#include "agent/meters/loop.h"

#include "agent/loop/hits.h"
#include "agent/meters/bursts.h"
#include "agent/shutter/intervals.h"
#include "common/proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_TIDS = 256,
    N_VAIN_MAX = 5,    /* shutters that counted nothing, or too much, until another entry is searched for */
    N_PLACES = 1500,   /* samples, to know how hot a line of code is */
    N_HITS_SPARE = 64, /* around a shutter, beyond what the rate limit allows */
};

static const uint64_t SAMPLE_NS_MAX = 4000000000u, TRIAL_NS_MAX = 800000000u, PATIENCE_NS = 1000000000u,
                      RETRY_NS = 5000000000u;
static const uint64_t NOT_THERE = UINT64_MAX;
static const double RATE_LIMIT =
    10000.0; /* hits of a thread per second; the kernel removes a breakpoint that is hit more often */

mc_loop *mc_loop_open(mc_node *node, const mc_job_ranks *ranks, uint64_t t_open, int is_forced)
{
    char reason[MC_TEXT_LEN / 2];
    char *text = node->meter_reason;
    size_t n = strlen(text), size = sizeof node->meter_reason;
    mc_loop *loop = NULL;
    if (mc_probe_available(reason, sizeof reason) != MC_OK)
        snprintf(text + n, size - n, "; no meter loop: %s", reason);
    else if (!(loop = calloc(1, sizeof *loop)))
        snprintf(text + n, size - n, "; no meter loop: no memory");
    if (!loop)
        return NULL;
    loop->node = node;
    loop->ranks = ranks;
    loop->is_forced = is_forced;
    loop->t_retry = t_open + (is_forced ? 0 : PATIENCE_NS);
    snprintf(loop->no_ipc, sizeof loop->no_ipc, "%.*s", MC_TEXT_LEN - 1, text);
    return loop;
}

static void explain(mc_loop *loop, const char *what)
{
    snprintf(loop->node->meter_reason, sizeof loop->node->meter_reason, "%.*s; %.*s", MC_TEXT_LEN / 2, loop->no_ipc,
             MC_TEXT_LEN / 2 - 8, what);
}

static void enter_stage(mc_loop *loop, int next, uint64_t now)
{
    loop->stage = next;
    loop->t_stage = now;
}

static void end_search(mc_loop *loop, uint64_t now)
{
    if (loop->search) {
        loop->node->n_hits += loop->search->n_hits;
        loop->node->hits_ns = loop->node->n_hits * loop->hit_ns;
    }
    mc_search_free(loop->search);
    loop->search = NULL;
    enter_stage(loop, MC_LOOP_WAITING, now);
}

/* The job changes, so it is tried again, more and more rarely. */
static void give_up(mc_loop *loop, uint64_t now, const char *why)
{
    char text[MC_TEXT_LEN];
    end_search(loop, now);
    loop->t_retry = now + (RETRY_NS << (loop->n_failed_searches < 4 ? loop->n_failed_searches : 4));
    loop->n_failed_searches++;
    if (loop->n_found) { /* the entry may be executed again: perhaps the program only waits, or writes its results */
        loop->n_vain = 0;
        enter_stage(loop, MC_LOOP_COUNTING, now);
        return;
    }
    snprintf(text, sizeof text, "no meter loop: %.*s", MC_TEXT_LEN / 2 - 32, why);
    explain(loop, text);
}

static void sample_rank(mc_loop *loop, const mc_rank *rank)
{
    int n_left = 0; /* not needed: a few threads of any rank are enough */
    int tids[N_TIDS], n = mc_proc_threads(rank->pid, tids, N_TIDS, &n_left);
    for (int i = 0; i < n && loop->search->n_sampled < MC_N_SAMPLED; i++) {
        mc_proc_thread thread;
        if (mc_proc_read_thread(&thread, rank->pid, tids[i], 0) == MC_OK && thread.state == 'R')
            mc_search_sample(loop->search, rank->pid, tids[i]);
    }
}

static void start_search(mc_loop *loop, uint64_t now)
{
    if (loop->hit_ns == 0) { /* not before: a short job may be over by then */
        loop->hit_ns = mc_probe_hit_ns();
        loop->line_cost = mc_probe_line_cost();
    }
    loop->search = mc_search_new(loop->line_cost);
    if (!loop->search) {
        give_up(loop, now, "no memory");
        return;
    }
    errno = 0;
    /* Ranks differ, so each search begins with another one. */
    for (int i = 0; i < loop->ranks->n; i++) {
        const mc_rank *rank = &loop->ranks->rows[(i + loop->n_failed_searches) % loop->ranks->n];
        if (rank->alive)
            sample_rank(loop, rank);
    }
    int error = errno;
    char why[64];
    if (loop->search->n_sampled) {
        enter_stage(loop, MC_LOOP_SAMPLING, now);
    } else if (error == 0 || error == ESRCH) {
        end_search(loop, now); /* none of them runs just now */
    } else {
        snprintf(why, sizeof why, "perf_event_open refused for the ranks (error %d)", error);
        give_up(loop, now, why);
    }
}

static void accept(mc_loop *loop, const mc_candidate *best, uint64_t now)
{
    const char *path = mc_candidate_path(best), *slash = strrchr(path, '/');
    char why[64] = "";
    double mean_ns = 0.0;
    snprintf(loop->path, sizeof loop->path, "%s", path);
    loop->offset = best->offset;
    loop->gap_ns = best->gap_ns;
    memset(loop->addresses, 0, sizeof loop->addresses);
    snprintf(loop->node->entry, sizeof loop->node->entry, "%.*s+0x%llx", MC_TEXT_LEN / 2, slash ? slash + 1 : path,
             (unsigned long long)best->offset);
    mc_cycles_too_long(loop->ranks, 0, now, &mean_ns);
    snprintf(why, sizeof why, "%.3g s between MPI calls, too long for burst", mean_ns * 1e-9);
    if (!loop->is_forced)
        explain(loop, why);
    else
        snprintf(loop->node->meter_reason, sizeof loop->node->meter_reason, "%s", loop->no_ipc);
    loop->node->meter = MC_METER_LOOP;
    loop->n_found++;
    loop->n_failed_searches = loop->n_vain = 0;
    end_search(loop, now);
    enter_stage(loop, MC_LOOP_COUNTING, now);
}

static void try_next(mc_loop *loop, uint64_t now)
{
    mc_search *search = loop->search;
    const mc_candidate *best = mc_search_best(search);
    if (mc_search_goes_on(search) && mc_search_try(search))
        enter_stage(loop, MC_LOOP_TRYING, now);
    else if (best)
        accept(loop, best, now);
    else
        give_up(loop, now,
                search->has_room ? "no function entry or return is executed 20 to 5000 times a second"
                                 : "all breakpoints of the processor are in use, by a debugger perhaps");
}

static int is_wanted(const mc_loop *loop, uint64_t max_ns, uint64_t now)
{
    double mean_ns;
    return loop->is_forced || loop->n_found || mc_cycles_too_long(loop->ranks, max_ns, now, &mean_ns);
}

int mc_loop_step(mc_loop *loop, int has_corunners, uint64_t max_ns, uint64_t now)
{
    int n_before = loop->n_found;
    if (loop->stage == MC_LOOP_WAITING) {
        if (has_corunners && now >= loop->t_retry && is_wanted(loop, max_ns, now))
            start_search(loop, now);
    } else if (loop->stage == MC_LOOP_SAMPLING) {
        if (mc_search_n_places(loop->search) < N_PLACES && now < loop->t_stage + SAMPLE_NS_MAX)
            return 0;
        if (mc_search_candidates(loop->search))
            try_next(loop, now);
        else
            give_up(loop, now, "its functions are unknown, or all its time is in libraries of the system");
    } else if (loop->stage == MC_LOOP_TRYING && mc_search_judge(loop->search, now >= loop->t_stage + TRIAL_NS_MAX)) {
        try_next(loop, now);
    } else if (loop->stage == MC_LOOP_COUNTING && loop->n_vain >= N_VAIN_MAX && now >= loop->t_retry) {
        enter_stage(loop, MC_LOOP_WAITING, now);
    }
    return loop->n_found > n_before;
}

static uint64_t address_in(mc_loop *loop, int i_rank)
{
    uint64_t *address = &loop->addresses[i_rank];
    if (!*address && mc_maps_read(&loop->maps, loop->ranks->rows[i_rank].pid) == MC_OK) {
        *address = mc_maps_address(&loop->maps, loop->path, loop->offset);
        *address = *address ? *address : NOT_THERE; /* the rank runs another program */
    }
    return *address == NOT_THERE ? 0 : *address;
}

static void open_probes(mc_loop *loop, int n_max)
{
    int tids[N_TIDS], n_left = 0;
    for (int i = 0; i < loop->ranks->n; i++) {
        uint64_t address = loop->ranks->rows[i].alive ? address_in(loop, i) : 0;
        int n = address ? mc_proc_threads(loop->ranks->rows[i].pid, tids, N_TIDS, &n_left) : 0;
        for (int j = 0; j < n; j++) {
            mc_probe *probe = &loop->probes[loop->n_probes];
            if (loop->n_probes == MC_N_PROBES || mc_probe_hits(probe, tids[j], address, n_max) != MC_OK) {
                n_left += mc_proc_has_thread(loop->ranks->rows[i].pid, tids[j]);
                continue;
            }
            loop->n_probes++;
            mc_probe_start(probe, n_max);
        }
    }
    loop->node->n_uncounted = mc_max(loop->node->n_uncounted, (uint64_t)n_left);
}

static void add_hit(void *data, const uint64_t *words, size_t n)
{
    if (n > 0)
        mc_track_hit(data, words[0]);
}

enum { KNOWN = 1, VAIN = 2 }; /* every hit is known; another place is wanted */

/* The kernel has removed the breakpoint of a thread that hit it too often. */
static int close_probes(mc_loop *loop, mc_passes *all, uint64_t n_max)
{
    uint64_t n = 0, ran_ns, sum = 0;
    int n_read = 0, is_too_hot = 0, n_probes = loop->n_probes;
    /* First stop all, so that no hit comes between reading the ring and reading the counter. */
    for (int i = 0; i < n_probes; i++)
        mc_probe_stop(&loop->probes[i]);
    for (int i = 0; i < n_probes; i++) {
        mc_probe *probe = &loop->probes[i];
        mc_track track;
        mc_track_begin(&track, all);
        mc_probe_each(probe, add_hit, &track);
        if (mc_probe_read(probe, &n, &ran_ns) == MC_OK) {
            n_read++;
            sum += n;
            is_too_hot |= n >= n_max;
            mc_track_end(&track, all, ran_ns);
        }
        mc_probe_close(probe);
    }
    loop->n_probes = 0;
    int is_known = n_read > 0 && n_read == n_probes && !is_too_hot && sum == all->n_all;
    int is_vain = is_too_hot || n_probes == 0 || (is_known && all->n_all == 0);
    return (is_known ? KNOWN : 0) | (is_vain ? VAIN : 0);
}

static mc_passes spans_of(const mc_own_shutter *own, uint64_t around_ns)
{
    const mc_reservation *pause = &own->reservation;
    uint64_t t_sampled = own->record.t0, t_end = pause->t1 - own->bound_ns;
    uint64_t t_before = pause->t0 - MC_APART_NS, t_after = pause->t1 + MC_APART_NS;
    return (mc_passes){.t0 = {t_before - around_ns, pause->t0, t_sampled, t_end, t_after},
                       .t1 = {t_before, t_sampled, t_end, t_after, t_after + around_ns}};
}

static mc_hits span(const mc_passes *all, int i)
{
    return (mc_hits){all->n[i], all->t1[i] - all->t0[i]};
}

static mc_edge edge(const mc_passes *all, int i)
{
    mc_edge result = i == MC_SPAN_BEGIN ? all->begin : all->end;
    result.n = all->n[i];
    result.window_ns = all->t1[i] - all->t0[i];
    return result;
}

static void fill(mc_shutter *shutter, const mc_passes *all, uint64_t took_ns)
{
    shutter->hits_before = span(all, MC_SPAN_BEFORE);
    shutter->hits_during = span(all, MC_SPAN_DURING);
    shutter->hits_after = span(all, MC_SPAN_AFTER);
    shutter->edge_begin = edge(all, MC_SPAN_BEGIN);
    shutter->edge_end = edge(all, MC_SPAN_END);
    if (all->n_threads && took_ns)
        shutter->busy_frac = (double)all->ran_ns / (double)(all->n_threads * took_ns);
}

void mc_loop_measure(mc_loop *loop, mc_own_shutter *own, uint64_t around_ns, int *wake)
{
    mc_passes all = spans_of(own, around_ns);
    int n_max = N_HITS_SPARE + (int)(RATE_LIMIT * 1e-9 * (double)(all.t1[MC_SPAN_AFTER] - all.t0[MC_SPAN_BEFORE]));
    open_probes(loop, n_max);
    /* For hundreds of threads that takes some milliseconds: the first window begins later. */
    uint64_t t_armed = mc_now_ns();
    all.t0[MC_SPAN_BEFORE] = mc_max(all.t0[MC_SPAN_BEFORE], t_armed);
    mc_sleep_until(all.t1[MC_SPAN_AFTER], wake);
    uint64_t took_ns = mc_now_ns() - t_armed;
    int in_time = all.t0[MC_SPAN_BEFORE] < all.t1[MC_SPAN_BEFORE] && t_armed + took_ns >= all.t1[MC_SPAN_AFTER];
    int found = close_probes(loop, &all, (uint64_t)n_max);
    loop->node->n_hits += all.n_all;
    loop->node->hits_ns = loop->node->n_hits * loop->hit_ns;
    if (found & VAIN)
        loop->n_vain++;
    if (!in_time || !(found & KNOWN))
        return;
    if (all.n_all)
        loop->n_vain = 0;
    own->record.entry = loop->offset;
    fill(&own->record, &all, took_ns);
}

void mc_loop_close(mc_loop *loop)
{
    if (!loop)
        return;
    mc_search_free(loop->search);
    free(loop);
}
