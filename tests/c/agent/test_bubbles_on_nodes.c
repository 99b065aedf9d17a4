/* Bubbles of a job on several nodes, on one of them: the test is the coordinator, and does what the agent's loop does. Run in
   a folder of its own. Exit code: number of failed checks. */
#include "agent/step.c"

#include "agent/meters/count.h"
#include "../support/bubbling.h"

#include <stdlib.h>

static const uint64_t LATER_NS = 600000000u;
static const uint64_t LEVEL_8 = 8001;

static mc_agent *start(mc_board *board)
{
    mc_agent *agent = calloc(1, sizeof *agent);
    agent->node = calloc(1, sizeof *agent->node);
    /* It counts its first set of places. */
    agent->meter = (mc_meter){.ops = &mc_meter_count, .state = calloc(1, sizeof(mc_count_meter))};
    agent->node->meter = MC_METER_COUNT;
    agent->view = view_alone(board, 0);
    agent->ranks.is_multi_node = agent->ranks.n_alive = 1;
    mc_lengths_open(&agent->lengths, mc_now_ns());
    agent->lengths.period_ns = 50 * MS;
    agent->planned_ns = 6 * MS;
    agent->pause.duty = (mc_duty){.t_open = mc_now_ns(), .frac = 0.5, .allowance_ns = MS};
    agent->bubbling = mc_bubbling_open(agent->node->bubble_reason, &agent->node->probe_curve);
    CHECK(agent->bubbling != NULL);
    return agent;
}

static void stop(mc_agent *agent)
{
    mc_bubbling_close(agent->bubbling);
    free(agent->meter.state);
    free(agent->node);
    free(agent);
}

static void look_around(mc_agent *agent)
{
    want_bubbles(agent);
    agree_with_nodes(agent, mc_now_ns());
}

static void test_without_coordinators_there_are_none(mc_agent *agent)
{
    look_around(agent);
    CHECK(agent->view.bubble_frac == 0.0 && agent->node->common.drawn_bubble == 0);
    CHECK(strstr(agent->node->bubble_reason, "need its coordinators"));
    mc_common_state(agent, MC_COMMON_ON);
    look_around(agent);
    CHECK(agent->view.bubble_frac == 1.0 && strstr(agent->node->bubble_reason, "no shutter had counts yet"));
    mc_common_share(agent, 1);
    look_around(agent);
    CHECK(agent->view.bubble_frac == 0.9);
    mc_common_share(agent, 0);
    for (uint64_t end = mc_now_ns() + PATIENCE_NS; mc_now_ns() < end && !agent->node->common.drawn_bubble;) {
        look_around(agent);
        wait_until(mc_now_ns() + MS);
    }
    CHECK_OR_BUSY(agent->node->common.drawn_bubble > 0);
}

static int is_booked(const mc_agent *agent, uint64_t t0)
{
    return t0 && agent->view.booking.t0 == t0 && agent->view.booking.is_firm;
}

/* Ask for shutter i, decide, and go through it until it is judged here. */
static void take(mc_agent *agent, uint64_t i, uint64_t bubble, int has_bubble)
{
    mc_common *common = &agent->node->common;
    uint64_t t0 = 0;
    for (int n_tries = 0; n_tries < 20 && !is_booked(agent, t0); n_tries++) { /* a busy machine may be late */
        t0 = mc_now_ns() + LATER_NS;
        common->i_judged = common->i_answered = i - 1;
        mc_common_ask(agent, i, t0, t0 + 6 * MS, bubble);
        look_around(agent);
        CHECK(common->i_answered == i && common->can_bubble == (bubble > 0));
        mc_common_decide(agent, i, 1, has_bubble);
        look_around(agent);
    }
    CHECK(is_booked(agent, t0));
    agent->schedule.booking = agent->view.booking;
    agent->schedule.booked_owner = OWNER;
    agent->schedule.t_instant = t0;
    draw_bubble(agent, mc_now_ns());
    CHECK(agent->is_bubbled == has_bubble);
    begin_own(agent, MC_TAKE_FULL, mc_now_ns());
    CHECK(agent->own.is_open && agent->own.i_common == i);
    wait_until(t0 + 7 * MS);
    mc_agent_judge(agent, mc_now_ns());
    look_around(agent);
    CHECK(common->i_judged == i && common->verdict == agent->own.record.verdict);
}

/* The verdict that is recorded when that of all nodes has come. */
static uint64_t close_by(mc_agent *agent, uint64_t i, uint64_t verdict)
{
    uint64_t n = agent->node->n_shutters;
    mc_common_confirm(agent, i, verdict);
    look_around(agent);
    CHECK(agent->node->n_shutters == n + 1);
    return agent->node->shutters[n].verdict;
}

static void test_a_bubble_runs_when_all_nodes_can(mc_agent *agent)
{
    double level = 0.0;
    uint64_t i = 0;
    for (uint64_t end = mc_now_ns() + PATIENCE_NS; level == 0.0 && mc_now_ns() < end;) {
        take(agent, ++i, LEVEL_8, 1);
        CHECK(agent->own.record.verdict == MC_VERDICT_BUBBLED);
        level = agent->own.record.bubble_level;
        CHECK(level == 0.0 || level == 8.0);
        CHECK(close_by(agent, i, MC_VERDICT_BUBBLED) == MC_VERDICT_BUBBLED);
    }
    CHECK_OR_BUSY(level == 8.0);
    CHECK(agent->node->shutters[i - 1].bubble_level == level);
    take(agent, ++i, LEVEL_8, 1);
    CHECK(close_by(agent, i, MC_VERDICT_ELSEWHERE) == MC_VERDICT_ELSEWHERE);
    take(agent, ++i, LEVEL_8, 0); /* another node cannot */
    CHECK(agent->own.record.verdict == MC_VERDICT_BUBBLED && agent->own.record.bubble_level == 0.0);
    close_by(agent, i, MC_VERDICT_BUBBLED);
    mc_common_share(agent, 1);
    take(agent, ++i, LEVEL_8, 0);
    CHECK(close_by(agent, i, MC_VERDICT_VALID) == MC_VERDICT_VALID); /* beside co-runners on another node */
}

/* Shutters for bubbles only are not without end, and heed the duty limit. */
static void test_a_job_alone_has_so_many_only(mc_agent *agent)
{
    mc_common_share(agent, 0);
    agent->pause.duty.counting_ns = UINT64_MAX / 2;
    look_around(agent);
    CHECK(agent->node->common.drawn_bubble == 0);
    agent->pause.duty.counting_ns = 0;
    agent->n_alone = MC_N_COUNT_ROWS / 2;
    look_around(agent);
    CHECK(agent->node->common.drawn_bubble == 0);
    mc_common_share(agent, 1);
    look_around(agent);
    CHECK(agent->node->common.drawn_bubble > 0);
}

int main(void)
{
    mc_board *board = calloc(1, sizeof *board);
    if (!board)
        return 1;
    calibrate(sysconf(_SC_NPROCESSORS_ONLN), 2.0);
    mc_agent *agent = start(board);
    test_without_coordinators_there_are_none(agent);
    test_a_bubble_runs_when_all_nodes_can(agent);
    test_a_job_alone_has_so_many_only(agent);
    stop(agent);
    unlink(CALIBRATION);
    free(board);
    return exit_code();
}
