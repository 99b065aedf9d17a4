#define _GNU_SOURCE
#include "agent/meters/meter.h"

#include "agent/meters/bursts.h"
#include "agent/shutter/intervals.h"
#include "common/counters/perf.h"
#include "common/options.h"

#include <stdio.h>
#include <string.h>

enum { LOOP_WINDOWS = 6 };

void mc_meter_choose(mc_meter *meter, mc_node *node, const mc_job_ranks *ranks, uint64_t t_open)
{
    const char *wanted = mc_option_text(MC_OPT_METER);
    node->meter = MC_METER_BURST;
    if (wanted && strcmp(wanted, "none") == 0) {
        node->meter = MC_METER_NONE;
        snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is none");
    } else if (wanted && strcmp(wanted, "burst") == 0) {
        snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is burst");
    } else if (wanted && strcmp(wanted, "loop") == 0) {
        snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is loop");
        meter->loop = mc_loop_open(node, ranks, t_open, 1);
    } else if (mc_perf_available(node->meter_reason, sizeof node->meter_reason) == MC_OK) {
        meter->counts = mc_thread_counts_open();
        node->meter = meter->counts ? MC_METER_IPC : MC_METER_BURST;
        if (meter->counts && wanted && strcmp(wanted, "ipc") == 0)
            snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is ipc");
    } else {
        meter->loop = mc_loop_open(node, ranks, t_open, 0);
    }
}

void mc_meter_lose_loop(mc_meter *meter)
{
    mc_loop_close(meter->loop);
    meter->loop = NULL;
}

void mc_meter_close(mc_meter *meter)
{
    mc_thread_counts_close(meter->counts);
    mc_loop_close(meter->loop);
    *meter = (mc_meter){NULL, NULL};
}

int mc_meter_counts(const mc_meter *meter)
{
    return meter->counts || (meter->loop && meter->loop->stage == MC_LOOP_COUNTING);
}

/* Where the operating system lets co-runners and this job take turns on a processor, each has it for milliseconds at a
   time. Windows without a pause must be longer than that, and cost nobody anything. */
uint64_t mc_meter_around_ns(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns)
{
    if (meter->counts)
        return planned_ns;
    return mc_max(planned_ns, mc_min(LOOP_WINDOWS * planned_ns, period_ns / 8));
}

int mc_meter_is_searching(const mc_meter *meter)
{
    return meter->loop && meter->loop->search;
}

double mc_meter_cycle_ns(const mc_meter *meter, const mc_job_ranks *ranks)
{
    int is_loop = meter->loop && meter->loop->n_found;
    return is_loop && ranks->n_alive ? meter->loop->gap_ns : mc_mean_cycle_ns(ranks);
}

void mc_meter_measure(mc_meter *meter, mc_own_shutter *own, const mc_job_ranks *ranks, mc_node *node,
                      uint64_t around_ns, int *wake)
{
    if (!own->is_open)
        return;
    if (meter->counts)
        mc_ipc_measure(meter->counts, own, ranks, node, wake);
    else if (mc_meter_counts(meter))
        mc_loop_measure(meter->loop, own, around_ns, wake);
}
