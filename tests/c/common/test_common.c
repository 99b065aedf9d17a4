/* Shutters of jobs on several nodes, seen from one of them; the test is their coordinator. Exit code: number of failed
   checks. */
#include "../support/node.h"

/* The coordinator asks for a shutter so long from now, and has its answer. */
static int ask(mc_agent *coordinator, uint64_t i, uint64_t from_now_ns)
{
    uint64_t t0 = mc_now_ns() + from_now_ns;
    mc_common_ask(coordinator, i, t0, t0 + 4000000, 2001);
    CHECK_SOON(coordinator->node->common.i_answered == i, 10);
    CHECK(!coordinator->node->common.can_bubble && coordinator->node->common.drawn_bubble == 0);
    return (int)coordinator->node->common.is_free;
}

static const uint64_t BOUND_NS = 100000, LATER_NS = 1500000000u;

/* One shutter from the first word to the last; 1: valid on this node. */
static int take_common(mc_agent *coordinator, uint64_t i, uint64_t all_verdict)
{
    mc_node *node = coordinator->node;
    uint64_t n_taken = node->n_shutters;
    if (!ask(coordinator, i, LATER_NS))
        return 0;
    mc_common_decide(coordinator, i, 1, 1); /* without an agent that can */
    CHECK_SOON(node->common.i_judged == i, 10);
    if (node->common.verdict != MC_VERDICT_VALID)
        all_verdict = node->common.verdict;
    CHECK(node->n_shutters == n_taken); /* it waits for the other nodes */
    mc_common_confirm(coordinator, i, all_verdict);
    WAIT_FOR(node->n_shutters > n_taken, node->common.verdict == MC_VERDICT_LATE ? 1 : 10);
    if (node->n_shutters == n_taken) /* never begun */
        return 0;
    CHECK(node->n_shutters == n_taken + 1);
    const mc_shutter *shutter = &node->shutters[n_taken];
    CHECK(shutter->epoch == node->common.t0 && shutter->i_common == i);
    CHECK(shutter->t0 >= node->common.t0 + 1000000 + BOUND_NS && shutter->t1 + BOUND_NS < node->common.t1);
    CHECK(node->shutters[n_taken].verdict == all_verdict);
    return node->common.verdict == MC_VERDICT_VALID;
}

/* Whoever writes a booking into the job's slot makes no shutter of it. */
static void forge(const mc_agent *coordinator)
{
    mc_board *board;
    uint64_t n_taken = coordinator->node->n_shutters, t0 = mc_now_ns() + LATER_NS;
    CHECK(mc_board_open(&board) == MC_OK);
    for (int i = 0; board && i < MC_N_SLOTS; i++)
        if (board->slots[i].owner >> 32 == (uint64_t)coordinator->node->agent_pid)
            mc_slot_book(&board->slots[i], &(mc_booking){t0, t0 + 1, 1});
    nap_ms(2500);
    CHECK(coordinator->node->n_shutters == n_taken);
    mc_board_unmap(board);
}

/* A job on several nodes: shutters when its coordinator says so, and only then. */
static void test_on_several_nodes(void)
{
    n_test_nodes = 2;
    test_job a = start_job("a", 1), c = start_job("c", 1);
    n_test_nodes = 1;
    test_job b = start_job("b", 1);
    mc_agent of_a = {.node = a.node}, of_c = {.node = c.node};
    mc_common_state(&of_a, MC_COMMON_ON);
    mc_common_state(&of_c, MC_COMMON_ON);
    mc_common_clock(&of_a, 5, BOUND_NS);
    WAIT_FOR(a.node->common.n_jobs == 3 && b.node->n_shutters > 0, 20);
    CHECK(a.node->common.n_jobs == 3);
    int n_valid = 0;
    for (uint64_t i = 1; i <= 6; i++)
        n_valid += take_common(&of_a, i, i % 2 ? MC_VERDICT_VALID : MC_VERDICT_ELSEWHERE);
    CHECK(n_valid > 0);
    forge(&of_a);
    uint64_t n_taken = a.node->n_shutters, n_own = b.node->n_shutters;
    fprintf(stderr, "%d valid here, %d pauses of b, %d of its rank\n", n_valid, (int)b.node->n_pauses,
            (int)b.segments[0]->counters.n_pauses);
    CHECK(b.node->n_pauses >= (uint64_t)n_valid);
    CHECK(!ask(&of_a, 7, 1000000));
    mc_common_decide(&of_a, 7, 0, 0);
    /* Two that meet: one of them at least gives way. */
    int n_free = ask(&of_a, 8, LATER_NS) + ask(&of_c, 1, LATER_NS);
    CHECK(n_free <= 1);
    mc_common_decide(&of_a, 8, 0, 0);
    mc_common_decide(&of_c, 1, 0, 0);
    CHECK_SOON(b.node->n_shutters > n_own + 2, 20);
    CHECK(a.node->n_shutters == n_taken && c.node->n_shutters == 0);
    for (test_job *job = &a; job; job = job == &a ? &b : job == &b ? &c : NULL) {
        end_job(job);
        print_job(job);
        forget_job(job);
    }
}

int main(void)
{
    alarm(TEST_LIMIT_S);
    test_on_several_nodes();
    return n_failed;
}
