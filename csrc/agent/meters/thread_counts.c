#define _GNU_SOURCE
#include "agent/meters/thread_counts.h"

#include "agent/shutter/intervals.h"
#include "common/counters/perf.h"
#include "common/counters/tally.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { N_THREADS_MAX = 512 };

/* Counts of a thread, and the tally that it had published, at one instant. */
typedef struct seen {
    mc_ipc total;
    mc_tally tally;
    int is_read;
    int is_known; /* the part outside MPI is known */
} seen;

typedef struct watched {
    mc_followed thread;
    mc_group group;
    int kept;      /* it is still watched */
    int has_ahead; /* the thread has counted itself, so `ahead` is valid */
    mc_ipc ahead;  /* smallest excess so far of our group's counts over the thread's own */
    seen at[2];
} watched;

struct mc_thread_counts {
    int n;
    watched threads[N_THREADS_MAX];
};

mc_thread_counts *mc_thread_counts_open(void)
{
    return calloc(1, sizeof(mc_thread_counts));
}

static void drop(mc_thread_counts *counts, int i)
{
    mc_group_close(&counts->threads[i].group);
    counts->threads[i] = counts->threads[--counts->n];
}

void mc_thread_counts_close(mc_thread_counts *counts)
{
    while (counts && counts->n)
        drop(counts, counts->n - 1);
    free(counts);
}

static watched *find(mc_thread_counts *counts, int tid)
{
    for (int i = 0; i < counts->n; i++)
        if (counts->threads[i].thread.tid == tid)
            return &counts->threads[i];
    return NULL;
}

static watched *add(mc_thread_counts *counts, int tid)
{
    watched *new = &counts->threads[counts->n];
    errno = ENOSPC;
    if (counts->n == N_THREADS_MAX)
        return NULL;
    memset(new, 0, sizeof *new);
    if (mc_group_open(&new->group, tid, 1) != MC_OK)
        return NULL;
    counts->n++;
    return new;
}

int mc_thread_counts_follow(mc_thread_counts *counts, const mc_followed *threads, int n)
{
    int n_left = 0;
    for (int i = 0; i < counts->n; i++)
        counts->threads[i].kept = 0;
    for (int i = 0; i < n; i++) {
        watched *one = find(counts, threads[i].tid);
        if (!one)
            one = add(counts, threads[i].tid);
        n_left += !one && errno != ESRCH; /* ESRCH: the thread has ended */
        if (!one)
            continue;
        one->kept = 1;
        one->thread = threads[i];
    }
    for (int i = counts->n - 1; i >= 0; i--)
        if (!counts->threads[i].kept)
            drop(counts, i);
    return n_left;
}

/* The smaller of two signed differences. */
static uint64_t nearer(uint64_t a, uint64_t b)
{
    return (int64_t)a < (int64_t)b ? a : b;
}

/* Read the thread's tally. If no call has begun or ended in this span yet, return the tally with which the span begins.
   The thread's own times are read before the tally, because the thread changes them after the tally. */
static int find_tally(const mc_followed *thread, uint64_t span, mc_tally *tally)
{
    const mc_lane_head *lane = thread->lane;
    *tally = (mc_tally){.span = 0, .state = MC_TALLY_OUTSIDE};
    if (!lane)
        return !thread->is_unpublished;
    uint64_t t_enter = __atomic_load_n(&lane->t_enter, __ATOMIC_ACQUIRE);
    uint64_t t_last = __atomic_load_n(&lane->calls.t_last, __ATOMIC_ACQUIRE);
    int status = mc_tally_read(&lane->tally, tally);
    /* a thread that has ended has released its lane */
    if (status != MC_OK || __atomic_load_n(&lane->owner_tid, __ATOMIC_ACQUIRE) != (uint64_t)thread->tid)
        return 0;
    if (tally->state == MC_TALLY_NONE)
        return 0;
    if (tally->span != span)
        *tally = (mc_tally){.span = 0, .state = t_enter > t_last ? MC_TALLY_INSIDE : MC_TALLY_OUTSIDE};
    return 1;
}

/* Other programs have pinned so many counters that none is left. From now on, take turns with them on the counters. */
static void give_way(watched *one)
{
    mc_group_close(&one->group);
    (void)mc_group_open(&one->group, one->thread.tid, 0);
    one->has_ahead = 0;
}

static void note(watched *one, seen *now, uint64_t span)
{
    int is_shared = 0;
    memset(now, 0, sizeof *now);
    now->is_known = find_tally(&one->thread, span, &now->tally);
    now->is_read = mc_group_read(&one->group, &now->total, &is_shared) == MC_OK;
    if (!now->is_read || is_shared)
        now->is_known = 0;
    if (!now->is_read)
        give_way(one);
    if (!now->is_known || !now->tally.span)
        return;
    /* Our count also includes the thread's work since its tally, so the smallest excess so far is the best estimate. */
    mc_ipc ahead = {now->total.instructions - now->tally.total.instructions,
                    now->total.cycles - now->tally.total.cycles};
    if (one->has_ahead)
        ahead = (mc_ipc){nearer(one->ahead.instructions, ahead.instructions), nearer(one->ahead.cycles, ahead.cycles)};
    one->ahead = ahead;
    one->has_ahead = 1;
}

void mc_thread_counts_note(mc_thread_counts *counts, int i_end, uint64_t span)
{
    for (int i = 0; i < counts->n; i++)
        note(&counts->threads[i], &counts->threads[i].at[i_end], span);
}

static uint64_t outside_at(const seen *at, uint64_t outside, uint64_t own, uint64_t total, uint64_t ahead)
{
    return at->tally.state == MC_TALLY_OUTSIDE ? outside + (total - ahead - own) : outside;
}

/* The difference is modulo 2^64: if a thread began to count itself after the start of the window, its count at the
   start is negative. */
static uint64_t outside_between(uint64_t begin, uint64_t end, uint64_t all)
{
    return (int64_t)(end - begin) < 0 ? 0 : mc_min(end - begin, all);
}

/* A call that began or ended just as the span began was published late or not at all. In that case the first tally of
   the span is a more accurate record of how the span began. */
static seen at_begin(const watched *one)
{
    seen begin = one->at[0];
    if (!begin.tally.span && one->at[1].tally.span)
        begin.tally.state = one->at[1].tally.began;
    return begin;
}

static void add_thread(const watched *one, mc_ipc *all, mc_ipc *outside)
{
    const seen first = at_begin(one), *a = &first, *b = &one->at[1];
    uint64_t instructions = b->total.instructions - mc_min(a->total.instructions, b->total.instructions);
    uint64_t cycles = b->total.cycles - mc_min(a->total.cycles, b->total.cycles);
    all->instructions += instructions;
    all->cycles += cycles;
#define OUTSIDE(at, count) \
    outside_at(at, (at)->tally.outside.count, (at)->tally.total.count, (at)->total.count, one->ahead.count)
    outside->instructions += outside_between(OUTSIDE(a, instructions), OUTSIDE(b, instructions), instructions);
    outside->cycles += outside_between(OUTSIDE(a, cycles), OUTSIDE(b, cycles), cycles);
#undef OUTSIDE
}

int mc_thread_counts_between(const mc_thread_counts *counts, mc_ipc *all, mc_ipc *outside)
{
    int is_known = 1;
    *all = *outside = (mc_ipc){0, 0};
    for (int i = 0; i < counts->n; i++) {
        const watched *one = &counts->threads[i];
        if (!one->at[0].is_read || !one->at[1].is_read) {
            *all = *outside = (mc_ipc){0, 0};
            return MC_E_PERF;
        }
        add_thread(one, all, outside);
        is_known = is_known && one->at[0].is_known && one->at[1].is_known;
    }
    return is_known;
}
