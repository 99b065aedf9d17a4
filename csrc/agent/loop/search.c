#define _GNU_SOURCE
#include "agent/loop/search.h"

#include "common/proc.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_TRIAL_HITS = 64,
    N_HITS_AT_LEAST = 8,
    LINE_BYTES = 64,
    N_FROM_SAMPLES = 64, /* candidates from samples */
    N_TRIED = 128,
    N_TRIED_SINCE = 24, /* candidates tried since the best one: most of the rest is never executed again */
    CODE_BYTES = 16384  /* bytes of a function that are searched for calls */
};

/* The job does not obey others' shutters during lookups. One takes 20 us, or up to 2 ms without an unwinding table. */
static const uint64_t LOOKUPS_NS = 100000000u, RAN_AT_LEAST_NS = 100000000u;

/* Hits per second of processor time. A hit costs some 10 us: above the highest rate a window would be slowed by more
   than a twentieth. Below the lowest, a shutter sees almost none. */
static const double RATE_MIN = 20.0, RATE_WANTED = 2000.0, RATE_MAX = 5000.0;
/* How uncertain the count in a window of some 50 ms is: little if hits come at even distances, else as much as the
   distances vary. */
static const double WINDOW_NS = 5e7, CUT_FRAC = 0.2, GOOD_NS = 2e6;
static const double DRAG_MAX = 0.03;

mc_search *mc_search_new(double line_cost)
{
    mc_search *search = calloc(1, sizeof *search);
    if (search) {
        search->line_cost = line_cost;
        search->has_room = 1;
    }
    return search;
}

static void end_trials(mc_search *search)
{
    for (int i = 0; i < search->n_trials; i++)
        mc_probe_close(&search->trials[i]);
    search->n_trials = 0;
}

void mc_search_free(mc_search *search)
{
    if (!search)
        return;
    end_trials(search);
    for (int i = 0; i < search->n_sampled; i++) {
        mc_sampled *thread = &search->sampled[i];
        mc_probe_close(&thread->stacks);
        mc_probe_close(&thread->places);
        for (int j = 0; j < MC_N_MAP_PATHS; j++)
            if (thread->opened[j])
                mc_object_close(&thread->objects[j]);
    }
    free(search);
}

int mc_search_sample(mc_search *search, int pid, int tid)
{
    mc_sampled *thread = &search->sampled[search->n_sampled];
    if (search->n_sampled == MC_N_SAMPLED || mc_maps_read(&thread->maps, pid) != MC_OK)
        return MC_E_FULL;
    thread->stacks = thread->places = (mc_probe){.fd = -1};
    int status = mc_probe_sample(&thread->stacks, tid, 1);
    if (status != MC_OK || (status = mc_probe_sample(&thread->places, tid, 0)) != MC_OK) {
        int error = errno;
        mc_probe_close(&thread->stacks);
        mc_probe_close(&thread->places);
        errno = error;
    }
    thread->tid = tid;
    search->n_sampled += status == MC_OK;
    return status;
}

static mc_candidate *find(mc_search *search, mc_sampled *thread, int i_path, uint64_t offset)
{
    const char *path = thread->maps.paths[i_path];
    for (int i = 0; i < search->n_candidates; i++) {
        mc_candidate *candidate = &search->candidates[i];
        if (candidate->offset == offset && strcmp(mc_candidate_path(candidate), path) == 0)
            return candidate;
    }
    if (search->n_candidates == MC_N_CANDIDATES)
        return NULL;
    mc_candidate *candidate = &search->candidates[search->n_candidates++];
    *candidate = (mc_candidate){.thread = thread, .i_path = i_path, .offset = offset};
    return candidate;
}

/* Count a place once per sample, however often it is on the stack. */
static void propose(mc_search *search, mc_sampled *thread, int i_path, uint64_t offset)
{
    mc_candidate *candidate = find(search, thread, i_path, offset);
    if (!candidate || candidate->i_seen == search->i_sample)
        return;
    candidate->i_seen = search->i_sample;
    candidate->n_seen++;
}

static mc_object *object_of(mc_sampled *thread, int i_path)
{
    mc_object *object = &thread->objects[i_path];
    if (!thread->opened[i_path])
        mc_object_open(object, thread->maps.paths[i_path]);
    thread->opened[i_path] = 1;
    return object->fd >= 0 ? object : NULL;
}

typedef struct place {
    mc_search *search;
    mc_sampled *thread;
    uint64_t t_end; /* no more lookups after that */
} place;

/* Note the function that holds this address, and the address itself if a call returns to it. Most words of a stack
   that look like an address in the program are one; for others the trial will tell. */
static void note(place *in, uint64_t address, int returns)
{
    mc_sampled *thread = in->thread;
    const mc_map *map = mc_maps_find(&thread->maps, address);
    uint64_t entry;
    if (!map || mc_now_ns() >= in->t_end)
        return;
    const mc_object *object = object_of(thread, map->i_path);
    /* A call may be the last instruction of its function. */
    uint64_t offset = address - map->start + map->offset;
    if (!object || mc_object_entry(object, offset - (returns != 0), &entry) != MC_OK)
        return;
    propose(in->search, thread, map->i_path, entry);
    if (returns)
        propose(in->search, thread, map->i_path, offset);
}

static void take_sample(void *data, const uint64_t *words, size_t n)
{
    place *in = data;
    if (n < 2)
        return;
    uint64_t n_stack = words[1] / sizeof *words;
    /* Behind the stack the kernel writes how many bytes of it are valid. */
    uint64_t n_real = n_stack && n_stack + 2 < n ? words[2 + n_stack] / sizeof *words : 0;
    in->search->i_sample++;
    note(in, words[0], 0);
    for (uint64_t i = 0; i < n_real && i < n_stack; i++)
        note(in, words[2 + i], 1);
}

/* Does this look like a direct call? *distance: to its target. 0: no. */
static int is_call(const uint8_t *code, int64_t *distance)
{
#ifdef __x86_64__
    enum { CALL = 0xe8, CALL_BYTES = 5 };
    int32_t relative;
    memcpy(&relative, code + 1, sizeof relative);
    *distance = (int64_t)relative + CALL_BYTES;
    return code[0] == CALL ? CALL_BYTES : 0;
#elif defined __aarch64__
    enum { CALL = 0x25, CALL_SHIFT = 26, WORD = 4 };
    uint32_t word;
    memcpy(&word, code, sizeof word);
    *distance = (int64_t)((int32_t)(word << 6) >> 6) * WORD;
    return ((uintptr_t)code % WORD == 0 && word >> CALL_SHIFT == CALL) ? WORD : 0;
#else
    (void)code, (void)distance;
    return 0;
#endif
}

/* Propose the places where calls in this function return. A function that a loop calls may be too short to appear in
   any sample. */
static void propose_calls(mc_search *search, const mc_candidate *function, uint64_t t_end)
{
    _Alignas(8) uint8_t code[CODE_BYTES];
    mc_sampled *thread = function->thread;
    int i_path = function->i_path;
    uint64_t begin = function->offset, entry;
    const mc_object *object = object_of(thread, i_path);
    size_t n = object ? mc_object_read(object, begin, code, sizeof code) : 0;
    if (!object || mc_object_entry(object, begin, &entry) != MC_OK || entry != begin)
        return;
    for (size_t i = 0; i + 8 <= n && search->n_candidates < N_TRIED && mc_now_ns() < t_end; i++) {
        int64_t distance;
        int length = is_call(code + i, &distance);
        uint64_t at = begin + i;
        if (!length || !mc_maps_address(&thread->maps, thread->maps.paths[i_path], at + (uint64_t)distance))
            continue;
        if (mc_object_entry(object, at, &entry) != MC_OK || entry != begin)
            return; /* beyond the function's end */
        find(search, thread, i_path, at + (uint64_t)length);
    }
}

static void add_one(void *data, const uint64_t *words, size_t n)
{
    (void)words, (void)n;
    ++*(uint64_t *)data;
}

uint64_t mc_search_n_places(const mc_search *search)
{
    uint64_t n = 0;
    for (int i = 0; i < search->n_sampled; i++)
        mc_probe_each(&search->sampled[i].places, add_one, &n);
    return n;
}

static int more_seen(const void *a, const void *b)
{
    uint64_t n_a = ((const mc_candidate *)a)->n_seen, n_b = ((const mc_candidate *)b)->n_seen;
    return (n_a < n_b) - (n_a > n_b);
}

int mc_search_candidates(mc_search *search)
{
    uint64_t t = mc_now_ns();
    for (int i = 0; i < search->n_sampled; i++) {
        place in = {search, &search->sampled[i], t + LOOKUPS_NS};
        mc_probe_each(&in.thread->stacks, take_sample, &in);
        mc_probe_close(&in.thread->stacks);
        /* A timer that expires during a hit would sample the breakpoint's place. */
        mc_probe_stop(&in.thread->places);
    }
    qsort(search->candidates, (size_t)search->n_candidates, sizeof *search->candidates, more_seen);
    if (search->n_candidates > N_FROM_SAMPLES)
        search->n_candidates = N_FROM_SAMPLES;
    for (int i = 0, n = search->n_candidates; i < n; i++)
        propose_calls(search, &search->candidates[i], t + 2 * LOOKUPS_NS);
    return search->n_candidates;
}

typedef struct heat {
    uint64_t line, n_in, n;
} heat;

static void add_place(void *data, const uint64_t *words, size_t n)
{
    heat *all = data;
    if (n < 1)
        return;
    all->n++;
    all->n_in += words[0] / LINE_BYTES == all->line;
}

static uint64_t address_of(const mc_candidate *candidate)
{
    return mc_maps_address(&candidate->thread->maps, mc_candidate_path(candidate), candidate->offset);
}

/* How much a breakpoint there slows the program, apart from its hits. */
static double drag(const mc_search *search, const mc_candidate *candidate)
{
    heat all = {address_of(candidate) / LINE_BYTES, 0, 0};
    mc_probe_each(&candidate->thread->places, add_place, &all);
    return all.n ? (search->line_cost - 1.0) * (double)all.n_in / (double)all.n : 0.0;
}

static int begin_trial(mc_search *search, int i_candidate)
{
    const mc_candidate *candidate = &search->candidates[i_candidate];
    mc_probe *probe = &search->trials[search->n_trials];
    uint64_t address = address_of(candidate);
    if (!address || drag(search, candidate) > DRAG_MAX ||
        mc_probe_hits(probe, candidate->thread->tid, address, N_TRIAL_HITS) != MC_OK)
        return 0;
    if (mc_probe_start(probe, N_TRIAL_HITS) != MC_OK) {
        mc_probe_close(probe);
        return 0;
    }
    search->i_tried[search->n_trials++] = i_candidate;
    return 1;
}

int mc_search_try(mc_search *search)
{
    while (search->i_next < search->n_candidates && search->n_trials < MC_N_AT_ONCE) {
        errno = 0;
        /* The processor may have no breakpoint left for more trials. */
        search->has_room = begin_trial(search, search->i_next) || errno != ENOSPC;
        if (!search->has_room)
            break;
        search->i_next++;
    }
    search->has_room |= search->n_trials > 0;
    search->t_trial = mc_now_ns();
    return search->n_trials;
}

typedef struct gaps {
    uint64_t first_ns, last_ns;
    double n, sum_ns, squares;
} gaps;

static void add_gap(void *data, const uint64_t *words, size_t n)
{
    gaps *all = data;
    if (n < 1)
        return;
    double gap_ns = words[0] > all->last_ns ? (double)(words[0] - all->last_ns) : 0.0;
    if (all->last_ns) {
        all->n += 1.0;
        all->sum_ns += gap_ns;
        all->squares += gap_ns * gap_ns;
    } else {
        all->first_ns = words[0];
    }
    all->last_ns = words[0];
}

/* A place that has been silent for longer than usual may stay silent. */
static void add_silence(gaps *all, uint64_t from, uint64_t to)
{
    uint64_t mean_ns = all->n > 0.0 ? (uint64_t)(all->sum_ns / all->n) : 0;
    gaps silent = {from, from, 0.0, 0.0, 0.0};
    if (to <= from + mean_ns)
        return;
    add_gap(&silent, &to, 1);
    all->n += silent.n;
    all->sum_ns += silent.sum_ns;
    all->squares += silent.squares;
}

/* Uncertainty of the count in a window, as time; 0: not known. */
static double unsure_ns(const gaps *all)
{
    if (all->n < 2.0 || all->sum_ns <= 0.0)
        return 0.0;
    double mean = all->sum_ns / all->n, variance = all->squares / all->n - mean * mean;
    return sqrt(WINDOW_NS * (variance > 0.0 ? variance : 0.0) / mean + CUT_FRAC * CUT_FRAC * mean * mean);
}

int mc_search_judge(mc_search *search, int is_last)
{
    uint64_t now = mc_now_ns();
    for (int i = 0; i < search->n_trials && !is_last; i++) {
        uint64_t n, ran_ns;
        int is_known = mc_probe_read(&search->trials[i], &n, &ran_ns) == MC_OK;
        if (is_known && n < N_HITS_AT_LEAST && (n > 0 || ran_ns < RAN_AT_LEAST_NS))
            return 0;
    }
    for (int i = 0; i < search->n_trials; i++) {
        mc_candidate *candidate = &search->candidates[search->i_tried[i]];
        gaps all = {0, 0, 0.0, 0.0, 0.0};
        if (mc_probe_read(&search->trials[i], &candidate->n_hits, &candidate->ran_ns) != MC_OK)
            candidate->n_hits = 0;
        mc_probe_each(&search->trials[i], add_gap, &all);
        add_silence(&all, search->t_trial, all.first_ns);
        if (candidate->n_hits < N_TRIAL_HITS)
            add_silence(&all, all.last_ns, now);
        candidate->unsure_ns = unsure_ns(&all);
        candidate->gap_ns = all.sum_ns > 0.0 ? all.squares / all.sum_ns : 0.0;
        search->n_hits += candidate->n_hits;
    }
    end_trials(search);
    return 1;
}

/* 0: unusable. Else smaller is better. */
static double badness(const mc_candidate *candidate)
{
    if (candidate->n_hits < N_HITS_AT_LEAST || candidate->unsure_ns <= 0.0)
        return 0.0;
    double rate = (double)candidate->n_hits * 1e9 / (double)(candidate->ran_ns + 1);
    if (rate < RATE_MIN || rate > RATE_MAX)
        return 0.0;
    return rate > RATE_WANTED ? candidate->unsure_ns + GOOD_NS : candidate->unsure_ns;
}

const mc_candidate *mc_search_best(const mc_search *search)
{
    const mc_candidate *best = NULL;
    for (int i = 0; i < search->n_candidates; i++) {
        const mc_candidate *candidate = &search->candidates[i];
        double bad = badness(candidate);
        if (bad > 0.0 && (!best || bad < badness(best)) && drag(search, candidate) <= DRAG_MAX)
            best = candidate;
    }
    return best;
}

int mc_search_goes_on(const mc_search *search)
{
    const mc_candidate *best = mc_search_best(search);
    if (!best)
        return 1;
    int is_good = best->n_hits >= N_TRIAL_HITS && badness(best) <= GOOD_NS;
    return !is_good && search->i_next < best - search->candidates + N_TRIED_SINCE;
}

const char *mc_candidate_path(const mc_candidate *candidate)
{
    return candidate->thread->maps.paths[candidate->i_path];
}
