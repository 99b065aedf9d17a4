#define _GNU_SOURCE
#include "agent/meters/count.h"

#include "agent/count/patching.h"
#include "agent/count/stubs.h"
#include "agent/meters/meter.h"
#include "agent/shutter/intervals.h"
#include "common/options.h"
#include "common/proc.h"
#include "common/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_SAMPLES_WANTED = 1000,
    N_TRIALS_OF_SET = 6,
    N_SETS_TRIED_MAX = 4,
    N_REFUSED_ANEW = 2, /* number of refusals after which the stubs are made again */
    N_REFUSED_MAX = 4,
    N_GIVEN_UP_MAX = 4,
    N_PUT_OFF_MAX = 20,
};

#ifdef __x86_64__
enum { CAN_CHANGE_CODE = 1 };
#else
enum { CAN_CHANGE_CODE = 0 };
#endif

static const uint64_t PATIENCE_NS = 1000000000u, SAMPLE_NS_MIN = 1500000000u, SAMPLE_NS_MAX = 3000000000u,
                      TRIAL_NS = 4000000, LOOK_NS = 40000000, LOOK_LATEST_NS = 10000000000u, CHANGE_NS = 8000000,
                      BETWEEN_TRIALS_NS = 70000000, RETRY_NS = 5000000000u, LOOK_AGAIN_NS = 4000000000u,
                      LOOK_AGAIN_MAX_NS = 30000000000u;

/* Record in the node file what the meter counts, or why it counts nothing. */
static void explain(mc_count_meter *count, const char *what)
{
    snprintf(count->node->meter_reason, sizeof count->node->meter_reason, "%.*s%s%.*s", MC_TEXT_LEN / 2,
             count->why_not_ipc, count->why_not_ipc[0] ? "; " : "", MC_TEXT_LEN / 2 - 8, what);
}

/* ---- cost of one pass of a counted place ---- */

enum { N_PASSES = 40000, N_ROUNDS = 5 };

static const double LEAST_NS = 0.3;

#ifdef __x86_64__

/* Several counters take turns, because successive passes of a program are at different places. */
static __thread uint64_t counters[4];

/* The jump to the stub, the count, and the jump back. */
#define PASS(counter) "jmp 2f\n\t.balign 16\n2:\tincq %" counter "\n\tjmp 3f\n\t.balign 16\n3:\n\t"

static uint64_t with_ns(void)
{
    uint64_t n = N_PASSES / 4, t = mc_now_ns();
    __asm__ volatile("1:\n\t" PASS("0") PASS("1") PASS("2") PASS("3") "decq %4\n\tjnz 1b\n\t"
                     : "+m"(counters[0]), "+m"(counters[1]), "+m"(counters[2]), "+m"(counters[3]), "+r"(n)
                     :
                     : "cc");
    return mc_now_ns() - t;
}

static uint64_t without_ns(void)
{
    uint64_t n = N_PASSES / 4, t = mc_now_ns();
    __asm__ volatile("1:\n\tdecq %0\n\tjnz 1b\n\t" : "+r"(n) : : "cc");
    return mc_now_ns() - t;
}

/* Cost of one pass, from the shortest of several rounds, because other processes disturb some rounds. */
static double pass_ns(void)
{
    uint64_t with = UINT64_MAX, without = UINT64_MAX;
    for (int i = 0; i < N_ROUNDS; i++) {
        uint64_t t = with_ns();
        with = t < with ? t : with;
        t = without_ns();
        without = t < without ? t : without;
    }
    double ns = with > without ? (double)(with - without) / N_PASSES : 0.0;
    return ns > LEAST_NS ? ns : LEAST_NS;
}

#else

static double pass_ns(void)
{
    return LEAST_NS;
}

#endif

static void make_impossible(mc_count_meter *count, const char *why)
{
    char text[MC_TEXT_LEN];
    snprintf(text, sizeof text, "no meter count: %.*s", MC_TEXT_LEN / 2, why);
    explain(count, text);
    count->is_impossible = 1;
    count->stage = MC_COUNT_IDLE;
}

/* ---- sets of places, and their stubs ---- */

enum { N_SETS_FOR_COVERAGE = 3 /* while there are fewer sets, a known set must reach COVERAGE_WANTED */ };

static const double COVERAGE_MIN = 0.6, COVERAGE_WANTED = 0.85, COVERAGE_GAIN = 0.05;

static const mc_place_set *present_set(const mc_count_meter *count)
{
    return count->i_set >= 0 ? &count->node->counts.sets[count->i_set] : NULL;
}

static void use_set(mc_count_meter *count, int i_set)
{
    char text[96];
    const mc_place_set *set = &count->node->counts.sets[i_set];
    int n_loops = (int)(set->n - mc_loops_first(set));
    count->i_set = i_set;
    count->node->meter = MC_METER_COUNT;
    int n = snprintf(text, sizeof text, "%d places are counted", (int)set->n);
    if (n_loops)
        snprintf(text + n, sizeof text - (size_t)n, ", %d of them by registers%s", n_loops,
                 count->is_forbidden ? ", as option patching is 0" : "");
    explain(count, text);
}

/* The known set that covers the samples best; -1: no known set covers enough. When the program returns to an earlier
   phase, a known set fits again. */
static int known_set(const mc_count_meter *count)
{
    const mc_counts *counts = &count->node->counts;
    int i_best = -1;
    double best = counts->n_sets < N_SETS_FOR_COVERAGE ? COVERAGE_WANTED : COVERAGE_MIN;
    for (int i = 0; i < (int)counts->n_sets; i++) {
        double coverage = mc_places_coverage(&counts->sets[i], count->spots);
        if (!count->is_dropped[i] && coverage >= best + (i == count->i_set ? 0.0 : 0.05)) {
            best = coverage;
            i_best = i;
        }
    }
    return i_best;
}

/* Returns MC_OK, MC_E_FULL (ranks still have other jumps) or another error. Removes from the set the places that cannot
   be counted. */
static int make_stubs(mc_count_meter *count, mc_place_set *set)
{
    if (count->is_forbidden)
        return set->n ? MC_OK : MC_E_GONE;
    return mc_stubs_make(set, count->decoder, &count->files, &count->node->counts, count->ranks);
}

/* Returns 0 if a place of the set cannot be counted now. A known set must not lose a place, because rows of counts
   refer to places by index. */
static int make_known_stubs(mc_count_meter *count, int i_set)
{
    mc_place_set set = count->node->counts.sets[i_set];
    uint64_t n = set.n;
    return make_stubs(count, &set) == MC_OK && set.n == n;
}

/* Stop counting the present set for good. */
static void drop_set(mc_count_meter *count)
{
    count->is_dropped[count->i_set] = 1;
    count->i_set = -1;
}

/* 1: the new set covers hardly more samples than the present set. Changing to it would only split the shutters between
   two sets. */
static int covers_no_more(const mc_count_meter *count, const mc_place_set *set)
{
    const mc_place_set *present = present_set(count);
    return present && !count->is_dropped[count->i_set] &&
           mc_places_coverage(set, count->spots) < mc_places_coverage(present, count->spots) + COVERAGE_GAIN;
}

/* Count only the cheaper places of a set that has become too expensive. They form a new set, because rows of counts
   refer to places by index. */
static void use_thinned(mc_count_meter *count)
{
    mc_counts *counts = &count->node->counts;
    mc_place_set *set = &counts->sets[counts->n_sets];
    int status = MC_E_GONE;
    if (counts->n_sets < MC_N_PLACE_SETS && count->thinned.n) {
        *set = count->thinned;
        status = make_stubs(count, set);
    }
    if (status == MC_E_FULL)
        return;
    count->has_thinned = 0;
    if (status == MC_OK)
        use_set(count, (int)counts->n_sets++);
    else
        count->t_next = 0;
}

/* Make the stubs of the present set again, because the program may have mapped its own memory at the stubs'
   addresses. */
static void renew_stubs(mc_count_meter *count)
{
    count->wants_stubs = 0;
    if (count->i_set >= 0 && !make_known_stubs(count, count->i_set)) {
        drop_set(count);
        count->t_next = 0;
    }
}

/* ---- the search for places ---- */

static void enter_stage(mc_count_meter *count, int stage, uint64_t now)
{
    count->stage = stage;
    count->t_stage = now;
}

/* Schedule the next search, because the job may change. The intervals between searches grow. */
static void end_search(mc_count_meter *count, int has_found, uint64_t now)
{
    count->n_failed = has_found ? 0 : count->n_failed + 1;
    count->t_next = now + (has_found ? mc_min(LOOK_AGAIN_NS * (uint64_t)(1 + count->n_searches / 8), LOOK_AGAIN_MAX_NS)
                                     : RETRY_NS << (count->n_failed < 4 ? count->n_failed : 4));
    if (has_found)
        count->n_vain = 0;
    enter_stage(count, MC_COUNT_IDLE, now);
}

/* Allocate the memory for searches only when the first search begins, because a short job may end before that. */
static int prepare(mc_count_meter *count)
{
    if (!count->decoder)
        count->decoder = mc_decoder_new();
    if (count->decoder && !count->spots)
        count->spots = mc_spots_new();
    if (count->decoder && !count->samples)
        count->samples = mc_window_samples_new();
    if (count->decoder && !count->places)
        count->places = calloc(1, sizeof *count->places);
    if (count->decoder && count->spots && count->samples && count->places)
        return 1;
    make_impossible(count, "no disassembler (libcapstone) beside the keeper");
    return 0;
}

static int may_count(const mc_count_meter *count)
{
    for (int i = 0; i < count->ranks->n; i++)
        if (mc_patching_may(&count->ranks->rows[i]))
            return 1;
    return 0;
}

/* Try again soon, because ranks may be asleep at the moment, or may not answer. After N_PUT_OFF_MAX attempts the search
   has failed. */
static void put_off(mc_count_meter *count, uint64_t now)
{
    count->t_next = now + PATIENCE_NS / 4;
    if (++count->n_put_off < N_PUT_OFF_MAX)
        return;
    count->n_put_off = 0;
    explain(count, "no meter count: no thread of the ranks ran, or none answered");
    end_search(count, 0, now);
}

/* Check, before any code is changed, that the agent may read the counters in the ranks' memory. */
static int may_read(mc_count_meter *count, uint64_t now)
{
    int answer = mc_patching_may_read(count->ranks);
    if (answer == MC_READER_UNKNOWN)
        put_off(count, now);
    else if (answer != MC_READER_ALLOWED)
        make_impossible(count, "the kernel does not let the node agent read the ranks' memory (see ptrace_scope)");
    return answer == MC_READER_ALLOWED;
}

static void begin_search(mc_count_meter *count, uint64_t now)
{
    char why[MC_TEXT_LEN / 2];
    if (!prepare(count))
        return;
    if (!count->is_forbidden && !may_count(count)) {
        explain(count,
                "no meter count: the ranks' code must not be changed (a debugger is attached, or --no-patching)");
        end_search(count, 0, now);
        return;
    }
    if (!count->is_forbidden && !may_read(count, now))
        return;
    int status = mc_spots_begin(count->spots, count->ranks, count->n_searches++, MC_SAMPLE_EVERY_NS, 0);
    if (status == MC_E_PERF) {
        /* Other jobs' sample rings may have used up the locked memory that the kernel allows. There may be memory again
           by the next search. */
        snprintf(why, sizeof why, "no meter count: perf_event_open refused for the ranks (error %d)", errno);
        explain(count, why);
        end_search(count, 0, now);
    } else if (status == MC_OK) {
        count->n_put_off = 0;
        enter_stage(count, MC_COUNT_SAMPLING, now);
    } else {
        put_off(count, now);
    }
}

static void look_at_samples(mc_count_meter *count, uint64_t now)
{
    mc_counts *counts = &count->node->counts;
    mc_spots_end(count->spots, counts);
    mc_window_samples_recall(count->samples, count->spots);
    mc_places_drop_waiting(count->spots, count->decoder, &count->files, counts);
    int i_known = known_set(count);
    if (i_known == count->i_set && i_known >= 0) {
        end_search(count, 1, now);
    } else if (i_known >= 0 && make_known_stubs(count, i_known)) {
        use_set(count, i_known);
        end_search(count, 1, now);
    } else if (counts->n_sets == MC_N_PLACE_SETS) {
        end_search(count, 0, now);
    } else {
        count->places->n = 0;
        if (!count->is_forbidden)
            mc_places_find(count->places, count->decoder, &count->files, counts, count->spots, present_set(count));
        count->n_sets_tried = count->n_trials = 0;
        count->tried.n = 0;
        enter_stage(count, MC_COUNT_TRYING, now);
    }
}

/* Drop the current places. One of them may be in code that the ranks have changed, and other places may work. After a
   few drops, the meter gives up. */
static void give_up(mc_count_meter *count)
{
    int is_trying = count->stage == MC_COUNT_TRYING;
    count->n_refused = 0;
    if ((count->i_set < 0 && !is_trying) || ++count->n_given_up == N_GIVEN_UP_MAX) {
        make_impossible(count,
                        "the ranks' code cannot be written or differs from its file, or the kernel refuses a timer");
        return;
    }
    if (is_trying) {
        count->n_trials = N_TRIALS_OF_SET;
        return;
    }
    drop_set(count);
    count->t_next = 0;
}

/* Change the ranks' code. Returns 1 if the change was done in time. */
static int change(mc_count_meter *count, uint32_t request, uint64_t limit_ns, int *wake)
{
    uint64_t *stopped_ns = &count->node->counts.stopped_ns;
    int status = mc_patching_change(count->ranks, request, limit_ns, stopped_ns, wake);
    if (request == MC_PATCH_INSTALL) /* removing jumps always succeeds where there are none */
        count->n_refused = status == MC_E_ARG ? count->n_refused + 1 : status == MC_OK ? 0 : count->n_refused;
    count->wants_stubs |= count->n_refused == N_REFUSED_ANEW && count->stage != MC_COUNT_TRYING;
    if (count->n_refused == N_REFUSED_MAX)
        give_up(count);
    return status == MC_OK;
}

/* Number of threads that passed a place between two snapshots; at least 1. */
static size_t n_active_threads(const mc_snapshot *begin, const mc_snapshot *end)
{
    size_t n = 0;
    for (size_t i = 0; i < end->n && i < begin->n; i++)
        n += memcmp(&begin->rows[i], &end->rows[i], sizeof *begin->rows) != 0;
    return n ? n : 1;
}

/* Count all places under trial for some milliseconds. Returns 0 if the ranks did not react in time. */
static int make_trial(mc_count_meter *count, int *wake)
{
    mc_snapshot *begin = &count->edges[0], *end = &count->edges[1];
    uint64_t sums[MC_N_PLACES];
    int is_changed = change(count, MC_PATCH_INSTALL, CHANGE_NS, wake);
    int status = is_changed ? mc_snapshot_take(begin, count->ranks) : MC_OK;
    if (is_changed && status == MC_OK) {
        mc_sleep_until(begin->t + TRIAL_NS, wake);
        status = mc_patching_lasts(count->ranks) ? mc_snapshot_take(end, count->ranks) : MC_E_GONE;
    }
    change(count, MC_PATCH_REMOVE, CHANGE_NS, wake);
    if (!is_changed || status != MC_OK)
        return 0;
    count->node->counts.n_passes += mc_snapshot_between(begin, end, sums);
    double thread_s = (double)(end->t - begin->t) * 1e-9 * (double)n_active_threads(begin, end);
    mc_places_tried(count->places, &count->tried, sums, thread_s);
    return 1;
}

static void choose(mc_count_meter *count, uint64_t now)
{
    mc_counts *counts = &count->node->counts;
    mc_place_set *set = &counts->sets[counts->n_sets];
    mc_places_choose(count->places, count->spots, present_set(count), counts->pass_ns, set);
    mc_places_add_loops(set, count->decoder, &count->files, counts, count->spots);
    if (covers_no_more(count, set))
        set->n = 0;
    int status = set->n ? make_stubs(count, set) : MC_E_GONE;
    if (status == MC_E_FULL) /* a rank still has the jumps of the last trial: choose again when these jumps are gone */
        return;
    if (status == MC_OK) {
        use_set(count, (int)counts->n_sets++);
        end_search(count, 1, now);
        return;
    }
    if (count->i_set < 0)
        explain(count, count->is_forbidden
                           ? "no meter count: option patching is 0, and no register tells the passes of hot loops"
                           : "no meter count: the program's hot code has no instruction that can be counted");
    else if (!make_known_stubs(count, count->i_set))
        count->i_set = -1;
    end_search(count, 0, now);
}

/* Each set gets several trials, because the program may have phases that last some tenths of a second. */
static void try_next(mc_count_meter *count, uint64_t now, int *wake)
{
    mc_place_set *tried = &count->tried;
    if (tried->n && count->n_trials < N_TRIALS_OF_SET) {
        make_trial(count, wake);
        count->n_trials++;
        count->t_trial = now;
        return;
    }
    tried->n = 0;
    if (count->n_sets_tried++ >= N_SETS_TRIED_MAX || !mc_places_untried(count->places, tried)) {
        choose(count, now);
        return;
    }
    mc_place_set wanted = *tried;
    int status = make_stubs(count, tried);
    if (status != MC_E_FULL) /* if it is MC_E_FULL, a rank still has the jumps of the last trial */
        mc_places_refuse(count->places, &wanted, tried);
    if (status != MC_OK)
        tried->n = 0;
    count->n_trials = 0;
}

/* Evaluating the samples of a large program takes time, so wait for a free interval, but at most LOOK_LATEST_NS. */
static int is_time_to_look(const mc_count_meter *count, uint64_t t_free, uint64_t now)
{
    uint64_t took_ns = now - count->t_stage;
    if (now + LOOK_NS >= t_free && took_ns < LOOK_LATEST_NS)
        return 0;
    return took_ns >= SAMPLE_NS_MAX || (took_ns >= SAMPLE_NS_MIN && mc_spots_n_taken(count->spots) >= N_SAMPLES_WANTED);
}

static void search(mc_count_meter *count, int has_shutters, uint64_t t_free, uint64_t now, int *wake)
{
    if (now + TRIAL_NS + 2 * CHANGE_NS >= t_free) /* a trial now could make the agent miss another job's pause */
        return;
    if (mc_patching_is_patched(count->ranks)) { /* a rank slept when it should have removed its jumps */
        change(count, MC_PATCH_REMOVE, CHANGE_NS, wake);
        return;
    }
    if (count->is_impossible)
        return;
    if (count->has_thinned) {
        use_thinned(count);
    } else if (count->wants_stubs) {
        renew_stubs(count);
    } else if (count->stage == MC_COUNT_IDLE) {
        if (has_shutters && now >= count->t_next)
            begin_search(count, now);
    } else if (count->stage == MC_COUNT_SAMPLING) {
        if (is_time_to_look(count, t_free, now))
            look_at_samples(count, now);
    } else if (now >= count->t_trial + BETWEEN_TRIALS_NS) {
        try_next(count, now, wake);
    }
}

/* ---- counting before and in a shutter ---- */

enum { N_VAIN_MAX = 6 };

/* Number of windows before the shutter; indices of their last edge, and of both edges of the window in the shutter. */
enum { N_BEFORE = MC_N_BEFORE_WINDOWS, BEFORE_END = N_BEFORE, DURING_BEGIN = N_BEFORE + 1, DURING_END = N_BEFORE + 2 };

static const double BUSY_MIN = 0.9;

/* Largest fraction of an interval for which the job may have had no co-runners. The limit is not 0, because the agent
   reads the board only now and then. */
static const double ALONE_MAX = 0.1;

static uint64_t alone_ns(const mc_node *node)
{
    uint64_t watched_ns = node->t_last > node->t_open ? node->t_last - node->t_open : 0;
    return watched_ns > node->shared_ns ? watched_ns - node->shared_ns : 0;
}

mc_waits mc_waits_until_now(const mc_job_ranks *ranks, const mc_node *node)
{
    mc_waits waits = {.paused_ns = node->paused_ns + node->counts.stopped_ns, .alone_ns = alone_ns(node)};
    for (int i = 0; i < ranks->n && waits.n < MC_N_WAITS; i++) {
        const mc_rank *rank = &ranks->rows[i];
        uint64_t ns = rank->alive ? mc_proc_waited_ns(rank->pid, rank->pid) : UINT64_MAX;
        waits.n += ns != UINT64_MAX;
        waits.waited_ns += ns != UINT64_MAX ? ns : 0;
    }
    waits.waited_ns /= (uint64_t)(waits.n ? waits.n : 1);
    waits.t = waits.n ? mc_now_ns() : 0;
    return waits;
}

void mc_waits_between(const mc_waits *from, const mc_waits *to, uint64_t *ns, uint64_t *waited_ns)
{
    int is_same = from->t && to->t > from->t && from->n == to->n && to->waited_ns >= from->waited_ns;
    uint64_t whole_ns = is_same ? to->t - from->t : 0, paused_ns = to->paused_ns - from->paused_ns;
    int is_shared = (double)(to->alone_ns - from->alone_ns) <= ALONE_MAX * (double)whole_ns;
    int is_known = is_same && is_shared && paused_ns < whole_ns;
    *ns = is_known ? whole_ns - paused_ns : 0;
    *waited_ns = is_known ? to->waited_ns - from->waited_ns : 0;
}

static int take_at(mc_count_meter *count, int i_edge, uint64_t t, uint64_t late_ns, int *wake)
{
    mc_snapshot *edge = &count->edges[i_edge];
    mc_patching_renew(count->ranks, mc_max(t, mc_now_ns()));
    mc_sleep_until(t, wake);
    int is_taken = mc_now_ns() >= t && mc_snapshot_take(edge, count->ranks) == MC_OK && edge->t <= t + late_ns;
    mc_window_samples_edge(count->samples, i_edge);
    if (i_edge == 0 || i_edge == BEFORE_END || i_edge == DURING_END)
        count->waits[i_edge] = mc_waits_until_now(count->ranks, count->node);
    return is_taken;
}

/* The longest delay with which an edge is still read. Before the shutter this is a quarter of a window. The pace in a
   window can be wrong by as much, because the estimator assumes windows of equal length. At BEFORE_END the delay may be
   MC_APART_NS, because the pauses begin only after that. The window in the shutter may begin late by a quarter of its
   length, but may end late by only a sixteenth, because co-runners may run again after that. */
static uint64_t may_be_late_ns(int i_edge, uint64_t before_ns, uint64_t during_ns)
{
    return i_edge < BEFORE_END      ? before_ns / 4
           : i_edge == BEFORE_END   ? MC_APART_NS
           : i_edge == DURING_BEGIN ? during_ns / 4
                                    : during_ns / 16;
}

/* A window with a missed edge keeps length 0. There is no window after the shutter: after a pause, co-runners run
   faster at first, and it takes a tenth of a second until they affect caches and processor frequency as before. */
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

/* Total length of the windows before the shutter; 0: an edge was missed. */
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

/* Returns the number of all passes. Passes of loops are not part of counts->n_passes, because they are computed from
   samples and cost the threads nothing. */
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
    n_all += mc_window_samples_loops(count->samples, counts, row);
    __atomic_store_n(&counts->n_rows, counts->n_rows + 1, __ATOMIC_RELEASE);
    return n_all;
}

static void note_waits(mc_count_meter *count, const mc_waits *before, mc_shutter *shutter)
{
    const mc_waits *edges = count->waits;
    uint64_t ns;
    mc_waits_between(before, &edges[0], &shutter->since_ns, &shutter->since_waited_ns);
    mc_waits_between(&edges[0], &edges[BEFORE_END], &ns, &shutter->before_waited_ns);
    shutter->since_ns = ns ? shutter->since_ns : 0;
    count->waits_before = edges[MC_N_COUNT_EDGES - 1];
}

static void note_samples(mc_count_meter *count, const mc_place_set *set, mc_own_shutter *own)
{
    const mc_counted_code code = {set, count->decoder, &count->files, &count->node->counts};
    mc_window_samples_end(count->samples, &code, &own->record, &count->node->counts.sampled_ns);
}

/* Prepare a cheaper set if a window was too expensive. Places can be passed far more often in a phase of the program
   that no trial has seen. */
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
        double threads_ns = (double)windows_ns[i] * (double)n_active_threads(begin, end);
        for (int j = 0; j < MC_N_PLACES; j++)
            costs[j] = (double)sums[j] * counts->pass_ns / threads_ns;
        count->has_thinned = mc_places_thin(&counts->sets[count->i_set], costs, &count->thinned);
    }
    if (!count->has_thinned)
        return;
    drop_set(count);
}

static void measure_places(mc_count_meter *count, const mc_waits *before, mc_own_shutter *own, uint64_t around_ns,
                           int *wake)
{
    uint64_t windows_ns[MC_N_COUNT_WINDOWS] = {0};
    /* Keep a pointer, because i_set changes if the set is dropped meanwhile. */
    const mc_place_set *set = &count->node->counts.sets[count->i_set];
    /* Begin to sample before the jumps are installed. Jumps make their pages writable, and mc_maps_read does not take
       writable pages for code. */
    int i_first = (int)(count->node->n_shutters % MC_N_SHUTTERS) * MC_N_SAMPLERS; /* different ranks each time */
    int has_jumps = mc_loops_first(set) > 0;
    mc_window_samples_begin(count->samples, count->ranks, set, i_first, around_ns + own->record.t1 - own->record.t0);
    int is_installed = !has_jumps || change(count, MC_PATCH_INSTALL, mc_max(CHANGE_NS, around_ns / 8), wake);
    uint64_t t_begin = mc_now_ns(), begin_cpu_ns = mc_job_ranks_cpu_ns(count->ranks);
    if (is_installed)
        take_all(count, own, around_ns, windows_ns, wake);
    int has_lasted = !has_jumps || mc_patching_lasts(count->ranks);
    uint64_t took_ns = mc_now_ns() - t_begin, used_ns = mc_job_ranks_cpu_ns(count->ranks) - begin_cpu_ns;
    if (has_jumps)
        change(count, MC_PATCH_REMOVE, CHANGE_NS, wake);
    note_samples(count, set, own);
    if (is_installed)
        note_waits(count, before, &own->record);
    if (!is_installed || !has_lasted || !windows_ns[N_BEFORE])
        return;
    count->n_vain = note_row(count, own, windows_ns) ? 0 : count->n_vain + 1;
    if (count->n_vain == N_VAIN_MAX)
        count->t_next = 0;
    thin(count, windows_ns);
    size_t n_threads = n_active_threads(&count->edges[DURING_BEGIN], &count->edges[DURING_END]);
    own->record.busy_frac = has_jumps ? (double)used_ns / ((double)took_ns * (double)n_threads)
                                      : mc_window_samples_busy_frac(count->samples);
    count->takes_turns = own->record.busy_frac < BUSY_MIN;
    own->record.before_ns = before_ns(windows_ns);
    own->record.during_ns = windows_ns[N_BEFORE];
}

/* ---- operations of the meter ---- */

/* With this value shutters last about 25 ms, whatever the program's cycle is. The speed of the program and of the
   machine varies over tenths of a second, so many short shutters tell more than a few long ones. In even shorter
   shutters, caches would hardly refill. */
static const double COUNTED_CYCLE_NS = 4.2e6;

/* Total length of the windows before a shutter, as a multiple of the shutter's length. Counting in these windows also
   costs time, which the duty limit then leaves no longer for shutters. */
enum { COUNT_WINDOWS = 4, COUNT_WINDOWS_IN_TURNS = 24 };

static int open_count(mc_meter *meter, uint64_t t_open)
{
    mc_node *node = meter->node;
    mc_count_meter *count = meter->state = calloc(1, sizeof *count);
    if (!count)
        return 0;
    count->node = node;
    count->ranks = meter->ranks;
    count->i_set = -1;
    count->t_next = t_open + PATIENCE_NS / 4;
    snprintf(count->why_not_ipc, sizeof count->why_not_ipc, "%s", node->meter_reason);
    node->counts.pass_ns = pass_ns();
    if (!CAN_CHANGE_CODE)
        make_impossible(count, "code is changed on x86-64 only");
    count->is_forbidden = mc_option_number(MC_OPT_PATCHING) == 0.0;
    if (count->is_forbidden && !count->is_impossible)
        explain(count, "no meter count yet: option patching is 0");
    return 1;
}

static void close_count(mc_meter *meter)
{
    mc_count_meter *count = meter->state;
    int never = 0;
    if (mc_patching_is_patched(count->ranks))
        mc_patching_change(count->ranks, MC_PATCH_REMOVE, CHANGE_NS, &count->node->counts.stopped_ns, &never);
    for (int i = 0; i < MC_N_COUNT_EDGES; i++)
        mc_snapshot_free(&count->edges[i]);
    mc_program_files_close(&count->files);
    mc_spots_free(count->spots);
    mc_window_samples_free(count->samples);
    mc_decoder_free(count->decoder);
    free(count->places);
    free(count);
}

static int is_ready(const mc_count_meter *count)
{
    return !count->is_impossible && count->i_set >= 0 && count->stage != MC_COUNT_TRYING;
}

static int step(mc_meter *meter, int has_shutters, uint64_t t_free, uint64_t now, int *wake)
{
    mc_count_meter *count = meter->state;
    int was_ready = is_ready(count);
    search(count, has_shutters, t_free, now, wake);
    return is_ready(count) && !was_ready;
}

static int is_due(const mc_meter *meter, int has_shutters, uint64_t now)
{
    const mc_count_meter *count = meter->state;
    if (count->stage != MC_COUNT_IDLE || mc_patching_is_patched(count->ranks))
        return 1;
    return !count->is_impossible &&
           (count->has_thinned || count->wants_stubs || (has_shutters && now >= count->t_next));
}

static int search_state(const mc_meter *meter)
{
    const mc_count_meter *count = meter->state;
    return count->is_impossible            ? MC_SEARCH_IMPOSSIBLE
           : count->stage == MC_COUNT_IDLE ? MC_SEARCH_IDLE
                                           : MC_SEARCH_RUNNING;
}

/* If this job shares a processor with co-runners, the scheduler gives the processor to each of them for milliseconds at
   a time. Windows before the shutter must be longer than that, which delays no co-runner. */
static uint64_t around_ns(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns)
{
    const mc_count_meter *count = meter->state;
    uint64_t least_ns = COUNT_WINDOWS * planned_ns + MC_QUIET_NS;
    uint64_t in_turns_ns = count->takes_turns ? mc_min(COUNT_WINDOWS_IN_TURNS * planned_ns, period_ns / 4) : 0;
    return is_ready(count) ? mc_max(least_ns, in_turns_ns) : 0;
}

static double cycle_ns(const mc_meter *meter)
{
    return is_ready(meter->state) ? COUNTED_CYCLE_NS : 0.0;
}

static void measure(mc_meter *meter, mc_own_shutter *own, uint64_t around_ns, int *wake)
{
    mc_count_meter *count = meter->state;
    mc_waits before = count->waits_before;
    /* If this shutter is not counted, it is unknown when the interval to the next shutter begins. */
    count->waits_before = (mc_waits){0};
    if (is_ready(count))
        measure_places(count, &before, own, around_ns, wake);
}

/* The meter is recorded as `burst` at first, because only the ranks' bursts measure progress until places are found. */
const mc_meter_ops mc_meter_count = {
    .name = "count",
    .recorded_as = MC_METER_BURST,
    .open = open_count,
    .close = close_count,
    .step = step,
    .is_due = is_due,
    .search = search_state,
    .around_ns = around_ns,
    .cycle_ns = cycle_ns,
    .measure = measure,
};
