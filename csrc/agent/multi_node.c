/* Shutters of a job on several nodes: the coordinator asks whether this node is free at an instant, and books it when
   all nodes are. Half of them would tell nothing: ranks that run alone wait for those that do not. */
#define _GNU_SOURCE
#include "agent/agent.h"

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

/* Windows before and after a shutter reach no further than this. */
uint64_t mc_booking_gap_ns(uint64_t period_ns)
{
    return period_ns * 3 / 4;
}

/* Every agent of the node wakes within this, and so reads what was booked. */
static uint64_t notice_ns(const mc_agent *agent)
{
    return agent->period_ns * 3 / 2 + mc_lead_ns(agent);
}

/* One's own booking is on the board already: of two that meet, one sees the other at least. */
static int is_free(const mc_agent *agent, uint64_t now, uint64_t t0)
{
    uint64_t gap_ns = mc_booking_gap_ns(agent->period_ns);
    if (t0 < now + notice_ns(agent))
        return 0;
    for (int i = 0; i < agent->n_live; i++) {
        mc_booking other;
        if (agent->live[i].owner != agent->owner &&
            mc_slot_booking(&agent->board->slots[agent->live[i].i_slot], &other) == MC_OK && other.t0 < t0 + gap_ns &&
            t0 < other.t0 + gap_ns)
            return 0;
    }
    return 1;
}

static void book(mc_agent *agent, mc_booking booking)
{
    agent->own = booking;
    mc_slot_book(agent->slot, &booking);
}

static void answer(mc_agent *agent, uint64_t now)
{
    mc_common *common = &agent->node->common;
    uint64_t i = LOAD(common->i_asked);
    if (i == common->i_answered)
        return;
    book(agent, (mc_booking){common->t0, common->t1, 0});
    common->is_free = (uint64_t)is_free(agent, now, common->t0);
    if (!common->is_free)
        book(agent, (mc_booking){0, 0, 0});
    STORE(common->i_answered, i);
}

static void judge(mc_common *common, uint64_t i, uint64_t verdict)
{
    common->verdict = verdict;
    STORE(common->i_judged, i);
}

static void decide(mc_agent *agent, uint64_t now)
{
    mc_common *common = &agent->node->common;
    mc_booking own = agent->own;
    uint64_t i = LOAD(common->i_decided);
    if (i == 0 || i != common->i_answered || i == common->i_judged || own.t0 == 0 || own.is_firm)
        return;
    int in_time = now + notice_ns(agent) <= own.t0;
    own.is_firm = common->is_firm && in_time;
    book(agent, own.is_firm ? own : (mc_booking){0, 0, 0});
    if (common->is_firm && !in_time)
        judge(common, i, MC_VERDICT_ELSEWHERE);
}

/* What became of the shutter here. One that was never begun, because the agent woke too late, is judged too. */
static void report(mc_agent *agent, uint64_t now)
{
    mc_common *common = &agent->node->common;
    const mc_turn *turn = &agent->turn;
    uint64_t i = common->i_decided;
    if (i == 0 || i == common->i_judged || !common->is_firm)
        return;
    if (turn->open && turn->i_common == i && turn->is_judged)
        judge(common, i, turn->shutter.verdict);
    else if (now > common->t1 && !(turn->open && turn->i_common == i))
        judge(common, i, MC_VERDICT_ELSEWHERE);
}

void mc_common_step(mc_agent *agent, uint64_t now)
{
    mc_common *common = &agent->node->common;
    if (!agent->is_common)
        return;
    uint64_t n_jobs = agent->n_alive > 0;
    for (int i = 0; i < agent->n_live && agent->node->meter != MC_METER_NONE; i++)
        n_jobs += agent->live[i].owner != agent->owner && agent->live[i].n_ranks > 0;
    STORE(common->n_jobs, n_jobs);
    STORE(common->period_ns, agent->period_ns);
    STORE(common->duration_ns, agent->duration_ns);
    decide(agent, now);
    report(agent, now);
    if (agent->turn.open && agent->turn.is_judged && LOAD(common->i_confirmed) == agent->turn.i_common)
        mc_turn_close(agent, common->all_verdict);
    answer(agent, now);
}

/* ---- the coordinator's side, of an agent of its own or of the one that it watches ---- */

void mc_common_state(mc_agent *agent, uint64_t state)
{
    STORE(agent->node->common.state, state);
}

void mc_common_clock(mc_agent *agent, int64_t offset_ns, uint64_t bound_ns)
{
    mc_common *common = &agent->node->common;
    STORE(common->clock_offset_ns, offset_ns);
    STORE(common->clock_bound_ns, bound_ns);
    STORE(common->clock_worst_ns, mc_max(common->clock_worst_ns, bound_ns));
}

void mc_common_share(mc_agent *agent, int is_shared)
{
    STORE(agent->node->common.is_shared, (uint64_t)is_shared);
}

void mc_common_ask(mc_agent *agent, uint64_t i, uint64_t t0, uint64_t t1)
{
    mc_common *common = &agent->node->common;
    common->t0 = t0;
    common->t1 = t1;
    STORE(common->i_asked, i);
}

void mc_common_decide(mc_agent *agent, uint64_t i, int is_firm)
{
    mc_common *common = &agent->node->common;
    STORE(common->is_firm, (uint64_t)is_firm);
    STORE(common->i_decided, i);
}

void mc_common_confirm(mc_agent *agent, uint64_t i, uint64_t verdict)
{
    mc_common *common = &agent->node->common;
    common->all_verdict = verdict;
    STORE(common->i_confirmed, i);
}

void mc_common_read(mc_agent *agent, mc_common *out)
{
    const mc_common *common = &agent->node->common;
    uint64_t i_answered = LOAD(common->i_answered), i_judged = LOAD(common->i_judged);
    *out = *common; /* what the numbers stand for was stored before them */
    out->i_answered = i_answered;
    out->i_judged = i_judged;
}
