#define _GNU_SOURCE
#include "agent/meters/meter.h"

#include "agent/meters/always.h"
#include "agent/meters/bursts.h"
#include "agent/shutter/intervals.h"
#include "common/counters/perf.h"
#include "common/options.h"

#include <stdio.h>
#include <string.h>

/* Windows without a pause are so many times as long as a shutter. What counting costs in them leaves less for shutters. */
enum { COUNT_WINDOWS = 4, LOOP_WINDOWS = 6, COUNT_WINDOWS_IN_TURNS = 24 };

/* Shutters of some 25 ms, whatever the program's cycle: what a program and its host do varies over tenths of a second,
   so many short shutters say more than few long ones. In shorter ones caches would hardly refill. */
static const double COUNTED_CYCLE_NS = 4.2e6;

static int is_word(const char *wanted, const char *word)
{
    return wanted && strcmp(wanted, word) == 0;
}

static void say_chosen(mc_node *node, const char *word)
{
    snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is %s", word);
}

static void open_count(mc_meter *meter, mc_node *node, mc_job_ranks *ranks, uint64_t t_open)
{
    meter->count = mc_count_open(node, ranks, t_open);
    meter->node = node;
    meter->ranks = ranks;
}

static void choose_by_option(mc_meter *meter, mc_node *node, mc_job_ranks *ranks, uint64_t t_open, const char *word)
{
    say_chosen(node, word);
    if (strcmp(word, "none") == 0)
        node->meter = MC_METER_NONE;
    else if (strcmp(word, "count") == 0)
        open_count(meter, node, ranks, t_open);
    else if (strcmp(word, "loop") == 0)
        meter->loop = mc_loop_open(node, ranks, t_open, 1);
}

void mc_meter_choose(mc_meter *meter, mc_node *node, mc_job_ranks *ranks, uint64_t t_open)
{
    const char *wanted = mc_option_text(MC_OPT_METER);
    node->meter = MC_METER_BURST;
    if (is_word(wanted, "none") || is_word(wanted, "burst") || is_word(wanted, "count") || is_word(wanted, "loop")) {
        choose_by_option(meter, node, ranks, t_open, wanted);
    } else if (mc_perf_available(node->meter_reason, sizeof node->meter_reason) == MC_OK) {
        meter->thread_counts = mc_thread_counts_open();
        node->meter = meter->thread_counts ? MC_METER_IPC : MC_METER_BURST;
        if (meter->thread_counts && is_word(wanted, "ipc"))
            say_chosen(node, wanted);
    } else {
        open_count(meter, node, ranks, t_open);
    }
}

void mc_meter_lose_places(mc_meter *meter)
{
    mc_count_close(meter->count);
    mc_loop_close(meter->loop);
    meter->count = NULL;
    meter->loop = NULL;
    meter->node = NULL;
}

void mc_meter_close(mc_meter *meter)
{
    mc_thread_counts_close(meter->thread_counts);
    mc_meter_lose_places(meter);
    meter->thread_counts = NULL;
}

static int is_counting_places(const mc_meter *meter)
{
    return meter->count && mc_count_is_ready(meter->count);
}

int mc_meter_step(mc_meter *meter, const mc_board_view *view, uint64_t max_ns, uint64_t t_free, uint64_t now, int *wake)
{
    if (meter->count && mc_always_is_wanted()) {
        mc_always_step(meter->count, t_free, wake);
        return 0;
    }
    int was_ready = is_counting_places(meter);
    if (meter->count && !(meter->loop && meter->loop->search)) /* one search at a time */
        mc_count_step(meter->count, mc_view_has_shutters(view), t_free, now, wake);
    if (is_counting_places(meter)) {
        mc_loop_close(meter->loop);
        meter->loop = NULL;
        return !was_ready;
    }
    if (meter->count && (!mc_count_finds_nothing(meter->count) || meter->count->stage != MC_COUNT_IDLE))
        return 0;
    if (!view->n_others && !meter->loop) /* bubbles want places, not a loop */
        return 0;
    if (!meter->loop && meter->node && !(meter->loop = mc_loop_open(meter->node, meter->ranks, now, 0)))
        meter->node = NULL; /* not possible here, as its reason says by now */
    return meter->loop && mc_loop_step(meter->loop, view->n_others > 0, max_ns, now);
}

int mc_meter_has_windows(const mc_meter *meter)
{
    return meter->thread_counts || is_counting_places(meter) || (meter->loop && meter->loop->stage == MC_LOOP_COUNTING);
}

/* Where the operating system lets co-runners and this job take turns on a processor, each has it for milliseconds at a
   time. Windows without a pause must be longer than that, and cost nobody anything. */
uint64_t mc_meter_around_ns(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns)
{
    uint64_t least_ns = is_counting_places(meter) ? COUNT_WINDOWS * planned_ns + MC_QUIET_NS : planned_ns;
    if (meter->thread_counts || (is_counting_places(meter) && !meter->count->takes_turns))
        return least_ns;
    if (is_counting_places(meter))
        return mc_max(least_ns, mc_min(COUNT_WINDOWS_IN_TURNS * planned_ns, period_ns / 4));
    return mc_max(least_ns, mc_min(LOOP_WINDOWS * planned_ns, period_ns / 8));
}

int mc_meter_is_due(const mc_meter *meter, int has_shutters, uint64_t now)
{
    return (meter->loop && meter->loop->search) || (meter->count && mc_count_is_due(meter->count, has_shutters, now));
}

int mc_meter_may_count(const mc_meter *meter)
{
    return meter->count && !meter->count->is_impossible;
}

int mc_meter_is_searching(const mc_meter *meter)
{
    return (meter->loop && meter->loop->search) || (meter->count && meter->count->stage != MC_COUNT_IDLE);
}

double mc_meter_cycle_ns(const mc_meter *meter, const mc_job_ranks *ranks)
{
    int is_loop = meter->loop && meter->loop->n_found;
    if (is_counting_places(meter))
        return COUNTED_CYCLE_NS;
    return is_loop && ranks->n_alive ? meter->loop->gap_ns : mc_mean_cycle_ns(ranks);
}

void mc_meter_measure(mc_meter *meter, mc_own_shutter *own, const mc_job_ranks *ranks, mc_node *node,
                      uint64_t around_ns, int *wake)
{
    if (!own->is_open)
        return;
    if (meter->count && !is_counting_places(meter))
        mc_count_skip(meter->count);
    if (meter->thread_counts)
        mc_ipc_measure(meter->thread_counts, own, ranks, node, wake);
    else if (is_counting_places(meter))
        mc_count_measure(meter->count, own, around_ns, wake);
    else if (mc_meter_has_windows(meter))
        mc_loop_measure(meter->loop, own, around_ns, wake);
}
