#define _GNU_SOURCE
#include "agent/meters/meter.h"

#include "agent/meters/always.h"
#include "agent/shutter/intervals.h"
#include "common/counters/perf.h"
#include "common/options.h"
#include "common/table.h"

#include <stdio.h>
#include <string.h>

/* Windows without a pause are so many times as long as a shutter. What counting costs in them leaves less for shutters. */
enum { COUNT_WINDOWS = 4, COUNT_WINDOWS_IN_TURNS = 24 };

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

void mc_meter_choose(mc_meter *meter, mc_node *node, mc_job_ranks *ranks, uint64_t t_open)
{
    const char *wanted = mc_option_text(MC_OPT_METER);
    node->meter = MC_METER_BURST;
    if (is_word(wanted, "none") || is_word(wanted, "burst") || is_word(wanted, "count")) {
        say_chosen(node, wanted);
        if (is_word(wanted, "none"))
            node->meter = MC_METER_NONE;
        else if (is_word(wanted, "count"))
            meter->count = mc_count_open(node, ranks, t_open);
    } else if (mc_perf_available(node->meter_reason, sizeof node->meter_reason) == MC_OK) {
        meter->thread_counts = mc_thread_counts_open();
        node->meter = meter->thread_counts ? MC_METER_IPC : MC_METER_BURST;
        if (meter->thread_counts && is_word(wanted, "ipc"))
            say_chosen(node, wanted);
    } else {
        meter->count = mc_count_open(node, ranks, t_open);
    }
}

void mc_meter_lose_places(mc_meter *meter)
{
    mc_count_close(meter->count);
    meter->count = NULL;
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

int mc_meter_step(mc_meter *meter, int has_shutters, uint64_t t_free, uint64_t now, int *wake)
{
    int was_ready = is_counting_places(meter);
    if (!meter->count)
        return 0;
    if (mc_always_is_wanted()) {
        mc_always_step(meter->count, t_free, wake);
        return 0;
    }
    mc_count_step(meter->count, has_shutters, t_free, now, wake);
    return is_counting_places(meter) && !was_ready;
}

int mc_meter_has_windows(const mc_meter *meter)
{
    return meter->thread_counts || is_counting_places(meter);
}

/* Where the operating system lets co-runners and this job take turns on a processor, each has it for milliseconds at a
   time. Windows without a pause must be longer than that, and cost nobody anything. */
uint64_t mc_meter_around_ns(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns)
{
    if (meter->thread_counts)
        return planned_ns;
    uint64_t least_ns = COUNT_WINDOWS * planned_ns + MC_QUIET_NS;
    if (!meter->count->takes_turns)
        return least_ns;
    return mc_max(least_ns, mc_min(COUNT_WINDOWS_IN_TURNS * planned_ns, period_ns / 4));
}

int mc_meter_is_due(const mc_meter *meter, int has_shutters, uint64_t now)
{
    return meter->count && mc_count_is_due(meter->count, has_shutters, now);
}

int mc_meter_may_count(const mc_meter *meter)
{
    return meter->count && !meter->count->is_impossible;
}

int mc_meter_is_searching(const mc_meter *meter)
{
    return meter->count && meter->count->stage != MC_COUNT_IDLE;
}

MC_READS_TORN static mc_cell total(const mc_cycle_row *row)
{
    mc_cell sum = row->alone;
    for (int i = 0; i < MC_N_GROUPS; i++) {
        sum.comp_ns += row->corun[i].comp_ns;
        sum.mpi_ns += row->corun[i].mpi_ns;
        sum.n += row->corun[i].n;
    }
    return sum;
}

MC_READS_TORN static double mean_of_lane(const mc_lane *lane)
{
    double time_ns = 0.0, weighted = 0.0;
    for (int i = 1; i < MC_N_CYCLES; i++) {
        const mc_cycle_row *row = &lane->cycles[i];
        if (__atomic_load_n(&row->key, __ATOMIC_ACQUIRE) == 0 || row->from == MC_UNIT_SITE)
            continue;
        mc_cell sum = total(row);
        double t = (double)(sum.comp_ns + sum.mpi_ns);
        time_ns += t;
        weighted += t * t / (sum.n ? (double)sum.n : 1.0);
    }
    return time_ns > 0.0 ? weighted / time_ns : 0.0;
}

/* One rank stands for all: reading the tables of one costs a megabyte. */
static const mc_lane *first_lane(const mc_job_ranks *ranks)
{
    for (int i = 0; i < ranks->n; i++)
        if (ranks->rows[i].alive)
            return &ranks->rows[i].segment->lanes[0];
    return NULL;
}

double mc_meter_cycle_ns(const mc_meter *meter, const mc_job_ranks *ranks)
{
    if (is_counting_places(meter))
        return COUNTED_CYCLE_NS;
    const mc_lane *lane = first_lane(ranks);
    return lane ? mean_of_lane(lane) : -1.0;
}

void mc_meter_measure(mc_meter *meter, mc_own_shutter *own, const mc_job_ranks *ranks, mc_node *node,
                      uint64_t around_ns, int *wake)
{
    if (!own->is_open)
        return;
    if (meter->thread_counts)
        mc_ipc_measure(meter->thread_counts, own, ranks, node, wake);
    else if (is_counting_places(meter))
        mc_count_measure(meter->count, own, around_ns, wake);
    else if (meter->count)
        mc_count_skip(meter->count);
}
