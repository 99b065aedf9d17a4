/* The agent's loop: sleep until the next duty, then do it. */
#define _GNU_SOURCE
#include "agent/agent.h"
#include "agent/multi_node.h"
#include "agent/shutter/intervals.h"
#include "agent/shutter/partial.h"
#include "common/proc.h"
#include "common/words.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

static const uint64_t RANKS_POLL_NS = 20000000; /* poll interval while ranks are missing or the meter searches */
static const uint64_t RANKS_POLL_FOR_NS = 10000000000u; /* longest wait for missing ranks */
static const uint64_t ASKED_POLL_NS = 50000000;         /* poll interval while a coordinator may send requests */

static uint64_t around_ns(const mc_agent *agent)
{
    return mc_meter_around_ns(&agent->meter, agent->planned_ns, agent->lengths.period_ns);
}

/* 1: the meter also counts in windows beside the shutter. */
static int has_windows(const mc_agent *agent)
{
    return around_ns(agent) > 0;
}

static uint64_t lead_ns(const mc_agent *agent)
{
    return mc_schedule_lead_ns(agent->lengths.period_ns, around_ns(agent));
}

void mc_agent_plan(mc_agent *agent, uint64_t now)
{
    const mc_job_ranks *ranks = &agent->ranks;
    agent->planned_ns = mc_lengths_planned_ns(&agent->lengths, &agent->view, now);
    uint64_t lead = lead_ns(agent);
    mc_schedule_next(&agent->schedule, &agent->view, agent->lengths.period_ns, lead, now);
    agent->duty = MC_DUTY_DECIDE;
    agent->t_duty = agent->schedule.t_instant - lead;
    int is_missing = ranks->local_size == 0 || ranks->n < ranks->local_size;
    if ((is_missing && now < agent->t_open + RANKS_POLL_FOR_NS) ||
        mc_meter_is_due(&agent->meter, mc_view_has_shutters(&agent->view), now))
        agent->t_duty = mc_min(agent->t_duty, now + RANKS_POLL_NS);
    if (ranks->is_multi_node)
        agent->t_duty = mc_min(agent->t_duty, now + ASKED_POLL_NS);
}

/* ---- ranks and co-runners ---- */

/* Let the agent run on all processors of its job: an agent that is bound to the first rank's core would always delay
   that rank. */
static void widen_affinity(const mc_segment *segment)
{
    cpu_set_t set, of_rank;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    memcpy(&of_rank, segment->cpu_mask, sizeof of_rank);
    CPU_OR(&set, &set, &of_rank);
    sched_setaffinity(0, sizeof set, &set);
}

/* Whether this job is certainly the only job on the node. */
static int is_surely_alone(const mc_agent *agent)
{
    const mc_board *board = agent->view.board;
    return board && agent->view.n_others == 0 && !mc_board_unseen(board);
}

static void find_ranks(mc_agent *agent, uint64_t now)
{
    for (int i = mc_job_ranks_find(&agent->ranks); i < agent->ranks.n; i++) {
        mc_segment *segment = agent->ranks.rows[i].segment;
        widen_affinity(segment);
        if (agent->t_refreshed) /* if the board has been read, tell the new rank at once */
            __atomic_store_n(&segment->sampling.alone, !agent->was_shared && is_surely_alone(agent), __ATOMIC_RELAXED);
    }
    mc_job_ranks_check(&agent->ranks, now);
}

/* Part of a job's processors that this job can use as well. */
static double common_frac(const cpu_set_t *own, const mc_slot *slot)
{
    cpu_set_t theirs, both;
    mc_words_load(&theirs, slot->cpu_mask, sizeof theirs);
    CPU_AND(&both, own, &theirs);
    return CPU_COUNT(&theirs) ? (double)CPU_COUNT(&both) / CPU_COUNT(&theirs) : 0.0;
}

/* Add the processor time since the last call, taken to be spread evenly over the job's processors. Other jobs may write
   anything: the sum is at most what this job's processors had to give since t_first. */
static void count_cpu(mc_corunner *row, const mc_slot *slot, const cpu_set_t *own, uint64_t now)
{
    uint64_t cpu_ns = __atomic_load_n(&slot->cpu_ns, __ATOMIC_ACQUIRE);
    uint64_t used_ns = cpu_ns - mc_min(cpu_ns, row->slot_cpu_ns); /* it falls when a rank ends */
    double most_ns = (double)(now - row->t_first) * CPU_COUNT(own);
    double sum_ns = (double)row->cpu_ns + (double)used_ns * common_frac(own, slot);
    if (sum_ns <= most_ns)
        row->cpu_ns = (uint64_t)sum_ns;
    row->slot_cpu_ns = cpu_ns;
}

static void note_corunner(mc_agent *agent, const mc_neighbour *other, const cpu_set_t *own, uint64_t now)
{
    mc_node *node = agent->node;
    const mc_slot *slot = &agent->view.board->slots[other->i_slot];
    uint64_t i = 0, n = mc_min(node->n_corunners, MC_N_CORUNNERS);
    while (i < n && node->corunners[i].owner != other->owner)
        i++;
    if (i == MC_N_CORUNNERS)
        return;
    mc_corunner *row = &node->corunners[i];
    if (i < n) {
        count_cpu(row, slot, own, now);
        row->t_last = now;
        return;
    }
    row->owner = other->owner;
    row->t_first = row->t_last = now;
    row->slot_cpu_ns = __atomic_load_n(&slot->cpu_ns, __ATOMIC_ACQUIRE);
    mc_slot_name(slot, row->job_id);
    __atomic_store_n(&node->n_corunners, i + 1, __ATOMIC_RELEASE);
}

/* Ranks wait for each other, so a co-runner on one node slows the job on all its nodes. */
static int is_shared_elsewhere(const mc_agent *agent)
{
    return agent->ranks.is_multi_node && __atomic_load_n(&agent->node->common.is_shared, __ATOMIC_ACQUIRE);
}

static void read_board(mc_agent *agent, uint64_t now)
{
    const mc_board_view *view = &agent->view;
    int n_sharing = is_shared_elsewhere(agent);
    cpu_set_t own = mc_job_ranks_cpus(&agent->ranks);
    const char *unseen = mc_board_unseen(view->board);
    if (unseen)
        snprintf(agent->node->unseen_reason, sizeof agent->node->unseen_reason, "%s", unseen);
    if (mc_view_read(&agent->view, now))
        agent->lengths.stretch = 1.0;
    for (int i = 0; i < view->n_live; i++) {
        if (mc_view_is_own(view, i) || view->live[i].n_ranks == 0)
            continue;
        n_sharing++;
        note_corunner(agent, &view->live[i], &own, now);
    }
    if (agent->was_shared && n_sharing)
        agent->node->shared_ns += now - agent->t_refreshed;
    agent->was_shared = n_sharing > 0;
}

static void tell_alone(mc_agent *agent)
{
    uint64_t alone = is_surely_alone(agent) && !is_shared_elsewhere(agent);
    for (int i = 0; i < agent->ranks.n; i++)
        __atomic_store_n(&agent->ranks.rows[i].segment->sampling.alone, alone, __ATOMIC_RELAXED);
}

/* ---- shutters of this job ---- */

static void close_own(mc_agent *agent, uint64_t verdict)
{
    mc_own_shutter_close(&agent->own, &agent->ranks, agent->node, verdict);
}

static void judge_bubble(mc_agent *agent)
{
    mc_own_shutter *own = &agent->own;
    mc_ack acks[MC_N_SLOTS];
    own->record.verdict = MC_VERDICT_BUBBLED;
    if (!mc_bubbling_was_told(agent->bubbling, own->reservation.t0))
        return;
    int n_acks = mc_own_shutter_acks(own, &agent->view, acks);
    mc_bubbling_result(agent->bubbling, acks, n_acks, &own->record.bubble_level, &own->record.probe_slowdown);
}

void mc_agent_judge(mc_agent *agent, uint64_t now)
{
    mc_own_shutter *own = &agent->own;
    if (!mc_own_shutter_judge(own, &agent->view, now))
        return;
    /* A shutter without co-runners says nothing about co-runners, but serves to measure a bubble. */
    int is_alone = own->record.n_corunners == 0 && !(own->i_common && is_shared_elsewhere(agent));
    if (own->record.verdict == MC_VERDICT_VALID &&
        (is_alone || mc_bubbling_was_told(agent->bubbling, own->reservation.t0)))
        judge_bubble(agent);
    if (own->record.verdict == MC_VERDICT_SILENT)
        mc_lengths_refused(&agent->lengths, own->reservation.t1 - own->reservation.t0);
    if (own->i_common == 0)
        close_own(agent, own->record.verdict);
}

/* Adapt the shutter length to the job's cycles. This is done with every meter, because bursts are always recorded. Do
   not adapt while the meter searches for places: counting needs another length. */
static void adapt(mc_agent *agent, uint64_t now)
{
    mc_lengths *lengths = &agent->lengths;
    mc_duty_update(&agent->pause.duty, &agent->ranks, agent->node, now);
    lengths->own_frac = mc_duty_own_frac(&agent->pause.duty, now);
    int is_for_bubbles = agent->view.n_others == 0 && agent->node->meter != MC_METER_COUNT;
    int fits =
        agent->node->meter != MC_METER_NONE && mc_meter_search(&agent->meter) != MC_SEARCH_RUNNING && !is_for_bubbles;
    if (fits && mc_lengths_is_due(lengths, &agent->view, now))
        mc_lengths_adapt(lengths, mc_meter_cycle_ns(&agent->meter), now);
    mc_lengths_tell(lengths, &agent->view);
}

/* Set the fraction of shutters in which this job wants bubbles. Without co-runners, a job has shutters and searches
   for places only if bubbles can run. */
static void want_bubbles(mc_agent *agent)
{
    const mc_common *common = &agent->node->common;
    int has_coordinators =
        !agent->ranks.is_multi_node || __atomic_load_n(&common->state, __ATOMIC_ACQUIRE) == MC_COMMON_ON;
    int can_have = agent->bubbling && has_coordinators && mc_meter_search(&agent->meter) != MC_SEARCH_IMPOSSIBLE;
    mc_bubbling_lacks_coordinators(agent->bubbling, !has_coordinators);
    /* 1: the coordinators take shutters only for bubbles */
    int is_only_for_bubbles = agent->ranks.is_multi_node && common->n_jobs <= 1 && !is_shared_elsewhere(agent);
    agent->view.bubble_frac = !can_have ? 0.0 : is_only_for_bubbles ? 1.0 : mc_bubbling_frac(agent->bubbling);
}

/* Shutters without co-runners are for bubbles only. Limit their number, so that they do not push the counts of other
   shutters out of the table. */
static int may_be_alone(const mc_agent *agent, uint64_t now)
{
    return agent->n_alone < MC_N_COUNT_ROWS / 2 && mc_duty_allows(&agent->pause.duty, 0, now);
}

/* Bubbles need the meter count, because its counts show how much a bubble slows the job. */
static int may_have_bubble(const mc_agent *agent, uint64_t now)
{
    int is_shared = agent->view.n_others > 0 || is_shared_elsewhere(agent);
    return agent->node->meter == MC_METER_COUNT && has_windows(agent) && agent->view.bubble_frac > 0.0 &&
           (is_shared || may_be_alone(agent, now));
}

static void search(mc_agent *agent, uint64_t now)
{
    uint64_t t_free = agent->schedule.t_instant - lead_ns(agent);
    if (mc_meter_step(&agent->meter, mc_view_has_shutters(&agent->view), t_free, now, &agent->wake))
        agent->lengths.t_adapted = 0;
}

/* Whether the bubble that the coordinators want on all nodes can run on this node. */
static int take_bubble_of_all(mc_agent *agent, uint64_t now)
{
    return may_have_bubble(agent, now) && mc_bubbling_take(agent->bubbling, &agent->view, agent->node->common.bubble);
}

static void agree_with_nodes(mc_agent *agent, uint64_t now)
{
    mc_node *node = agent->node;
    uint64_t verdict, period_ns = agent->lengths.period_ns;
    uint64_t notice_ns = mc_multi_node_notice_ns(period_ns, lead_ns(agent));
    if (!agent->ranks.is_multi_node)
        return;
    mc_drawn_bubble drawn = {0, 0};
    if (may_have_bubble(agent, now))
        drawn.bubble = mc_bubbling_draw_for_all(agent->bubbling, &drawn.is_wanted);
    mc_multi_node_publish(node, &agent->view, &agent->lengths, drawn, agent->ranks.n_alive > 0);
    mc_multi_node_decide(node, &agent->view, &agent->own, notice_ns, now);
    if (mc_multi_node_is_confirmed(node, &agent->own, &verdict))
        close_own(agent, verdict);
    if (mc_multi_node_has_request(node))
        mc_multi_node_answer(node, &agent->view, period_ns, notice_ns, take_bubble_of_all(agent, now), now);
}

static void begin_own(mc_agent *agent, int take, uint64_t now)
{
    const mc_schedule *schedule = &agent->schedule;
    const mc_common *common = &agent->node->common;
    int is_booked = schedule->booked_owner != 0;
    uint64_t duration_ns = is_booked ? schedule->booking.t1 - schedule->booking.t0 : agent->planned_ns;
    uint64_t i_common = is_booked ? common->i_answered : 0, t0 = schedule->t_instant;
    mc_reservation next = {.epoch = t0, .t0 = t0, .t1 = t0 + duration_ns};
    if (agent->is_bubbled)
        next.request = mc_bubbling_request(agent->bubbling);
    if (take == MC_TAKE_PARTIAL)
        next.spared = mc_partial_spared(&agent->view, agent->n_partial++);
    close_own(agent, MC_VERDICT_ELSEWHERE);
    agent->n_alone += agent->view.n_others == 0 && !(is_booked && is_shared_elsewhere(agent));
    mc_own_shutter_begin(&agent->own, &agent->view, &agent->ranks, agent->node, &next, i_common,
                         i_common ? common->clock_bound_ns : 0);
    agent->duty = MC_DUTY_MEASURE;
    agent->t_duty = t0 - lead_ns(agent) + MC_TELL_NS;
    if (!agent->own.is_open)
        mc_agent_plan(agent, now);
    else if (agent->is_bubbled && has_windows(agent))
        mc_bubbling_begin(agent->bubbling, &agent->own.reservation);
}

/* ---- duties ---- */

static void refresh(mc_agent *agent, uint64_t now)
{
    find_ranks(agent, now);
    int status = mc_view_follow(&agent->view, agent->job_id);
    if (status != MC_OK)
        mc_agent_lose_board(agent, status);
    if (agent->view.board) {
        mc_view_publish(&agent->view, &agent->ranks, mc_bubbling_offer(agent->bubbling, &agent->ranks), now);
        mc_agent_judge(agent, now);
        read_board(agent, now);
        want_bubbles(agent);
        search(agent, now);
        adapt(agent, now);
        agree_with_nodes(agent, now);
    }
    tell_alone(agent);
    agent->t_refreshed = now;
    agent->node->t_last = now;
    agent->node->shutter_duration_ns = agent->lengths.duration_ns;
    agent->node->shutter_period_ns = agent->lengths.period_ns;
}

/* Either all nodes have a bubble or none of them. A bubble on only some nodes would tell little, because ranks wait for
   each other. */
static void draw_bubble(mc_agent *agent, uint64_t now)
{
    if (agent->schedule.booked_owner)
        agent->is_bubbled = agent->node->common.has_bubble && take_bubble_of_all(agent, now);
    else
        agent->is_bubbled = may_have_bubble(agent, now) && mc_bubbling_draw(agent->bubbling, &agent->view);
}

/* Counting costs the job time too, so check the duty limit. Booked shutters are not checked, because the nodes have
   already agreed on them. */
static int choose_shutter(mc_agent *agent, uint64_t now)
{
    int n_others = agent->view.n_others,
        is_affordable = !has_windows(agent) || mc_duty_allows(&agent->pause.duty, 0, now);
    if (agent->schedule.booked_owner)
        return MC_TAKE_FULL;
    if (!is_affordable || (n_others == 0 && !agent->is_bubbled))
        return MC_TAKE_NONE;
    int may_be_partial = n_others > 1 && has_windows(agent) && !agent->is_bubbled && !agent->ranks.is_multi_node;
    return mc_lengths_takes(&agent->lengths, may_be_partial, now);
}

static void decide(mc_agent *agent, uint64_t now)
{
    mc_lengths *lengths = &agent->lengths;
    const mc_board_view *view = &agent->view;
    uint64_t period_ns = lengths->period_ns;
    int target = mc_schedule_decide(&agent->schedule, view, period_ns);
    int is_offered = agent->node->meter != MC_METER_NONE && target == MC_TARGET_OWN;
    if (is_offered)
        draw_bubble(agent, now);
    int take = is_offered ? choose_shutter(agent, now) : MC_TAKE_NONE;
    /* Use the new period only from the next instant on, because all jobs have computed this instant with the old
       period. */
    lengths->period_ns = mc_board_period(view->board, view->live, view->n_live, lengths->options.period_ns);
    if (target == MC_TARGET_OTHER) {
        agent->duty = MC_DUTY_PAUSE;
        agent->t_duty = agent->schedule.t_instant - mc_schedule_signal_ns(period_ns);
    } else if (take != MC_TAKE_NONE) {
        begin_own(agent, take, now);
    } else {
        mc_agent_plan(agent, now);
    }
}

static void refresh_and_decide(mc_agent *agent, uint64_t now)
{
    refresh(agent, now);
    if (agent->view.board && mc_schedule_is_time(&agent->schedule, lead_ns(agent), now))
        decide(agent, now);
    else
        mc_agent_plan(agent, now);
}

static void pause_ranks(mc_agent *agent)
{
    mc_pause *pause = &agent->pause;
    const mc_board_view *view = &agent->view;
    int i_live = agent->schedule.i_target, presses = 0;
    mc_pause_prepare(pause, view, &agent->ranks, agent->node, i_live, agent->schedule.t_instant);
    if (mc_pause_begin(pause, &agent->ranks, agent->node, &agent->wake))
        presses = mc_bubbling_serve(agent->bubbling, &pause->shutter, view, i_live, &agent->ranks);
    mc_pause_stand(pause, view, &agent->ranks, &agent->wake);
    /* A bubble's thread may share its processor with this thread. Give the bubble time to see that the shutter is
       over. */
    if (presses)
        mc_bubbling_await(agent->bubbling, &pause->shutter, &agent->wake);
    mc_pause_end(pause, view, &agent->ranks);
    if (presses)
        mc_bubbling_answer(agent->bubbling, &pause->shutter, &pause->ack, &agent->wake);
    mc_pause_acknowledge(pause, view);
}

static int watch(mc_agent *agent, uint64_t max_wait_ns)
{
    mc_nap_until(mc_now_ns() + max_wait_ns, &agent->wake);
    mc_job_ranks_find(&agent->ranks);
    mc_job_ranks_check(&agent->ranks, mc_now_ns());
    return MC_OK;
}

int mc_agent_step(mc_agent *agent, uint64_t max_wait_ns)
{
    uint64_t now = mc_now_ns();
    if (agent->watches)
        return watch(agent, max_wait_ns);
    if (now < agent->t_duty) {
        mc_nap_until(mc_min(agent->t_duty, now + max_wait_ns), &agent->wake);
        now = mc_now_ns();
    }
    if (now < agent->t_duty || __atomic_load_n(&agent->wake, __ATOMIC_ACQUIRE))
        return MC_OK;
    if (agent->duty == MC_DUTY_DECIDE) {
        refresh_and_decide(agent, now);
        return MC_OK;
    }
    if (agent->duty == MC_DUTY_PAUSE)
        pause_ranks(agent);
    else
        mc_meter_measure(&agent->meter, &agent->own, around_ns(agent), &agent->wake);
    mc_agent_plan(agent, mc_now_ns());
    return MC_OK;
}
