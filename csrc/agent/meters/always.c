#define _GNU_SOURCE
#include "agent/meters/always.h"

#include "agent/count/patching.h"
#include "agent/count/stubs.h"
#include "agent/shutter/intervals.h"
#include "common/proc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_INSTALLS_OF_SET = 4, N_FAILED_MAX = 50, N_SAMPLES_MIN = 10 };

static const uint64_t SAMPLE_NS = 100000000, SAMPLE_AGAIN_NS = 400000000, STEP_NS = 80000000, LEFT_NS = 12000000,
                      CHANGE_NS = 8000000, HOLD_MIN_NS = 200000, HOLD_MAX_NS = 8000000, LOOK_NS = 20000000;

static const char *wanted(void)
{
    const char *text = getenv("MPICOLOC_COUNT_ALWAYS");
    return text ? text : "";
}

int mc_always_is_wanted(void)
{
    return wanted()[0] != 0;
}

static int stays(void)
{
    return strcmp(wanted(), "stay") == 0;
}

static uint64_t draw(mc_always *always, uint64_t n)
{
    always->random ^= always->random << 13;
    always->random ^= always->random >> 7;
    always->random ^= always->random << 17;
    return always->random % n;
}

static void say_progress(mc_count_meter *count)
{
    const mc_always *always = &count->always;
    snprintf(count->node->meter_reason, sizeof count->node->meter_reason,
             "counted always: %llu changes of code, %llu passes, %d sets of places, %d changes failed",
             (unsigned long long)always->n_changes, (unsigned long long)count->node->counts.n_passes, always->n_sets,
             always->n_failed);
}

static int prepare(mc_count_meter *count)
{
    if (!count->always.random)
        count->always.random = mc_now_ns() | 1;
    return mc_count_can_search(count);
}

/* Threads are sampled all the time, so that places follow the program. */
static void sample(mc_count_meter *count, uint64_t now)
{
    uint64_t wait_ns = count->places->n ? SAMPLE_AGAIN_NS : SAMPLE_NS;
    if (count->stage == MC_COUNT_IDLE &&
        mc_spots_begin(count->spots, count->ranks, count->n_searches++, MC_SAMPLE_EVERY_NS) == MC_OK) {
        count->stage = MC_COUNT_SAMPLING; /* the agent then comes often */
        count->t_stage = now;
    } else if (count->stage == MC_COUNT_SAMPLING && now >= count->t_stage + wait_ns &&
               mc_spots_n_taken(count->spots) >= N_SAMPLES_MIN) {
        mc_spots_end(count->spots, &count->node->counts);
        mc_places_find(count->places, count->decoder, &count->files, &count->node->counts, count->spots, NULL);
        count->stage = MC_COUNT_IDLE;
    }
}

/* Some of the places, any of them. */
static void draw_set(mc_count_meter *count, mc_place_set *set)
{
    mc_places *places = count->places;
    uint64_t n_most = mc_min(MC_N_PLACES, (uint64_t)places->n),
             n_wanted = stays() ? n_most : 1 + draw(&count->always, n_most);
    for (int i = 0; i < places->n; i++) {
        int j = i + (int)draw(&count->always, (uint64_t)(places->n - i));
        mc_candidate_place swapped = places->rows[i];
        places->rows[i] = places->rows[j];
        places->rows[j] = swapped;
    }
    set->n = 0;
    for (int i = 0; i < places->n && set->n < n_wanted; i++)
        if (!places->rows[i].is_refused)
            set->places[set->n++] = places->rows[i].place;
}

static int take_set(mc_count_meter *count)
{
    mc_place_set *set = &count->tried;
    draw_set(count, set);
    mc_place_set drawn = *set;
    int status =
        set->n ? mc_stubs_make(set, count->decoder, &count->files, &count->node->counts, count->ranks) : MC_E_GONE;
    if (drawn.n && status != MC_E_FULL)
        mc_places_refuse(count->places, &drawn, set);
    count->always.n_installs_left = status == MC_OK ? N_INSTALLS_OF_SET : 0;
    count->always.n_sets += status == MC_OK;
    return status == MC_OK;
}

static int change(mc_count_meter *count, uint32_t request, int *wake)
{
    int status = mc_patching_change(count->ranks, request, CHANGE_NS, &count->node->counts.stopped_ns, wake);
    count->always.n_changes += status == MC_OK;
    count->always.n_failed += status == MC_E_ARG;
    return status == MC_OK;
}

/* Passes while the jumps are there for so long. */
static uint64_t hold(mc_count_meter *count, uint64_t hold_ns, int *wake)
{
    mc_snapshot *begin = &count->edges[0], *end = &count->edges[1];
    uint64_t sums[MC_N_PLACES];
    int status = mc_snapshot_take(begin, count->ranks);
    mc_patching_renew(count->ranks, mc_now_ns() + hold_ns);
    mc_sleep_until(mc_now_ns() + hold_ns, wake);
    if (status != MC_OK || mc_snapshot_take(end, count->ranks) != MC_OK)
        return 0;
    uint64_t n = mc_snapshot_between(begin, end, sums);
    count->node->counts.n_passes += n;
    return n;
}

static void change_and_hold(mc_count_meter *count, int *wake)
{
    int is_left = mc_patching_is_patched(count->ranks);
    if (!is_left) {
        if (count->always.n_installs_left == 0 && !take_set(count))
            return;
        count->always.n_installs_left--;
        change(count, MC_PATCH_INSTALL, wake);
    }
    if (stays()) {
        uint64_t n = hold(count, LOOK_NS, wake);
        count->always.n_idle = n ? 0 : count->always.n_idle + 1;
        if (count->always.n_idle < N_INSTALLS_OF_SET)
            return;
        count->always.n_idle = count->always.n_installs_left = 0;
    } else if (!is_left) {
        hold(count, HOLD_MIN_NS + draw(&count->always, HOLD_MAX_NS - HOLD_MIN_NS), wake);
    } else { /* a rank slept when it was asked to take them back, and may go on sleeping */
        mc_sleep_until(mc_now_ns() + HOLD_MIN_NS, wake);
    }
    change(count, MC_PATCH_REMOVE, wake);
}

void mc_always_step(mc_count_meter *count, uint64_t t_free, int *wake)
{
    uint64_t now = mc_now_ns(), t_end = mc_min(now + STEP_NS, t_free);
    if (count->is_impossible || count->always.n_failed > N_FAILED_MAX || !prepare(count))
        return;
    sample(count, now);
    while (count->places->n && mc_now_ns() + LEFT_NS + 2 * CHANGE_NS < t_end &&
           !__atomic_load_n(wake, __ATOMIC_ACQUIRE))
        change_and_hold(count, wake);
    say_progress(count);
}
