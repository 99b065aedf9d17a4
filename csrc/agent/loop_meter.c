/* The meter loop: an entry of the program is chosen while the job runs, and counted in windows before, in and after
   each shutter of this job. */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "agent/loop/hits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_TIDS = 256,
    N_VAIN_MAX = 5,    /* turns that counted nothing, or too much, until another entry is looked for */
    N_PLACES = 1500,   /* to know how hot a line of code is */
    N_HITS_SPARE = 64, /* in a turn, beyond what the rate allows */
};

static const uint64_t SAMPLE_NS_MAX = 4000000000u, TRIAL_NS_MAX = 800000000u, PATIENCE_NS = 1000000000u,
                      RETRY_NS = 5000000000u;
static const uint64_t NOT_THERE = UINT64_MAX;
static const double RATE_LIMIT = 10000.0; /* hits of a thread per second in a window, above which the kernel ends it */

void mc_loop_open(mc_agent *agent, int is_forced)
{
    char reason[MC_TEXT_LEN / 2];
    mc_node *node = agent->node;
    char *text = node->meter_reason;
    size_t n = strlen(text), size = sizeof node->meter_reason;
    if (mc_probe_available(reason, sizeof reason) != MC_OK)
        snprintf(text + n, size - n, "; no meter loop: %s", reason);
    else if (!(agent->loop = calloc(1, sizeof *agent->loop)))
        snprintf(text + n, size - n, "; no meter loop: no memory");
    if (!agent->loop)
        return;
    agent->loop->is_forced = is_forced;
    agent->loop->t_retry = agent->t_open + (is_forced ? 0 : PATIENCE_NS);
    snprintf(agent->loop->no_ipc, sizeof agent->loop->no_ipc, "%.*s", MC_TEXT_LEN - 1, text);
}

static void say(mc_agent *agent, const char *what)
{
    snprintf(agent->node->meter_reason, sizeof agent->node->meter_reason, "%.*s; %.*s", MC_TEXT_LEN / 2,
             agent->loop->no_ipc, MC_TEXT_LEN / 2 - 8, what);
}

static void stage(mc_loop *loop, int next, uint64_t now)
{
    loop->stage = next;
    loop->t_stage = now;
}

static void end_search(mc_agent *agent, uint64_t now)
{
    mc_loop *loop = agent->loop;
    if (loop->search) {
        agent->node->n_hits += loop->search->n_hits;
        agent->node->hits_ns = agent->node->n_hits * loop->hit_ns;
    }
    mc_search_free(loop->search);
    loop->search = NULL;
    stage(loop, MC_LOOP_WAITING, now);
}

/* The job changes, so it is tried again, more and more rarely. */
static void give_up(mc_agent *agent, uint64_t now, const char *why)
{
    mc_loop *loop = agent->loop;
    char text[MC_TEXT_LEN];
    end_search(agent, now);
    loop->t_retry = now + (RETRY_NS << (loop->n_searches < 4 ? loop->n_searches : 4));
    loop->n_searches++;
    if (loop->n_found) { /* the place may come to life again: a program waits, or writes its results */
        loop->n_vain = 0;
        stage(loop, MC_LOOP_COUNTING, now);
        return;
    }
    snprintf(text, sizeof text, "no meter loop: %.*s", MC_TEXT_LEN / 2 - 32, why);
    say(agent, text);
}

static void sample_rank(mc_loop *loop, const mc_rank *rank)
{
    int n_left = 0; /* any few do */
    int tids[N_TIDS], n = mc_proc_threads(rank->pid, tids, N_TIDS, &n_left);
    for (int i = 0; i < n && loop->search->n_sampled < MC_N_SAMPLED; i++) {
        mc_proc_thread thread;
        if (mc_proc_read_thread(&thread, rank->pid, tids[i], 0) == MC_OK && thread.state == 'R')
            mc_search_sample(loop->search, rank->pid, tids[i]);
    }
}

static void start_search(mc_agent *agent, uint64_t now)
{
    mc_loop *loop = agent->loop;
    if (loop->hit_ns == 0) { /* not before: a short job may be over by then */
        loop->hit_ns = mc_probe_hit_ns();
        loop->line_cost = mc_probe_line_cost();
    }
    loop->search = mc_search_new(loop->line_cost);
    if (!loop->search) {
        give_up(agent, now, "no memory");
        return;
    }
    errno = 0;
    /* Ranks differ, and so do the searches. */
    for (int i = 0; i < agent->n_ranks; i++) {
        const mc_rank *rank = &agent->ranks[(i + loop->n_searches) % agent->n_ranks];
        if (rank->alive)
            sample_rank(loop, rank);
    }
    int error = errno;
    char why[64];
    if (loop->search->n_sampled) {
        stage(loop, MC_LOOP_SAMPLING, now);
    } else if (error == 0 || error == ESRCH) {
        end_search(agent, now); /* none of them runs just now */
    } else {
        snprintf(why, sizeof why, "perf_event_open refused for the ranks (error %d)", error);
        give_up(agent, now, why);
    }
}

static void accept(mc_agent *agent, const mc_candidate *best, uint64_t now)
{
    mc_loop *loop = agent->loop;
    const char *path = mc_candidate_path(best), *slash = strrchr(path, '/');
    char why[64] = "";
    double mean_ns = 0.0;
    snprintf(loop->path, sizeof loop->path, "%s", path);
    loop->offset = best->offset;
    loop->gap_ns = best->gap_ns;
    memset(loop->addresses, 0, sizeof loop->addresses);
    snprintf(agent->node->entry, sizeof agent->node->entry, "%.*s+0x%llx", MC_TEXT_LEN / 2, slash ? slash + 1 : path,
             (unsigned long long)best->offset);
    mc_bursts_too_long(agent, now, &mean_ns);
    snprintf(why, sizeof why, "%.3g s between MPI calls, too long for burst", mean_ns * 1e-9);
    if (!loop->is_forced)
        say(agent, why);
    else
        snprintf(agent->node->meter_reason, sizeof agent->node->meter_reason, "%s", loop->no_ipc);
    agent->node->meter = MC_METER_LOOP;
    agent->t_adapted = 0;
    loop->n_found++;
    loop->n_searches = loop->n_vain = 0;
    end_search(agent, now);
    stage(loop, MC_LOOP_COUNTING, now);
}

static void try_on(mc_agent *agent, uint64_t now)
{
    mc_search *search = agent->loop->search;
    const mc_candidate *best = mc_search_best(search);
    if (mc_search_goes_on(search) && mc_search_try(search))
        stage(agent->loop, MC_LOOP_TRYING, now);
    else if (best)
        accept(agent, best, now);
    else
        give_up(agent, now,
                search->has_room ? "no function entry or return is executed 20 to 5000 times a second"
                                 : "all breakpoints of the processor are in use, by a debugger perhaps");
}

void mc_loop_step(mc_agent *agent, uint64_t now)
{
    mc_loop *loop = agent->loop;
    double mean_ns;
    if (!loop)
        return;
    if (loop->stage == MC_LOOP_WAITING) {
        if (agent->n_others && now >= loop->t_retry &&
            (loop->is_forced || loop->n_found || mc_bursts_too_long(agent, now, &mean_ns)))
            start_search(agent, now);
    } else if (loop->stage == MC_LOOP_SAMPLING) {
        if (mc_search_n_places(loop->search) < N_PLACES && now < loop->t_stage + SAMPLE_NS_MAX)
            return;
        if (mc_search_candidates(loop->search))
            try_on(agent, now);
        else
            give_up(agent, now, "its functions are unknown, or all its time is in libraries of the system");
    } else if (loop->stage == MC_LOOP_TRYING && mc_search_judge(loop->search, now >= loop->t_stage + TRIAL_NS_MAX)) {
        try_on(agent, now);
    } else if (loop->stage == MC_LOOP_COUNTING && loop->n_vain >= N_VAIN_MAX && now >= loop->t_retry) {
        stage(loop, MC_LOOP_WAITING, now);
    }
}

static uint64_t address_in(mc_agent *agent, int i_rank)
{
    mc_loop *loop = agent->loop;
    uint64_t *address = &loop->addresses[i_rank];
    if (!*address && mc_maps_read(&loop->maps, agent->ranks[i_rank].pid) == MC_OK) {
        *address = mc_maps_address(&loop->maps, loop->path, loop->offset);
        *address = *address ? *address : NOT_THERE; /* the rank runs another program */
    }
    return *address == NOT_THERE ? 0 : *address;
}

static void open_probes(mc_agent *agent, int n_max)
{
    mc_loop *loop = agent->loop;
    int tids[N_TIDS], n_left = 0;
    for (int i = 0; i < agent->n_ranks; i++) {
        uint64_t address = agent->ranks[i].alive ? address_in(agent, i) : 0;
        int n = address ? mc_proc_threads(agent->ranks[i].pid, tids, N_TIDS, &n_left) : 0;
        for (int j = 0; j < n; j++) {
            mc_probe *probe = &loop->probes[loop->n_probes];
            if (loop->n_probes == MC_N_PROBES || mc_probe_hits(probe, tids[j], address, n_max) != MC_OK) {
                n_left += mc_proc_has_thread(agent->ranks[i].pid, tids[j]);
                continue;
            }
            loop->n_probes++;
            mc_probe_start(probe, n_max);
        }
    }
    agent->node->n_uncounted = mc_max(agent->node->n_uncounted, (uint64_t)n_left);
}

static void add_hit(void *data, const uint64_t *words, size_t n)
{
    if (n > 0)
        mc_track_hit(data, words[0]);
}

enum { KNOWN = 1, VAIN = 2 }; /* every hit is known; another place is wanted */

/* A thread that came too often has lost its breakpoint to the kernel. */
static int close_probes(mc_loop *loop, mc_passes *all, uint64_t n_max)
{
    uint64_t n = 0, ran_ns, sum = 0;
    int n_read = 0, is_too_hot = 0, n_probes = loop->n_probes;
    /* Else hits between the look into the ring and that at the counter. */
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

static mc_passes spans_of(const mc_agent *agent)
{
    const mc_reservation *pause = &agent->turn.reservation;
    uint64_t around_ns = mc_turn_around_ns(agent), t_sampled = agent->turn.shutter.t0;
    uint64_t t_before = pause->t0 - MC_APART_NS, t_after = pause->t1 + MC_APART_NS;
    uint64_t t_end = pause->t1 - (agent->turn.i_common ? agent->node->common.clock_bound_ns : 0);
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

void mc_loop_measure(mc_agent *agent)
{
    mc_loop *loop = agent->loop;
    mc_passes all = spans_of(agent);
    int n_max = N_HITS_SPARE + (int)(RATE_LIMIT * 1e-9 * (double)(all.t1[MC_SPAN_AFTER] - all.t0[MC_SPAN_BEFORE]));
    open_probes(agent, n_max);
    /* With hundreds of threads that takes some milliseconds of the first window. */
    uint64_t t_armed = mc_now_ns();
    all.t0[MC_SPAN_BEFORE] = mc_max(all.t0[MC_SPAN_BEFORE], t_armed);
    mc_sleep_until(all.t1[MC_SPAN_AFTER], &agent->wake);
    uint64_t took_ns = mc_now_ns() - t_armed;
    int in_time = all.t0[MC_SPAN_BEFORE] < all.t1[MC_SPAN_BEFORE] && t_armed + took_ns >= all.t1[MC_SPAN_AFTER];
    int found = close_probes(loop, &all, (uint64_t)n_max);
    agent->node->n_hits += all.n_all;
    agent->node->hits_ns = agent->node->n_hits * loop->hit_ns;
    if (found & VAIN)
        loop->n_vain++;
    if (!in_time || !(found & KNOWN))
        return;
    if (all.n_all)
        loop->n_vain = 0;
    agent->turn.shutter.entry = loop->offset;
    fill(&agent->turn.shutter, &all, took_ns);
}

void mc_loop_close(mc_agent *agent)
{
    if (!agent->loop)
        return;
    mc_search_free(agent->loop->search);
    free(agent->loop);
    agent->loop = NULL;
}
