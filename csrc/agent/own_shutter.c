/* A shutter of this job: reservation, sampling window, hardware counts, verdict. */
#define _GNU_SOURCE
#include "agent/agent.h"

#include "common/table.h"

#include <string.h>
#include <unistd.h>

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

static const mc_lane_head *lane_of(mc_segment *segment, int tid)
{
    uint64_t n_lanes = mc_min(__atomic_load_n(&segment->n_lanes, __ATOMIC_ACQUIRE), MC_N_ALL_LANES);
    for (int i = 0; i < (int)n_lanes; i++) {
        const mc_lane_head *head = mc_lane_tables(segment, i).head;
        if (__atomic_load_n(&head->owner_tid, __ATOMIC_ACQUIRE) == (uint64_t)tid)
            return head;
    }
    return NULL;
}

static void follow_threads(mc_agent *agent)
{
    mc_followed threads[N_TIDS];
    int tids[N_TIDS], n = 0, n_left = 0;
    for (int i = 0; i < agent->n_ranks; i++) {
        mc_segment *segment = agent->ranks[i].segment;
        int n_tids = agent->ranks[i].alive ? mc_proc_threads(agent->ranks[i].pid, tids, N_TIDS - n, &n_left) : 0;
        int has_untold = __atomic_load_n(&segment->counters.n_lane_overflow, __ATOMIC_RELAXED) != 0;
        for (int j = 0; j < n_tids; j++)
            threads[n++] = (mc_followed){tids[j], has_untold, lane_of(segment, tids[j])};
    }
    n_left += mc_perf_follow(agent->perf, threads, n);
    agent->node->n_uncounted = mc_max(agent->node->n_uncounted, (uint64_t)n_left);
}

/* From now on, and up to `until` at most: nobody may be left to end it. What this process may do, ranks with the same
   filters may too. */
static void let_threads_count(const mc_agent *agent, uint64_t until)
{
    uint64_t n_filters = until ? mc_proc_n_filters(getpid()) : 0;
    for (int i = 0; i < agent->n_ranks; i++) {
        int may = !until || mc_proc_n_filters(agent->ranks[i].pid) <= n_filters;
        __atomic_store_n(&agent->ranks[i].segment->sampling.counts_until, may ? until : 0, __ATOMIC_RELEASE);
    }
}

int mc_turn_counts(const mc_agent *agent)
{
    return agent->perf || (agent->loop && agent->loop->stage == MC_LOOP_COUNTING);
}

/* Co-runners that take turns with the job give it milliseconds at a time: windows without a pause may be long,
   and are. */
uint64_t mc_turn_around_ns(const mc_agent *agent)
{
    if (agent->perf)
        return agent->planned_ns;
    return mc_max(agent->planned_ns, mc_min(LOOP_WINDOWS * agent->planned_ns, agent->period_ns / 8));
}

/* Whether the counts noted are from that instant: the agent may have slept longer,
   or lost its processor while it read. */
static int count_at(mc_agent *agent, int i_end, uint64_t t, uint64_t late_ns, uint64_t span)
{
    mc_sleep_until(t, &agent->wake);
    int in_time = mc_now_ns() >= t;
    mc_perf_note(agent->perf, i_end, span);
    return in_time && mc_now_ns() <= t + late_ns;
}

/* Algorithm 1 with K = 1: counts of [t0, t1), or of nothing, as its length tells, when either end was missed or a
   thread's counts are. 1: outside MPI too. */
static int measure(mc_agent *agent, uint64_t t0, uint64_t t1, uint64_t span, mc_ipc *all, mc_ipc *outside,
                   uint64_t *window_ns)
{
    uint64_t late_ns = (t1 - t0) / 16;
    *all = *outside = (mc_ipc){0, 0};
    if (!count_at(agent, 0, t0, late_ns, span) || !count_at(agent, 1, t1, late_ns, span))
        return 0;
    int is_known = mc_perf_between(agent->perf, all, outside);
    if (is_known < 0)
        return 0;
    *window_ns = t1 - t0;
    return is_known;
}

static void measure_around(mc_agent *agent)
{
    mc_turn *turn = &agent->turn;
    mc_shutter *shutter = &turn->shutter;
    uint64_t duration_ns = shutter->t1 - shutter->t0, t_before = turn->reservation.t0 - MC_APART_NS;
    uint64_t t_after = turn->reservation.t1 + MC_APART_NS, span = t_after + 2 * duration_ns;
    follow_threads(agent);
    let_threads_count(agent, span);
    int is_known = measure(agent, t_before - duration_ns, t_before, span, &shutter->before, &shutter->outside_before,
                           &shutter->hits_before.window_ns);
    is_known &= measure(agent, shutter->t0, shutter->t1, span, &shutter->during, &shutter->outside_during,
                        &shutter->hits_during.window_ns);
    is_known &= measure(agent, t_after, t_after + duration_ns, span, &shutter->after, &shutter->outside_after,
                        &shutter->hits_after.window_ns);
    let_threads_count(agent, 0);
    if (!is_known)
        shutter->outside_before = shutter->outside_during = shutter->outside_after = (mc_ipc){0, 0};
}

/* Algorithm 3, lines 3 to 9, for one target. */
void mc_turn_measure(mc_agent *agent)
{
    if (!agent->turn.open)
        return;
    if (agent->perf)
        measure_around(agent);
    else if (mc_turn_counts(agent))
        mc_loop_measure(agent);
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
    if (turn->shutter.verdict == MC_VERDICT_SILENT)
        mc_stretch_less(agent);
    if (turn->i_common == 0)
        mc_turn_close(agent, turn->shutter.verdict);
}
