#define _GNU_SOURCE
#include "agent/shutter/duty.h"

#include "agent/shutter/intervals.h"
#include "common/proc.h"

/* Largest time beyond the length of a pause that still counts as part of the pause. It covers the wait of ranks for
   their processors after a pause, but not the time for which somebody stopped the job during a pause. */
static const uint64_t LATE_MAX_NS = 100000000;

static uint64_t stood_since_ns(mc_rank *rank, uint64_t most_ns)
{
    uint64_t paused_ns = __atomic_load_n(&rank->segment->counters.paused_ns, __ATOMIC_RELAXED);
    uint64_t since_ns = paused_ns - mc_min(paused_ns, rank->paused_ns);
    rank->paused_ns = paused_ns;
    return mc_min(since_ns, most_ns);
}

/* Mean number of running threads; at least one per rank, because ranks wait for each other. */
static double n_threads(const mc_job_ranks *ranks, uint64_t now)
{
    double n = 0.0;
    for (int i = 0; i < ranks->n; i++) {
        const mc_rank *rank = &ranks->rows[i];
        if (rank->alive && now > rank->segment->t_init)
            n += (double)mc_clock_ns(rank->cpu_clock) / (double)(now - rank->segment->t_init);
    }
    return n > ranks->n ? n : ranks->n;
}

void mc_duty_update(mc_duty *duty, mc_job_ranks *ranks, const mc_node *node, uint64_t now)
{
    uint64_t sum_ns = 0;
    if (!ranks->n)
        return;
    for (int i = 0; i < ranks->n; i++)
        sum_ns += stood_since_ns(&ranks->rows[i], duty->longest_ns + LATE_MAX_NS);
    duty->stood_ns += sum_ns / (uint64_t)ranks->n;
    const mc_counts *counts = &node->counts;
    double counting_ns = (double)counts->sampled_ns + (double)counts->n_passes * counts->pass_ns;
    if (counting_ns > 0.0)
        duty->counting_ns = (uint64_t)(counting_ns / n_threads(ranks, now));
}

/* While a rank's first thread sleeps, the rank reports no pauses of its other threads. In that case the requested time
   counts. */
uint64_t mc_duty_spent_ns(const mc_duty *duty)
{
    return mc_max(duty->asked_ns, duty->stood_ns) + duty->counting_ns;
}

int mc_duty_allows(const mc_duty *duty, uint64_t more_ns, uint64_t now)
{
    double budget_ns = duty->frac * (double)(now - duty->t_open) + (double)duty->allowance_ns;
    return (double)mc_duty_spent_ns(duty) + (double)more_ns <= budget_ns;
}

double mc_duty_own_frac(const mc_duty *duty, uint64_t now)
{
    uint64_t elapsed_ns = now - duty->t_open;
    return elapsed_ns ? (double)(mc_duty_spent_ns(duty) - duty->asked_ns) / (double)elapsed_ns : 0.0;
}
