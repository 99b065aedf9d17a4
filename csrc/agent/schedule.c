/* Which instant is next, and whose turn it is: the same for all agents of a node, which read the same board. */
#define _GNU_SOURCE
#include "agent/agent.h"

static const uint64_t LEAD_NS = 10000000;       /* between waking and T_q for the job whose turn it is */
static const uint64_t TELL_NS = 1000000;        /* for the others */
static const uint64_t RANKS_POLL_NS = 20000000; /* while ranks are still to come */
static const uint64_t ASKED_POLL_NS = 50000000; /* while a coordinator may ask */
static const uint64_t RANKS_POLL_FOR_NS = 10000000000u;

uint64_t mc_lead_ns(const mc_agent *agent)
{
    uint64_t lead = mc_min(LEAD_NS, agent->period_ns / 4);
    return mc_turn_counts(agent) ? mc_max(lead, mc_turn_around_ns(agent) + MC_APART_NS + 2 * TELL_NS) : lead;
}

static int booking_of(const mc_agent *agent, int i_live, mc_booking *out)
{
    *out = agent->own;
    if (agent->live[i_live].owner == agent->owner)
        return out->t0 != 0;
    return mc_slot_booking(&agent->board->slots[agent->live[i_live].i_slot], out) == MC_OK;
}

/* The first booked shutter after `now`. Bookings that keep changing wake nobody more than twice in a period. */
static void find_booking(mc_agent *agent, uint64_t now)
{
    uint64_t first = mc_max(now, agent->t_booked + agent->period_ns / 2);
    agent->booked_owner = 0;
    for (int i = 0; i < agent->n_live; i++) {
        mc_booking found;
        if (!booking_of(agent, i, &found) || !found.is_firm || found.t0 <= first ||
            (agent->booked_owner && found.t0 >= agent->booking.t0))
            continue;
        agent->booking = found;
        agent->booked_owner = agent->live[i].owner;
    }
}

void mc_schedule(mc_agent *agent, uint64_t now)
{
    agent->planned_ns = mc_planned_ns(agent, now);
    uint64_t lead = mc_lead_ns(agent);
    agent->i_instant = (now + lead) / agent->period_ns;
    agent->t_instant = mc_instant_ns(agent->i_instant, agent->period_ns);
    if (agent->t_instant <= now + lead)
        agent->t_instant = mc_instant_ns(++agent->i_instant, agent->period_ns);
    agent->booked_owner = 0;
    if (agent->board)
        find_booking(agent, now + lead);
    if (agent->booked_owner && agent->booking.t0 < agent->t_instant)
        agent->t_instant = agent->booking.t0;
    else
        agent->booked_owner = 0;
    agent->t_duty = agent->t_instant - lead;
    agent->duty = MC_DUTY_PREPARE;
    int missing = agent->local_size == 0 || agent->n_ranks < agent->local_size;
    int is_searching = agent->loop && agent->loop->search;
    if ((missing && now < agent->t_open + RANKS_POLL_FOR_NS) || is_searching)
        agent->t_duty = mc_min(agent->t_duty, now + RANKS_POLL_NS);
    if (agent->is_common)
        agent->t_duty = mc_min(agent->t_duty, now + ASKED_POLL_NS);
}

/* An instant of the grid too near to a booked shutter belongs to nobody. */
static int is_booked_over(const mc_agent *agent)
{
    uint64_t gap_ns = mc_booking_gap_ns(agent->period_ns);
    for (int i = 0; i < agent->n_live; i++) {
        mc_booking found;
        if (booking_of(agent, i, &found) && found.is_firm && found.t0 < agent->t_instant + gap_ns &&
            agent->t_instant < found.t0 + gap_ns)
            return 1;
    }
    return 0;
}

/* Jobs that have been here for two periods take turns; a newcomer may not be known to all yet. */
static int turn_of_grid(const mc_agent *agent, int *takes_part)
{
    int settled[MC_N_SLOTS], n = 0;
    for (int i = 0; i < agent->n_live; i++) {
        if (agent->live[i].n_ranks == 0 || agent->live[i].t_joined + 2 * agent->period_ns > agent->t_instant)
            continue;
        *takes_part |= agent->live[i].owner == agent->owner;
        settled[n++] = i;
    }
    if (n == 0 || is_booked_over(agent))
        return -1;
    int i_target = settled[agent->i_instant % (uint64_t)n];
    const mc_slot *slot = &agent->board->slots[agent->live[i_target].i_slot];
    return __atomic_load_n(&slot->books, __ATOMIC_RELAXED) ? -1 : i_target;
}

static int whose_turn(const mc_agent *agent, int *takes_part)
{
    *takes_part = agent->booked_owner != 0;
    if (!agent->booked_owner)
        return agent->n_others ? turn_of_grid(agent, takes_part) : -1;
    for (int i = 0; i < agent->n_live; i++)
        if (agent->live[i].owner == agent->booked_owner)
            return i;
    return -1;
}

static void begin_turn(mc_agent *agent, uint64_t now)
{
    uint64_t lead = mc_lead_ns(agent);
    if (agent->booked_owner)
        mc_turn_begin(agent, agent->booking.t1 - agent->booking.t0, agent->node->common.i_answered);
    else
        mc_turn_begin(agent, agent->planned_ns, 0);
    agent->duty = MC_DUTY_MEASURE;
    agent->t_duty = agent->t_instant - lead + TELL_NS;
    if (!mc_turn_counts(agent))
        mc_schedule(agent, now);
}

static void take_turn(mc_agent *agent, uint64_t now)
{
    int takes_part, i_target = whose_turn(agent, &takes_part);
    uint64_t period_ns = agent->period_ns;
    /* The grid of the next instant; this one's stays as everybody computed it before. */
    agent->period_ns = mc_board_period(agent->board, agent->live, agent->n_live, agent->option_period_ns);
    agent->i_target = i_target;
    if (agent->booked_owner)
        agent->t_booked = agent->t_instant;
    if (i_target < 0 || !takes_part) {
        mc_schedule(agent, now);
    } else if (agent->live[i_target].owner != agent->owner) {
        agent->duty = MC_DUTY_PAUSE;
        agent->t_duty = agent->t_instant - mc_min(TELL_NS, period_ns / 8);
    } else if (agent->node->meter == MC_METER_NONE || (!agent->booked_owner && !mc_wants_turn(agent, now))) {
        mc_schedule(agent, now);
    } else {
        begin_turn(agent, now);
    }
}

void mc_schedule_turn(mc_agent *agent, uint64_t now)
{
    int early = now + mc_lead_ns(agent) < agent->t_instant;
    int late = now + TELL_NS / 2 > agent->t_instant;
    if (early || late)
        mc_schedule(agent, now);
    else
        take_turn(agent, now);
}
