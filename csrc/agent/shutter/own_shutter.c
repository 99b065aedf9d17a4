#define _GNU_SOURCE
#include "agent/shutter/own_shutter.h"

#include "agent/shutter/intervals.h"
#include "common/proc.h"

#include <string.h>

/* Entering and leaving the gate takes processor time. A co-runner may use this much per rank in a shutter. */
static const uint64_t REST_NS = 150000;
static const double REST_FRAC = 0.03;

static void publish_window(mc_rank *rank, const mc_own_shutter *own)
{
    mc_sampling *sampling = &rank->segment->sampling;
    uint64_t i = sampling->n_windows;
    mc_window *window = &sampling->windows[i % MC_N_WINDOWS];
    window->begin = own->reservation.t0;
    window->t0 = own->record.t0;
    window->t1 = own->record.t1;
    window->end = own->reservation.t1;
    window->epoch = own->reservation.epoch;
    __atomic_store_n(&window->verdict, MC_VERDICT_UNKNOWN, __ATOMIC_RELAXED);
    rank->i_window = i;
    rank->has_window = 1;
    __atomic_store_n(&sampling->n_windows, i + 1, __ATOMIC_RELEASE);
}

static uint64_t worse(uint64_t a, uint64_t b)
{
    if (a == MC_VERDICT_BUBBLED || a == MC_VERDICT_PARTIAL)
        return b == MC_VERDICT_VALID ? a : b;
    return a == MC_VERDICT_VALID ? b : a;
}

void mc_own_shutter_close(mc_own_shutter *own, mc_job_ranks *ranks, mc_node *node, uint64_t verdict)
{
    if (!own->is_open)
        return;
    own->is_open = 0;
    if (own->is_judged)
        verdict = worse(own->record.verdict, verdict);
    own->record.verdict = verdict;
    for (int i = 0; i < ranks->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        mc_window *window = &rank->segment->sampling.windows[rank->i_window % MC_N_WINDOWS];
        if (rank->has_window)
            __atomic_store_n(&window->verdict, verdict, __ATOMIC_RELEASE);
        rank->has_window = 0;
    }
    uint64_t i = node->n_shutters;
    node->shutters[i % MC_N_SHUTTERS] = own->record;
    __atomic_store_n(&node->n_shutters, i + 1, __ATOMIC_RELEASE);
}

_Static_assert(MC_N_SLOTS <= 64 && MC_N_CORUNNERS <= 64, "co-runners are bits of a word");

/* Record co-runners by their rows in the node's table, because a slot can belong to another job later. */
static void note_corunners(mc_own_shutter *own, const mc_node *node)
{
    uint64_t n = mc_min(node->n_corunners, MC_N_CORUNNERS);
    for (int i = 0; i < own->n_others; i++)
        for (uint64_t j = 0; j < n; j++)
            if (node->corunners[j].owner == own->others[i].owner) {
                own->record.present |= UINT64_C(1) << j;
                own->record.spared |= (uint64_t)mc_is_spared(&own->reservation, own->others[i].i_slot) << j;
            }
}

void mc_own_shutter_begin(mc_own_shutter *own, const mc_board_view *view, mc_job_ranks *ranks, const mc_node *node,
                          const mc_reservation *next, uint64_t i_common, uint64_t bound_ns)
{
    uint64_t duration_ns = next->t1 - next->t0;
    /* Clocks of nodes differ, so pauses on other nodes begin and end up to bound_ns earlier or later. */
    if (mc_settle_ns(duration_ns) + mc_margin_ns(duration_ns) + 2 * bound_ns >= duration_ns)
        return;
    own->is_open = 1;
    own->is_judged = 0;
    own->i_common = i_common;
    own->bound_ns = bound_ns;
    own->reservation = *next;
    own->guard_ns = mc_guard_ns(duration_ns);
    own->t_window_end = next->t1 - mc_margin_ns(duration_ns);
    own->n_others = 0;
    for (int i = 0; i < view->n_live; i++)
        if (!mc_view_is_own(view, i))
            own->others[own->n_others++] = view->live[i];
    memset(&own->record, 0, sizeof own->record);
    note_corunners(own, node);
    own->record.epoch = next->epoch;
    own->record.i_common = i_common;
    own->record.t0 = next->t0 + mc_settle_ns(duration_ns) + bound_ns;
    own->record.t1 = own->t_window_end - bound_ns;
    own->record.waited_frac = -1.0;
    mc_slot_reserve(view->slot, &own->reservation);
    for (int i = 0; i < ranks->n; i++)
        if (ranks->rows[i].alive)
            publish_window(&ranks->rows[i], own);
}

void mc_own_shutter_read_waits(mc_own_shutter *own, mc_job_ranks *ranks, int is_end)
{
    uint64_t now = mc_now_ns(), took_ns = now - own->t_waits;
    /* If the agent woke late, co-runners may have run in the meantime. */
    int is_inside = is_end && own->t_waits >= own->record.t0 && took_ns > 0 && now <= own->reservation.t1;
    double most = -1.0;
    for (int i = 0, n_read = 0; i < ranks->n; i++) {
        mc_rank *rank = &ranks->rows[i];
        uint64_t before_ns = rank->waited_ns;
        rank->waited_ns = UINT64_MAX; /* unknown, because the ranks that are read change when a rank ends */
        if (!rank->alive || n_read >= MC_N_WAITS)
            continue;
        rank->waited_ns = mc_proc_waited_ns(rank->pid, rank->pid);
        n_read++;
        if (!is_inside || before_ns == UINT64_MAX || rank->waited_ns == UINT64_MAX)
            continue;
        double frac = (double)(rank->waited_ns - before_ns) / (double)took_ns;
        most = frac > most ? frac : most;
    }
    own->t_waits = now;
    if (is_end)
        own->record.waited_frac = most < 1.0 ? most : 1.0;
}

static uint64_t judge_one(const mc_own_shutter *own, mc_board *board, int i_slot, uint64_t *moved_ns)
{
    mc_slot *slot = &board->slots[i_slot];
    const mc_reservation *shutter = &own->reservation;
    uint64_t n_ranks = mc_min(__atomic_load_n(&slot->n_ranks, __ATOMIC_RELAXED), MC_N_NODE_RANKS);
    uint64_t rest_ns = mc_max(REST_NS, (uint64_t)(REST_FRAC * (double)(shutter->t1 - shutter->t0)));
    mc_ack ack;
    if (mc_is_spared(shutter, i_slot))
        return MC_VERDICT_VALID;
    if (mc_slot_ack(slot, shutter->epoch, &ack) != MC_OK)
        return MC_VERDICT_SILENT;
    *moved_ns += ack.moved_ns;
    if (ack.t_told > shutter->t0 + own->guard_ns)
        return MC_VERDICT_LATE;
    /* A co-runner runs bubbles unasked only if somebody has changed the request in our slot. */
    int has_pressed_unasked = ack.has_pressed && !mc_press_share(&shutter->request, i_slot);
    if (ack.moved_ns > rest_ns * n_ranks || ack.t_resume < own->t_window_end || has_pressed_unasked)
        return MC_VERDICT_MOVED;
    return MC_VERDICT_VALID;
}

static int is_there(const mc_board_view *view, const mc_neighbour *other)
{
    return __atomic_load_n(&view->board->slots[other->i_slot].owner, __ATOMIC_ACQUIRE) == other->owner;
}

static int was_there(const mc_own_shutter *own, uint64_t owner)
{
    for (int i = 0; i < own->n_others; i++)
        if (own->others[i].owner == owner)
            return 1;
    return 0;
}

/* All jobs that were on the board at the shutter's start are judged. A job that joined during the shutter did not
   pause, so the verdict is `silent`. */
static uint64_t judge_all(mc_own_shutter *own, const mc_board_view *view, uint64_t now)
{
    mc_neighbour present[MC_N_SLOTS];
    int n = mc_board_live(view->board, now, present);
    uint64_t verdict = MC_VERDICT_VALID;
    for (int i = 0; i < own->n_others; i++) {
        uint64_t of_one = MC_VERDICT_SILENT;
        if (is_there(view, &own->others[i]))
            of_one = judge_one(own, view->board, own->others[i].i_slot, &own->record.moved_ns);
        verdict = worse(verdict, of_one);
    }
    for (int i = 0; i < n; i++)
        if (&view->board->slots[present[i].i_slot] != view->slot && present[i].t_joined < own->reservation.t1 &&
            !was_there(own, present[i].owner))
            verdict = worse(verdict, MC_VERDICT_SILENT);
    return verdict;
}

int mc_own_shutter_acks(const mc_own_shutter *own, const mc_board_view *view, mc_ack *out)
{
    uint64_t n_missing = own->reservation.request.n_bubbles;
    int n = 0;
    for (int i = 0; i < own->n_others; i++) {
        const mc_neighbour *other = &own->others[i];
        int share = mc_press_share(&own->reservation.request, other->i_slot);
        if (!share)
            continue;
        if (!is_there(view, other) ||
            mc_slot_ack(&view->board->slots[other->i_slot], own->reservation.epoch, &out[n]) != MC_OK)
            return 0;
        n_missing -= (uint64_t)share;
        n++;
    }
    return n_missing ? 0 : n;
}

int mc_own_shutter_judge(mc_own_shutter *own, const mc_board_view *view, uint64_t now)
{
    if (!own->is_open || own->is_judged || now < own->reservation.t1)
        return 0;
    own->record.n_corunners = (uint64_t)own->n_others;
    own->record.verdict = judge_all(own, view, now);
    if (own->record.verdict == MC_VERDICT_VALID && own->reservation.spared)
        own->record.verdict = MC_VERDICT_PARTIAL;
    own->is_judged = 1;
    return 1;
}
