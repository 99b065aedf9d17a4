#define _GNU_SOURCE
#include "agent/meters/bursts.h"

#include "common/table.h"

static const double CYCLES_PER_SHUTTER = 3.0; /* at least, to see where cycles end */

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

/* open_ns: how long the cycle under way has lasted so far. */
MC_READS_TORN static double mean_of_lane(const mc_lane *lane, uint64_t open_ns)
{
    double time_ns = (double)open_ns, weighted = time_ns * time_ns;
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

double mc_mean_cycle_ns(const mc_job_ranks *ranks)
{
    const mc_lane *lane = first_lane(ranks);
    return lane ? mean_of_lane(lane, 0) : -1.0;
}

int mc_cycles_too_long(const mc_job_ranks *ranks, uint64_t max_ns, uint64_t now, double *mean_ns)
{
    const mc_lane *lane = first_lane(ranks);
    if (!lane)
        return 0;
    uint64_t t_last = lane->head.calls.t_last;
    *mean_ns = mean_of_lane(lane, t_last && t_last < now ? now - t_last : 0);
    return CYCLES_PER_SHUTTER * *mean_ns > (double)max_ns / 2;
}
