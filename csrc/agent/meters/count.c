#define _GNU_SOURCE
#include "agent/meters/count.h"

#include "agent/count/patching.h"
#include "agent/count/stubs.h"
#include "agent/shutter/intervals.h"
#include "common/options.h"
#include "common/proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_SAMPLES_WANTED = 1000,
    N_TRIALS_OF_SET = 6,
    N_SETS_TRIED_MAX = 4,
    N_REFUSED_ANEW = 2, /* then the stubs are made anew */
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

/* Tell what the meter does, or why it does not. */
static void explain(mc_count_meter *count, const char *what)
{
    snprintf(count->node->meter_reason, sizeof count->node->meter_reason, "%.*s%s%.*s", MC_TEXT_LEN / 2,
             count->why_not_ipc, count->why_not_ipc[0] ? "; " : "", MC_TEXT_LEN / 2 - 8, what);
}

/* ---- what one pass of a counted place costs ---- */

enum { N_PASSES = 40000, N_ROUNDS = 5 };

static const double LEAST_NS = 0.3;

#ifdef __x86_64__

/* Several counters in turn, as in a program whose passes follow each other at different places. */
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

/* The shortest of some rounds, as other processes run too. */
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

mc_count_meter *mc_count_open(mc_node *node, mc_job_ranks *ranks, uint64_t t_open)
{
    mc_count_meter *count = calloc(1, sizeof *count);
    if (!count)
        return NULL;
    count->node = node;
    count->ranks = ranks;
    count->i_set = -1;
    count->t_next = t_open + PATIENCE_NS / 4;
    snprintf(count->why_not_ipc, sizeof count->why_not_ipc, "%s", node->meter_reason);
    node->counts.pass_ns = pass_ns();
    if (!CAN_CHANGE_CODE)
        make_impossible(count, "code is changed on x86-64 only");
    else if (mc_option_number(MC_OPT_PATCHING) == 0.0)
        make_impossible(count, "option patching is 0");
    return count;
}

void mc_count_close(mc_count_meter *count)
{
    int never = 0;
    if (!count)
        return;
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

/* ---- the sets of places: which one is counted, and the stubs of its places ---- */

enum { N_SETS_FOR_COVERAGE = 3 /* so many sets may follow each other only because they cover more */ };

static const double COVERAGE_MIN = 0.6, COVERAGE_WANTED = 0.85, COVERAGE_GAIN = 0.05;

static const mc_place_set *present_set(const mc_count_meter *count)
{
    return count->i_set >= 0 ? &count->node->counts.sets[count->i_set] : NULL;
}

static void use_set(mc_count_meter *count, int i_set)
{
    char text[96];
    count->i_set = i_set;
    count->node->meter = MC_METER_COUNT;
    snprintf(text, sizeof text, "%d places are counted", (int)count->node->counts.sets[i_set].n);
    explain(count, text);
}

/* The set that fits the samples best, a phase of the program that was there before; -1: none fits. */
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

/* MC_OK, MC_E_FULL (ranks still have other jumps) or another error. Places that cannot be counted leave the set. */
static int make_stubs(mc_count_meter *count, mc_place_set *set)
{
    return mc_stubs_make(set, count->decoder, &count->files, &count->node->counts, count->ranks);
}

/* 0: not all of its places can be counted now. Rows of counts have its places by their index, so it must not lose one. */
static int make_known_stubs(mc_count_meter *count, int i_set)
{
    mc_place_set set = count->node->counts.sets[i_set];
    uint64_t n = set.n;
    return make_stubs(count, &set) == MC_OK && set.n == n;
}

void mc_count_drop_set(mc_count_meter *count)
{
    count->is_dropped[count->i_set] = 1;
    count->i_set = -1;
}

/* A new set would only split the shutters into those with one and those with the other. */
static int covers_no_more(const mc_count_meter *count, const mc_place_set *set)
{
    const mc_place_set *present = present_set(count);
    return present && !count->is_dropped[count->i_set] &&
           mc_places_coverage(set, count->spots) < mc_places_coverage(present, count->spots) + COVERAGE_GAIN;
}

/* Of a set that had become too expensive. Rows of counts have places by their index, so this is a new set. */
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

/* The program may have mapped memory of its own where the stubs should be. */
static void renew_stubs(mc_count_meter *count)
{
    count->wants_stubs = 0;
    if (count->i_set >= 0 && !make_known_stubs(count, count->i_set)) {
        mc_count_drop_set(count);
        count->t_next = 0;
    }
}

/* ---- the search for places ---- */

static void enter_stage(mc_count_meter *count, int stage, uint64_t now)
{
    count->stage = stage;
    count->t_stage = now;
}

/* The job changes, so it is tried again, more and more rarely. */
static void end_search(mc_count_meter *count, int has_found, uint64_t now)
{
    count->n_failed = has_found ? 0 : count->n_failed + 1;
    count->t_next = now + (has_found ? mc_min(LOOK_AGAIN_NS * (uint64_t)(1 + count->n_searches / 8), LOOK_AGAIN_MAX_NS)
                                     : RETRY_NS << (count->n_failed < 4 ? count->n_failed : 4));
    if (has_found)
        count->n_vain = 0;
    enter_stage(count, MC_COUNT_IDLE, now);
}

int mc_count_can_search(mc_count_meter *count)
{
    if (!count->decoder)
        count->decoder = mc_decoder_new();
    if (count->decoder && !count->spots)
        count->spots = mc_spots_new();
    if (count->decoder && !count->samples)
        count->samples = mc_window_samples_new();
    if (count->decoder && !count->places)
        count->places = calloc(1, sizeof *count->places);
    return count->decoder && count->spots && count->samples && count->places;
}

/* Not before it is needed: a short job may be over by then. */
static int prepare(mc_count_meter *count)
{
    if (mc_count_can_search(count))
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

/* Ranks may sleep or not answer just now. If they never do, the search has failed. */
static void put_off(mc_count_meter *count, uint64_t now)
{
    count->t_next = now + PATIENCE_NS / 4;
    if (++count->n_put_off < N_PUT_OFF_MAX)
        return;
    count->n_put_off = 0;
    explain(count, "no meter count: no thread of the ranks ran, or none answered");
    end_search(count, 0, now);
}

/* Before any code is changed. */
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
    if (!may_count(count)) {
        explain(count, "no meter count: the ranks' code may not be changed (a debugger, or --no-patching there)");
        end_search(count, 0, now);
        return;
    }
    if (!may_read(count, now))
        return;
    int status = mc_spots_begin(count->spots, count->ranks, count->n_searches++, MC_SAMPLE_EVERY_NS);
    if (status == MC_E_PERF) {
        /* Other jobs' rings may have used up the memory that the kernel locks for them, so this may change. */
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
        mc_places_find(count->places, count->decoder, &count->files, counts, count->spots, present_set(count));
        count->n_sets_tried = count->n_trials = 0;
        count->tried.n = 0;
        enter_stage(count, MC_COUNT_TRYING, now);
    }
}

/* With other places it may be possible: of these one may have a word of code that the ranks have changed. */
static void give_up(mc_count_meter *count)
{
    int is_trying = count->stage == MC_COUNT_TRYING;
    count->n_refused = 0;
    if ((count->i_set < 0 && !is_trying) || ++count->n_given_up == N_GIVEN_UP_MAX) {
        make_impossible(count,
                        "the ranks' code cannot be written, is not as in its file, or the kernel gives no timer");
        return;
    }
    if (is_trying) {
        count->n_trials = N_TRIALS_OF_SET;
        return;
    }
    mc_count_drop_set(count);
    count->t_next = 0;
}

int mc_count_change(mc_count_meter *count, uint32_t request, uint64_t limit_ns, int *wake)
{
    uint64_t *stopped_ns = &count->node->counts.stopped_ns;
    int status = mc_patching_change(count->ranks, request, limit_ns, stopped_ns, wake);
    if (request == MC_PATCH_INSTALL) /* to take nothing back is always possible */
        count->n_refused = status == MC_E_ARG ? count->n_refused + 1 : status == MC_OK ? 0 : count->n_refused;
    count->wants_stubs |= count->n_refused == N_REFUSED_ANEW && count->stage != MC_COUNT_TRYING;
    if (count->n_refused == N_REFUSED_MAX)
        give_up(count);
    return status == MC_OK;
}

/* Count all places under trial for some milliseconds. 0: the ranks did not come in time. */
static int make_trial(mc_count_meter *count, int *wake)
{
    mc_snapshot *begin = &count->edges[0], *end = &count->edges[1];
    uint64_t sums[MC_N_PLACES];
    int is_changed = mc_count_change(count, MC_PATCH_INSTALL, CHANGE_NS, wake);
    int status = is_changed ? mc_snapshot_take(begin, count->ranks) : MC_OK;
    if (is_changed && status == MC_OK) {
        mc_sleep_until(begin->t + TRIAL_NS, wake);
        status = mc_patching_lasts(count->ranks) ? mc_snapshot_take(end, count->ranks) : MC_E_GONE;
    }
    mc_count_change(count, MC_PATCH_REMOVE, CHANGE_NS, wake);
    if (!is_changed || status != MC_OK)
        return 0;
    count->node->counts.n_passes += mc_snapshot_between(begin, end, sums);
    double thread_s = (double)(end->t - begin->t) * 1e-9 * (double)mc_count_n_active(begin, end);
    mc_places_tried(count->places, &count->tried, sums, thread_s);
    return 1;
}

static void choose(mc_count_meter *count, uint64_t now)
{
    mc_counts *counts = &count->node->counts;
    mc_place_set *set = &counts->sets[counts->n_sets];
    mc_places_choose(count->places, count->spots, present_set(count), counts->pass_ns, set);
    if (covers_no_more(count, set))
        set->n = 0;
    int status = set->n ? make_stubs(count, set) : MC_E_GONE;
    if (status == MC_E_FULL) /* a rank has still the jumps of the last trial: choose again when it is clean */
        return;
    if (status == MC_OK) {
        use_set(count, (int)counts->n_sets++);
        end_search(count, 1, now);
        return;
    }
    if (count->i_set < 0)
        explain(count, "no meter count: the program's hot code has no instruction that can be counted");
    else if (!make_known_stubs(count, count->i_set))
        count->i_set = -1;
    end_search(count, 0, now);
}

/* A set is tried several times: the program may have phases of some tenths of a second. */
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
    if (status != MC_E_FULL) /* else a rank has still the jumps of the last trial */
        mc_places_refuse(count->places, &wanted, tried);
    if (status != MC_OK)
        tried->n = 0;
    count->n_trials = 0;
}

/* It takes some time to look at samples of a large program. */
static int is_time_to_look(const mc_count_meter *count, uint64_t t_free, uint64_t now)
{
    uint64_t took_ns = now - count->t_stage;
    if (now + LOOK_NS >= t_free && took_ns < LOOK_LATEST_NS)
        return 0;
    return took_ns >= SAMPLE_NS_MAX || (took_ns >= SAMPLE_NS_MIN && mc_spots_n_taken(count->spots) >= N_SAMPLES_WANTED);
}

void mc_count_step(mc_count_meter *count, int has_shutters, uint64_t t_free, uint64_t now, int *wake)
{
    if (now + TRIAL_NS + 2 * CHANGE_NS >= t_free) /* other jobs' pauses must not be missed */
        return;
    if (mc_patching_is_patched(count->ranks)) { /* a rank slept when it was asked to take them back */
        mc_count_change(count, MC_PATCH_REMOVE, CHANGE_NS, wake);
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

int mc_count_is_due(const mc_count_meter *count, int has_shutters, uint64_t now)
{
    if (count->stage != MC_COUNT_IDLE || mc_patching_is_patched(count->ranks))
        return 1;
    return !count->is_impossible &&
           (count->has_thinned || count->wants_stubs || (has_shutters && now >= count->t_next));
}

int mc_count_is_ready(const mc_count_meter *count)
{
    return !count->is_impossible && count->i_set >= 0 && count->stage != MC_COUNT_TRYING;
}
