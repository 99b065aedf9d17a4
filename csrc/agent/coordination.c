/* Requests and decisions that the coordinator of a job on several nodes writes into the node file, either for its own
   agent or for the agent that it watches. */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "agent/shutter/intervals.h"

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

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

void mc_common_ask(mc_agent *agent, uint64_t i, uint64_t t0, uint64_t t1, uint64_t bubble)
{
    mc_common *common = &agent->node->common;
    common->t0 = t0;
    common->t1 = t1;
    common->bubble = bubble;
    STORE(common->i_asked, i);
}

void mc_common_decide(mc_agent *agent, uint64_t i, int is_firm, int has_bubble)
{
    mc_common *common = &agent->node->common;
    common->has_bubble = (uint64_t)has_bubble;
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
    *out = *common; /* the other fields are stored before these two numbers, so they are at least as new */
    out->i_answered = i_answered;
    out->i_judged = i_judged;
}
