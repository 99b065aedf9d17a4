/* A shutter of this job: reservation, sampling window, hardware counts, verdict. */
#define _GNU_SOURCE
#include "agent.h"

#include <string.h>

enum { N_TIDS = 512, LOOP_WINDOWS = 6 };

/* A co-runner may use this much processor time in a shutter, per rank: entering and leaving the gate. */
static const uint64_t REST_NS = 150000;
static const double REST_FRAC = 0.03;

static void publish_window(mc_rank *rank, const mc_turn *turn)
{
    mc_sampling *sampling = &rank->segment->sampling;
    uint64_t i = sampling->n_windows;
    mc_window *window = &sampling->windows[i % MC_N_WINDOWS];
    window->begin = turn->reservation.t0;
    window->t0 = turn->shutter.t0;
    window->t1 = turn->shutter.t1;
    window->end = turn->reservation.t1;
    window->epoch = turn->reservation.epoch;
    __atomic_store_n(&window->verdict, MC_VERDICT_UNKNOWN, __ATOMIC_RELAXED);
    rank->i_window = i;
    rank->has_window = 1;
    __atomic_store_n(&sampling->n_windows, i + 1, __ATOMIC_RELEASE);
}

static uint64_t worse(uint64_t a, uint64_t b)
{
    return a == MC_VERDICT_VALID ? b : a;
}

void mc_turn_close(mc_agent *agent, uint64_t verdict)
{
    mc_turn *turn = &agent->turn;
    if (!turn->open)
        return;
    turn->open = 0;
    if (turn->is_judged)
        verdict = worse(turn->shutter.verdict, verdict);
    turn->shutter.verdict = verdict;
    for (int i = 0; i < agent->n_ranks; i++) {
        mc_rank *rank = &agent->ranks[i];
        mc_window *window = &rank->segment->sampling.windows[rank->i_window % MC_N_WINDOWS];
        if (rank->has_window)
            __atomic_store_n(&window->verdict, verdict, __ATOMIC_RELEASE);
        rank->has_window = 0;
    }
    uint64_t i = agent->node->n_shutters;
    agent->node->shutters[i % MC_N_SHUTTERS] = turn->shutter;
    __atomic_store_n(&agent->node->n_shutters, i + 1, __ATOMIC_RELEASE);
}

void mc_turn_begin(mc_agent *agent, uint64_t duration_ns, uint64_t i_common)
{
    mc_turn *turn = &agent->turn;
    uint64_t t0 = agent->t_instant, t1 = t0 + duration_ns;
    /* On other nodes the pauses begin and end so much earlier or later. */
    uint64_t bound_ns = i_common ? agent->node->common.clock_bound_ns : 0;
    mc_turn_close(agent, MC_VERDICT_ELSEWHERE);
    if (mc_settle_ns(duration_ns) + mc_margin_ns(duration_ns) + 2 * bound_ns >= duration_ns)
        return;
    turn->open = 1;
    turn->is_judged = 0;
    turn->i_common = i_common;
    turn->reservation = (mc_reservation){t0, t0, t1};
    turn->guard_ns = mc_guard_ns(duration_ns);
    turn->t_window_end = t1 - mc_margin_ns(duration_ns);
    turn->n_others = 0;
    for (int i = 0; i < agent->n_live; i++)
        if (agent->live[i].owner != agent->owner)
            turn->others[turn->n_others++] = agent->live[i];
    memset(&turn->shutter, 0, sizeof turn->shutter);
    turn->shutter.epoch = t0;
    turn->shutter.i_common = i_common;
    turn->shutter.t0 = t0 + mc_settle_ns(duration_ns) + bound_ns;
    turn->shutter.t1 = turn->t_window_end - bound_ns;
    mc_slot_reserve(agent->slot, &turn->reservation);
    for (int i = 0; i < agent->n_ranks; i++)
        if (agent->ranks[i].alive)
            publish_window(&agent->ranks[i], turn);
}

static void follow_threads(mc_agent *agent)
{
    int tids[N_TIDS], n = 0;
    for (int i = 0; i < agent->n_ranks && n < N_TIDS; i++)
        if (agent->ranks[i].alive)
            n += mc_proc_threads(agent->ranks[i].pid, tids + n, N_TIDS - n);
    mc_perf_follow(agent->perf, tids, n);
}

int mc_turn_counts(const mc_agent *agent)
{
    return agent->perf || (agent->loop && agent->loop->stage == MC_LOOP_COUNTING);
}

/* Co-runners that take turns with the job give it milliseconds at a time: windows without a pause may be long, and are. */
uint64_t mc_turn_around_ns(const mc_agent *agent)
{
    if (agent->perf)
        return agent->duration_ns;
    return mc_max(agent->duration_ns, mc_min(LOOP_WINDOWS * agent->duration_ns, agent->period_ns / 8));
}

/* The counts at t, and whether they are from that instant: the agent may have slept longer, or lost its processor while
   it read. */
static int counts_at(mc_agent *agent, uint64_t t, uint64_t late_ns, mc_ipc *counts)
{
    mc_sleep_until(t, &agent->wake);
    int in_time = mc_now_ns() >= t;
    *counts = mc_perf_read(agent->perf);
    return in_time && mc_now_ns() <= t + late_ns;
}

/* Algorithm 1 with K = 1: counts of [t0, t1), or of nothing when either end was missed. */
static mc_ipc measure(mc_agent *agent, uint64_t t0, uint64_t t1)
{
    mc_ipc none = {0, 0}, before, after;
    uint64_t late_ns = (t1 - t0) / 16;
    if (!counts_at(agent, t0, late_ns, &before) || !counts_at(agent, t1, late_ns, &after))
        return none;
    return (mc_ipc){after.instructions - mc_min(before.instructions, after.instructions),
                    after.cycles - mc_min(before.cycles, after.cycles)};
}

/* Algorithm 3, lines 3 to 9, for one target. */
void mc_turn_measure(mc_agent *agent)
{
    mc_turn *turn = &agent->turn;
    mc_shutter *shutter = &turn->shutter;
    uint64_t duration_ns = shutter->t1 - shutter->t0, t_before = turn->reservation.t0 - MC_APART_NS;
    uint64_t t_after = turn->reservation.t1 + MC_APART_NS;
    if (turn->open && !agent->perf && mc_turn_counts(agent))
        mc_loop_measure(agent);
    if (!turn->open || !agent->perf)
        return;
    follow_threads(agent);
    shutter->before = measure(agent, t_before - duration_ns, t_before);
    shutter->during = measure(agent, shutter->t0, shutter->t1);
    shutter->after = measure(agent, t_after, t_after + duration_ns);
}

static uint64_t judge_one(const mc_agent *agent, mc_slot *slot, uint64_t *moved_ns)
{
    const mc_turn *turn = &agent->turn;
    const mc_reservation *shutter = &turn->reservation;
    uint64_t n_ranks = mc_min(__atomic_load_n(&slot->n_ranks, __ATOMIC_RELAXED), MC_N_NODE_RANKS);
    uint64_t rest_ns = mc_max(REST_NS, (uint64_t)(REST_FRAC * (double)(shutter->t1 - shutter->t0)));
    mc_ack ack;
    if (mc_slot_ack(slot, shutter->epoch, &ack) != MC_OK)
        return MC_VERDICT_SILENT;
    *moved_ns += ack.moved_ns;
    if (ack.t_told > shutter->t0 + turn->guard_ns)
        return MC_VERDICT_LATE;
    if (ack.moved_ns > rest_ns * n_ranks || ack.t_resume < turn->t_window_end)
        return MC_VERDICT_MOVED;
    return MC_VERDICT_VALID;
}

static int was_there(const mc_turn *turn, uint64_t owner)
{
    for (int i = 0; i < turn->n_others; i++)
        if (turn->others[i].owner == owner)
            return 1;
    return 0;
}

/* Every job that stood on the board when the shutter was taken, and every one that has come since. */
static uint64_t judge_all(mc_agent *agent, uint64_t now, uint64_t *moved_ns)
{
    mc_turn *turn = &agent->turn;
    mc_neighbour present[MC_N_SLOTS];
    int n = mc_board_live(agent->board, now, agent->period_ns, present);
    uint64_t verdict = MC_VERDICT_VALID;
    for (int i = 0; i < turn->n_others; i++) {
        mc_slot *slot = &agent->board->slots[turn->others[i].i_slot];
        int still = __atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE) == turn->others[i].owner;
        verdict = worse(verdict, still ? judge_one(agent, slot, moved_ns) : MC_VERDICT_SILENT);
    }
    for (int i = 0; i < n; i++)
        if (present[i].owner != agent->owner && present[i].t_joined < turn->reservation.t1 &&
            !was_there(turn, present[i].owner))
            verdict = worse(verdict, MC_VERDICT_SILENT);
    return verdict;
}

void mc_turn_verdict(mc_agent *agent, uint64_t now)
{
    mc_turn *turn = &agent->turn;
    if (!turn->open || turn->is_judged || now < turn->reservation.t1)
        return;
    turn->shutter.n_corunners = (uint64_t)turn->n_others;
    turn->shutter.verdict = judge_all(agent, now, &turn->shutter.moved_ns);
    turn->is_judged = 1;
    if (turn->i_common == 0)
        mc_turn_close(agent, turn->shutter.verdict);
}
