#define _GNU_SOURCE
#include "agent/multi_node.h"

#define LOAD(field) __atomic_load_n(&(field), __ATOMIC_ACQUIRE)
#define STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELEASE)

static const mc_booking NO_BOOKING = {0, 0, 0};

/* Call this only after this job's booking is on the board. If two jobs book at the same time, at least one of them then
   sees the booking of the other. */
static int is_free(const mc_board_view *view, uint64_t period_ns, uint64_t t_earliest, uint64_t t0)
{
    uint64_t gap_ns = mc_booking_gap_ns(period_ns);
    if (t0 < t_earliest)
        return 0;
    for (int i = 0; i < view->n_live; i++) {
        mc_booking other;
        if (!mc_view_is_own(view, i) && mc_slot_booking(mc_view_slot(view, i), &other) == MC_OK &&
            other.t0 < t0 + gap_ns && t0 < other.t0 + gap_ns)
            return 0;
    }
    return 1;
}

int mc_multi_node_has_request(const mc_node *node)
{
    return LOAD(node->common.i_asked) != node->common.i_answered;
}

void mc_multi_node_answer(mc_node *node, mc_board_view *view, uint64_t period_ns, uint64_t notice_ns, int can_bubble,
                          uint64_t now)
{
    mc_common *common = &node->common;
    uint64_t i = LOAD(common->i_asked);
    mc_view_book(view, (mc_booking){common->t0, common->t1, 0});
    common->is_free = (uint64_t)is_free(view, period_ns, now + notice_ns, common->t0);
    common->can_bubble = (uint64_t)can_bubble;
    if (!common->is_free)
        mc_view_book(view, NO_BOOKING);
    STORE(common->i_answered, i);
}

static void judge(mc_common *common, uint64_t i, uint64_t verdict)
{
    common->verdict = verdict;
    STORE(common->i_judged, i);
}

static void follow_decision(mc_common *common, mc_board_view *view, uint64_t notice_ns, uint64_t now)
{
    mc_booking booking = view->booking;
    uint64_t i = LOAD(common->i_decided);
    if (i == 0 || i != common->i_answered || i == common->i_judged || booking.t0 == 0 || booking.is_firm)
        return;
    int in_time = now + notice_ns <= booking.t0;
    booking.is_firm = common->is_firm && in_time;
    mc_view_book(view, booking.is_firm ? booking : NO_BOOKING);
    if (common->is_firm && !in_time)
        judge(common, i, MC_VERDICT_ELSEWHERE);
}

/* Report the verdict, even on a shutter that never began because the agent woke too late. */
static void report(mc_common *common, const mc_own_shutter *own, uint64_t now)
{
    uint64_t i = LOAD(common->i_decided); /* read first: otherwise is_firm could belong to another shutter */
    if (i == 0 || i == common->i_judged || !common->is_firm)
        return;
    int is_open = own->is_open && own->i_common == i;
    if (is_open && own->is_judged)
        judge(common, i, own->record.verdict);
    else if (now > common->t1 && !is_open)
        judge(common, i, MC_VERDICT_ELSEWHERE);
}

void mc_multi_node_decide(mc_node *node, mc_board_view *view, const mc_own_shutter *own, uint64_t notice_ns,
                          uint64_t now)
{
    follow_decision(&node->common, view, notice_ns, now);
    report(&node->common, own, now);
}

int mc_multi_node_is_confirmed(const mc_node *node, const mc_own_shutter *own, uint64_t *verdict)
{
    int is_confirmed = own->is_open && own->is_judged && LOAD(node->common.i_confirmed) == own->i_common;
    *verdict = node->common.all_verdict;
    return is_confirmed;
}

void mc_multi_node_publish(mc_node *node, const mc_board_view *view, const mc_lengths *lengths, mc_drawn_bubble drawn,
                           int has_ranks)
{
    mc_common *common = &node->common;
    uint64_t n_jobs = (uint64_t)has_ranks;
    for (int i = 0; i < view->n_live && node->meter != MC_METER_NONE; i++)
        n_jobs += !mc_view_is_own(view, i) && view->live[i].n_ranks > 0;
    STORE(common->n_jobs, n_jobs);
    STORE(common->period_ns, lengths->period_ns);
    STORE(common->duration_ns, lengths->duration_ns);
    STORE(common->is_bubble_wanted, drawn.is_wanted);
    STORE(common->drawn_bubble, drawn.bubble);
}
