#define _GNU_SOURCE
#include "agent/meters/meter.h"

#include "common/options.h"
#include "common/table.h"
#include "common/proc.h"

#include <stdio.h>
#include <string.h>

/* The ranks record their bursts themselves. */
const mc_meter_ops mc_meter_burst = {.name = "burst", .recorded_as = MC_METER_BURST};

/* In order of preference. */
static const mc_meter_ops *const METERS[] = {&mc_meter_ipc, &mc_meter_count, &mc_meter_burst, &mc_meter_null};
enum { N_METERS = sizeof METERS / sizeof *METERS };

static int find(const char *name)
{
    int i = 0;
    while (i < N_METERS && strcmp(METERS[i]->name, name) != 0)
        i++;
    return i;
}

static void use(mc_meter *meter, const mc_meter_ops *ops)
{
    meter->ops = ops;
    meter->node->meter = ops->recorded_as;
}

void mc_meter_choose(mc_meter *meter, mc_node *node, mc_job_ranks *ranks, uint64_t t_open)
{
    const char *wanted = mc_option_text(MC_OPT_METER);
    int i = find(wanted ? wanted : "");
    *meter = (mc_meter){.node = node, .ranks = ranks};
    if (i < N_METERS)
        snprintf(node->meter_reason, sizeof node->meter_reason, "option meter is %s", wanted);
    else
        i = 0;
    while (METERS[i]->open && !METERS[i]->open(meter, t_open))
        i++;
    use(meter, METERS[i]);
}

void mc_meter_close(mc_meter *meter)
{
    if (meter->ops && meter->ops->close)
        meter->ops->close(meter);
    meter->ops = NULL;
}

void mc_meter_lose(mc_meter *meter)
{
    mc_meter_close(meter);
    use(meter, &mc_meter_null);
}

int mc_meter_step(mc_meter *meter, int has_shutters, uint64_t t_free, uint64_t now, int *wake)
{
    return meter->ops->step ? meter->ops->step(meter, has_shutters, t_free, now, wake) : 0;
}

int mc_meter_is_due(const mc_meter *meter, int has_shutters, uint64_t now)
{
    return meter->ops->is_due ? meter->ops->is_due(meter, has_shutters, now) : 0;
}

int mc_meter_search(const mc_meter *meter)
{
    return meter->ops->search ? meter->ops->search(meter) : MC_SEARCH_IMPOSSIBLE;
}

uint64_t mc_meter_around_ns(const mc_meter *meter, uint64_t planned_ns, uint64_t period_ns)
{
    return meter->ops->around_ns ? meter->ops->around_ns(meter, planned_ns, period_ns) : 0;
}

static void read_waits(mc_meter *meter, mc_own_shutter *own, int *wake)
{
    mc_sleep_until(own->record.t0, wake);
    mc_own_shutter_read_waits(own, meter->ranks, 0);
    mc_sleep_until(own->record.t1, wake);
    mc_own_shutter_read_waits(own, meter->ranks, 1);
}

void mc_meter_measure(mc_meter *meter, mc_own_shutter *own, uint64_t around_ns, int *wake)
{
    if (!own->is_open)
        return;
    if (meter->ops->measure)
        meter->ops->measure(meter, own, around_ns, wake);
    if (mc_now_ns() <
        own->record.t0) /* otherwise the meter has waited for the shutter and recorded the waits that it could read */
        read_waits(meter, own, wake);
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

/* Read the tables of one rank only: reading them touches a megabyte of memory. */
static const mc_lane *first_lane(const mc_job_ranks *ranks)
{
    for (int i = 0; i < ranks->n; i++)
        if (ranks->rows[i].alive)
            return &ranks->rows[i].segment->lanes[0];
    return NULL;
}

double mc_meter_cycle_ns(const mc_meter *meter)
{
    double cycle_ns = meter->ops->cycle_ns ? meter->ops->cycle_ns(meter) : 0.0;
    const mc_lane *lane = cycle_ns == 0.0 ? first_lane(meter->ranks) : NULL;
    return cycle_ns != 0.0 ? cycle_ns : lane ? mean_of_lane(lane) : -1.0;
}
