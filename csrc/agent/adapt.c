/* Shutter duration and period that suit the job: long enough for its cycles, rare enough for the duty limit. */
#define _GNU_SOURCE
#include "agent/agent.h"

#include "common/table.h"

static const uint64_t ADAPT_EVERY_NS = 2000000000u;
static const double CYCLES_PER_SHUTTER = 3.0; /* at least, to see where cycles end */
/* What the edges of a shutter cut off is the same for a long one,
   so that few long ones tell more than many short ones. */
static const double CYCLES_WISHED = 6.0;
/* An interval needs several shutters: a young job takes short ones, whatever its cycles, and may then ask for more. */
static const double SHUTTERS_AT_LEAST = 5.0;
static const double SHUTTERS_SOON = 2.0; /* for the first ones, which a young job's duty limit must still allow */
static const double MOST_OF_MAX = 0.8, MOST_OF_DUTY = 0.95;
static const double WORTH_A_CHANGE = 1.5;
/* A short job needs all that the duty limit allows; a long one has a good number with less,
   and is to cost others less. */
static const uint64_t YOUNG_NS = 60000000000u;
enum { TURNS_LATER = 3 }; /* of which such a job takes one */

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

/* Length of the cycle that a random instant falls into, with one that has lasted open_ns so far;
   0 when none is recorded. */
MC_READS_TORN static double mean_cycle_ns(const mc_lane *lane, uint64_t open_ns)
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

static double wish_ns(const mc_agent *agent, uint64_t now)
{
    double low = (double)agent->option_duration_ns, high = MOST_OF_MAX * (double)agent->max_ns;
    double budget = agent->duty_frac * (double)(now - agent->t_open);
    high = high < budget / SHUTTERS_AT_LEAST ? high : budget / SHUTTERS_AT_LEAST;
    high = high > low ? high : low;
    for (int i = 0; i < agent->n_ranks; i++) {
        if (!agent->ranks[i].alive)
            continue;
        /* One rank speaks for all: each reads a table of a megabyte. */
        double wish = CYCLES_WISHED * (agent->node->meter == MC_METER_LOOP
                                           ? agent->loop->gap_ns
                                           : mean_cycle_ns(&agent->ranks[i].segment->lanes[0], 0));
        return wish < low ? low : wish > high ? high : wish;
    }
    return (double)agent->duration_ns;
}

int mc_bursts_too_long(const mc_agent *agent, uint64_t now, double *mean_ns)
{
    for (int i = 0; i < agent->n_ranks; i++) {
        if (!agent->ranks[i].alive)
            continue;
        const mc_lane *lane = &agent->ranks[i].segment->lanes[0];
        uint64_t t_last = lane->head.calls.t_last;
        *mean_ns = mean_cycle_ns(lane, t_last && t_last < now ? now - t_last : 0);
        return CYCLES_PER_SHUTTER * *mean_ns > (double)agent->max_ns / 2;
    }
    return 0;
}

/* Every reader of the board takes the longest wish, so wishes are multiples of one's own option. */
static uint64_t period_for(const mc_agent *agent, uint64_t duration_ns)
{
    double n = agent->n_others + 1, unit = (double)agent->option_period_ns;
    double needed = (double)duration_ns * (n - 1) / (n * agent->duty_frac);
    needed = needed < 4.0 * (double)duration_ns ? 4.0 * (double)duration_ns : needed;
    uint64_t n_units = (uint64_t)(needed / unit);
    if ((double)n_units * unit < needed)
        n_units++;
    return mc_max(1, n_units) * agent->option_period_ns;
}

int mc_wants_turn(mc_agent *agent, uint64_t now)
{
    return !agent->adapts || now < agent->t_open + YOUNG_NS || ++agent->n_turns % TURNS_LATER == 0;
}

/* A neighbour may allow less than this job does, and would refuse all that is longer than a modest wish. */
void mc_stretch_less(mc_agent *agent)
{
    const mc_reservation *last = &agent->turn.reservation;
    if (last->t1 - last->t0 > agent->duration_ns)
        agent->stretch /= 2;
}

/* Jobs wish for different lengths and share one grid:
   who would do with short ones uses what the duty limits leave him. */
uint64_t mc_planned_ns(const mc_agent *agent, uint64_t now)
{
    double n = agent->n_others + 1, most = MOST_OF_MAX * (double)agent->max_ns;
    uint64_t t_joined = agent->t_open;
    if (!agent->adapts || agent->n_others == 0)
        return agent->duration_ns;
    for (int i = 0; i < agent->n_live; i++)
        t_joined = mc_max(t_joined, agent->live[i].t_joined);
    double of_period = MOST_OF_DUTY * agent->duty_frac * (double)agent->period_ns * n / (n - 1);
    double of_time = now > t_joined ? agent->duty_frac * (double)(now - t_joined) / SHUTTERS_SOON : 0.0;
    most = of_period < most ? of_period : most;
    return mc_max(agent->duration_ns, (uint64_t)(agent->stretch * (of_time < most ? of_time : most)));
}

void mc_agent_adapt(mc_agent *agent, uint64_t now)
{
    int is_searching = agent->loop && agent->loop->search; /* what it finds says how long shutters are to be */
    int fits = agent->node->meter != MC_METER_NONE;        /* bursts are measured beside ipc */
    if (agent->adapts && agent->n_others && fits && !is_searching && now >= agent->t_adapted + ADAPT_EVERY_NS) {
        double wish = wish_ns(agent, now), present = (double)agent->duration_ns;
        if (wish > present * WORTH_A_CHANGE || wish * WORTH_A_CHANGE < present)
            agent->duration_ns = (uint64_t)wish;
        agent->t_adapted = now;
    }
    uint64_t period_ns = period_for(agent, agent->duration_ns);
    __atomic_store_n(&agent->slot->want_duration_ns, agent->duration_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&agent->slot->want_period_ns, period_ns, __ATOMIC_RELEASE);
}
