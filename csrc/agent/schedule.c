#define _GNU_SOURCE
#include "agent/schedule.h"

#include "agent/shutter/intervals.h"
#include "common/options.h"

uint64_t mc_schedule_lead_ns(uint64_t period_ns, uint64_t around_ns)
{
    uint64_t lead_ns = mc_min(MC_LEAD_NS, period_ns / 4);
    return around_ns ? mc_max(lead_ns, around_ns + MC_APART_NS + 2 * MC_TELL_NS) : lead_ns;
}

uint64_t mc_schedule_signal_ns(uint64_t period_ns)
{
    return mc_min(MC_TELL_NS, period_ns / 8);
}

/* Find the first booked shutter after `first`. */
static void find_booking(mc_schedule *schedule, const mc_board_view *view, uint64_t first)
{
    for (int i = 0; i < view->n_live; i++) {
        mc_booking found;
        if (!mc_view_booking(view, i, &found) || !found.is_firm || found.t0 <= first ||
            (schedule->booked_owner && found.t0 >= schedule->booking.t0))
            continue;
        schedule->booking = found;
        schedule->booked_owner = view->live[i].owner;
    }
}

void mc_schedule_next(mc_schedule *schedule, const mc_board_view *view, uint64_t period_ns, uint64_t lead_ns,
                      uint64_t now)
{
    uint64_t first = now + lead_ns;
    schedule->i_instant = first / period_ns;
    schedule->t_instant = mc_instant_ns(schedule->i_instant, period_ns);
    if (schedule->t_instant <= first)
        schedule->t_instant = mc_instant_ns(++schedule->i_instant, period_ns);
    schedule->booked_owner = 0;
    /* Look only at bookings that are at least half a period after the last booked shutter. So an agent wakes at most
       twice in a period, however often bookings change. */
    if (view->board)
        find_booking(schedule, view, mc_max(first, schedule->t_booked + period_ns / 2));
    if (schedule->booked_owner && schedule->booking.t0 < schedule->t_instant)
        schedule->t_instant = schedule->booking.t0;
    else
        schedule->booked_owner = 0;
}

int mc_schedule_is_time(const mc_schedule *schedule, uint64_t lead_ns, uint64_t now)
{
    int is_early = now + lead_ns < schedule->t_instant;
    int is_late = now + MC_TELL_NS / 2 > schedule->t_instant;
    return !is_early && !is_late;
}

/* 1: the instant of the grid is too close to a booked shutter, so no job takes it. */
static int is_booked_over(const mc_schedule *schedule, const mc_board_view *view, uint64_t period_ns)
{
    uint64_t gap_ns = mc_booking_gap_ns(period_ns);
    for (int i = 0; i < view->n_live; i++) {
        mc_booking found;
        if (mc_view_booking(view, i, &found) && found.is_firm && found.t0 < schedule->t_instant + gap_ns &&
            schedule->t_instant < found.t0 + gap_ns)
            return 1;
    }
    return 0;
}

/* Jobs that have been on the board for two periods take turns, because some agents may not know a newer job yet. A turn
   lasts as many instants of the grid as the largest want_per_turn. Returns the job's index, or -1 if no job takes the
   instant. */
static int target_of_grid(const mc_schedule *schedule, const mc_board_view *view, uint64_t period_ns, int *takes_part)
{
    int settled[MC_N_SLOTS], n = 0;
    uint64_t per_turn = 1;
    for (int i = 0; i < view->n_live; i++) {
        if (view->live[i].n_ranks == 0 || view->live[i].t_joined + 2 * period_ns > schedule->t_instant)
            continue;
        *takes_part |= mc_view_is_own(view, i);
        settled[n++] = i;
        uint64_t wish = __atomic_load_n(&mc_view_slot(view, i)->want_per_turn, __ATOMIC_ACQUIRE);
        per_turn = mc_max(per_turn, mc_min(wish, MC_MOST_PER_TURN));
    }
    if (n == 0 || is_booked_over(schedule, view, period_ns))
        return -1;
    int i_target = settled[schedule->i_instant / per_turn % (uint64_t)n];
    return __atomic_load_n(&mc_view_slot(view, i_target)->books, __ATOMIC_RELAXED) ? -1 : i_target;
}

static int target_of(const mc_schedule *schedule, const mc_board_view *view, uint64_t period_ns, int *takes_part)
{
    *takes_part = schedule->booked_owner != 0;
    if (!schedule->booked_owner)
        return mc_view_has_shutters(view) ? target_of_grid(schedule, view, period_ns, takes_part) : -1;
    for (int i = 0; i < view->n_live; i++)
        if (view->live[i].owner == schedule->booked_owner)
            return i;
    return -1;
}

int mc_schedule_decide(mc_schedule *schedule, const mc_board_view *view, uint64_t period_ns)
{
    int takes_part;
    schedule->i_target = target_of(schedule, view, period_ns, &takes_part);
    if (schedule->booked_owner)
        schedule->t_booked = schedule->t_instant;
    if (schedule->i_target < 0 || !takes_part)
        return MC_TARGET_NOBODY;
    return mc_view_is_own(view, schedule->i_target) ? MC_TARGET_OWN : MC_TARGET_OTHER;
}
