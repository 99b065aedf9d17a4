/* Bubbles in shutters of a job that may use its own processors only: whom it asks to press, what it believes, and what it does
   when it is asked. Run in a folder of its own. */
#define _GNU_SOURCE
#include "../support/bubbling.h"
#include "../support/filters.h"

#include "agent/shutter/own_shutter.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* This job has all processors of the machine, and another one, which offers bubbles, has one that is not there. */
static mc_board_view view_with_corunner(mc_board *board, uint64_t n_bubbles)
{
    mc_board_view view = view_alone(board, 1);
    mc_slot *other = &board->slots[1];
    view.n_live = 2;
    view.live[1] = (mc_neighbour){.i_slot = 1, .owner = OTHER, .n_ranks = 1};
    view.slot->cpu_mask[15] = 0;
    memset(other->cpu_mask, 0, sizeof other->cpu_mask);
    other->cpu_mask[15] = 1;
    other->offer = (mc_press_offer){n_bubbles, 1};
    return view;
}

/* Until one is drawn. */
static int draw_one(mc_bubbling *bubbling, const mc_board_view *view)
{
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    int is_drawn = 0;
    while (bubbling && !is_drawn && mc_now_ns() < deadline) {
        is_drawn = mc_bubbling_draw(bubbling, view);
        wait_until(mc_now_ns() + MS);
    }
    CHECK(is_drawn);
    return is_drawn;
}

/* Whether the job in that slot is asked for n bubbles. */
static int asks(const mc_bubbling *bubbling, int i_slot, int n)
{
    mc_press_request request = mc_bubbling_request(bubbling);
    return mc_press_share(&request, i_slot) == n;
}

static void check_result(const mc_bubbling *bubbling, const mc_ack *ack, double level, double probe_slowdown)
{
    double found_level, found_slowdown;
    mc_bubbling_result(bubbling, ack, ack != NULL, &found_level, &found_slowdown);
    CHECK(found_level == level && found_slowdown >= probe_slowdown * 0.999 && found_slowdown <= probe_slowdown * 1.001);
}

/* What a co-runner says that it did is believed only where it can be. */
static void check_answers(const mc_bubbling *bubbling, double level)
{
    const mc_ack pressed = {.has_pressed = 1, .n_lines = 200000, .press_cpu_ns = 4 * MS};
    mc_ack ack = pressed;
    check_result(bubbling, &ack, level, level > 0.0 ? 0.0 : 2.0);
    check_result(bubbling, NULL, 0.0, 0.0);
    ack.has_pressed = 0;
    check_result(bubbling, &ack, 0.0, 0.0);
    ack.has_pressed = UINT64_MAX;
    check_result(bubbling, &ack, 0.0, 0.0);
    ack = pressed;
    ack.press_cpu_ns = UINT64_MAX;
    check_result(bubbling, &ack, 0.0, 0.0);
    ack.press_cpu_ns = 2 * MS;
    check_result(bubbling, &ack, 0.0, 0.0);
    ack = pressed;
    ack.n_lines = 0;
    check_result(bubbling, &ack, level, 0.0);
    ack.n_lines = 1;
    check_result(bubbling, &ack, level, 0.0);
}

static void test_confined_job_requests_a_corunner(mc_board *board)
{
    mc_board_view view = view_with_corunner(board, 1);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    int n_bubbles = 0, n_probes = 0;
    while ((!n_bubbles || !n_probes) && draw_one(bubbling, &view)) {
        mc_reservation shutter = reserve(mc_now_ns());
        shutter.request = mc_bubbling_request(bubbling);
        uint64_t thousandths = shutter.request.level_thousandths;
        CHECK(asks(bubbling, 1, 1) && shutter.request.n_bubbles == 1);
        CHECK(thousandths == 0 || thousandths == 3500 || thousandths == 8000);
        mc_bubbling_begin(bubbling, &shutter);
        CHECK(mc_bubbling_was_told(bubbling, shutter.t0) && why[0] == '\0');
        check_answers(bubbling, (double)thousandths / 1000);
        n_bubbles += thousandths > 0;
        n_probes += thousandths == 0;
    }
    mc_bubbling_close(bubbling);
}

static void test_corunner_without_offer_gets_no_request(mc_board *board)
{
    mc_board_view view = view_with_corunner(board, 0); /* it offers none */
    check_that_none_is_drawn(&view, "there are not as many processors");
    view = view_with_corunner(board, 1);
    memset(board->slots[1].cpu_mask, 0, sizeof board->slots[1].cpu_mask);
    board->slots[1].cpu_mask[0] = 1; /* which this job may use too */
    check_that_none_is_drawn(&view, "there are not as many processors");
    view = view_with_corunner(board, 1);
    setenv("MPICOLOC_BUBBLE_CORES", "0-900", 1); /* its processor is not among them */
    check_that_none_is_drawn(&view, "there are not as many processors");
    unsetenv("MPICOLOC_BUBBLE_CORES");
}

/* Neither of two co-runners can press a level of three bubbles alone. */
static void test_co_runners_press_together(mc_board *board)
{
    mc_board_view view = view_with_corunner(board, 2);
    board->slots[1].offer.n_all = 3;
    board->slots[2] = board->slots[1];
    board->slots[1].cpu_mask[15] = 3;
    board->slots[2].cpu_mask[15] = 12;
    view.live[view.n_live++] = (mc_neighbour){.i_slot = 2, .owner = OTHER + 1, .n_ranks = 1};
    calibrate_with(sysconf(_SC_NPROCESSORS_ONLN), 3, 2.0);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    mc_ack acks[] = {{.has_pressed = 1, .n_lines = 1, .press_cpu_ns = 4 * MS}, {0}};
    acks[1] = acks[0];
    for (double level = 0.0, slowdown; level == 0.0 && draw_one(bubbling, &view);) {
        mc_reservation shutter = reserve(mc_now_ns());
        shutter.request = mc_bubbling_request(bubbling);
        if (shutter.request.level_thousandths == 0) { /* one is enough for the probe */
            CHECK(shutter.request.n_bubbles == 1 && asks(bubbling, 1, 1) != asks(bubbling, 2, 1));
            continue;
        }
        CHECK(shutter.request.n_bubbles == 3);
        CHECK((asks(bubbling, 1, 1) && asks(bubbling, 2, 2)) || (asks(bubbling, 1, 2) && asks(bubbling, 2, 1)));
        mc_bubbling_begin(bubbling, &shutter);
        mc_bubbling_result(bubbling, acks, 2, &level, &slowdown);
        CHECK(level > 0.0);
        acks[1].has_pressed = 0;
        mc_bubbling_result(bubbling, acks, 2, &level, &slowdown);
        CHECK(level == 0.0);
        break;
    }
    board->slots[2].cpu_mask[15] = 10; /* a processor of the other one: they would be in each other's way */
    CHECK(!mc_bubbling_take(bubbling, &view, 8001));
    board->slots[2].offer.n = 3; /* it can alone */
    board->slots[2].cpu_mask[15] = 14;
    mc_press_request request = {0};
    while (request.level_thousandths == 0 && draw_one(bubbling, &view))
        request = mc_bubbling_request(bubbling);
    CHECK(mc_press_share(&request, 2) == 3 && request.n_bubbles == 3);
    board->slots[1].offer.n_all = board->slots[2].offer.n_all = 4; /* of another calibration */
    CHECK(!mc_bubbling_take(bubbling, &view, 8001) && !mc_bubbling_take(bubbling, &view, 1));
    mc_bubbling_close(bubbling);
    calibrate(sysconf(_SC_NPROCESSORS_ONLN), 2.0);
}

/* A level counts only if all have acknowledged who were asked, and are still there. */
static void test_level_counts_if_all_asked_acknowledge(mc_board *board)
{
    mc_board_view view = view_with_corunner(board, 1);
    mc_own_shutter own = {.n_others = 3, .reservation = {.epoch = 5}};
    mc_ack acks[MC_N_SLOTS];
    for (int i = 1; i <= 3; i++) {
        own.others[i - 1] = (mc_neighbour){.i_slot = i, .owner = (uint64_t)(OTHER + i), .n_ranks = 1};
        board->slots[i].owner = (uint64_t)(OTHER + i);
    }
    CHECK(mc_own_shutter_acks(&own, &view, acks) == 0); /* nobody was asked */
    mc_press_ask(&own.reservation.request, 1, 1);
    mc_press_ask(&own.reservation.request, 3, 2);
    mc_slot_acknowledge(&board->slots[1], &(mc_ack){.epoch = 5, .n_lines = 1});
    mc_slot_acknowledge(&board->slots[2], &(mc_ack){.epoch = 5, .n_lines = 2}); /* it was not asked */
    CHECK(mc_own_shutter_acks(&own, &view, acks) == 0);
    mc_slot_acknowledge(&board->slots[3], &(mc_ack){.epoch = 4});
    CHECK(mc_own_shutter_acks(&own, &view, acks) == 0);
    mc_slot_acknowledge(&board->slots[3], &(mc_ack){.epoch = 5, .n_lines = 3});
    CHECK(mc_own_shutter_acks(&own, &view, acks) == 2 && acks[0].n_lines == 1 && acks[1].n_lines == 3);
    board->slots[3].owner++; /* another job now */
    CHECK(mc_own_shutter_acks(&own, &view, acks) == 0);
    memset(&board->slots[1], 0, 3 * sizeof board->slots[1]);
}

/* In a thread of its own the kernel refuses to put threads on processors, as it does in a cpuset. */
static void *be_confined(void *board)
{
    mc_board_view view = view_alone(board, 0);
    filter_affinity(SECCOMP_RET_ERRNO | EINVAL);
    check_that_none_is_drawn(&view, "start those jobs with --bubble as well");
    view = view_with_corunner(board, 1);
    memset(view.slot->cpu_mask, 0, sizeof view.slot->cpu_mask);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    CHECK(draw_one(bubbling, &view) && asks(bubbling, 1, 1));
    mc_bubbling_close(bubbling);
    return NULL;
}

static void test_a_confined_job(mc_board *board)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, be_confined, board) == 0 && pthread_join(thread, NULL) == 0);
}

/* A job of one rank, which may use the machine's first 64 processors or none. */
static mc_job_ranks ranks_on(uint64_t mask)
{
    mc_job_ranks ranks = {.rows = calloc(1, sizeof *ranks.rows), .n = 1, .n_alive = 1};
    ranks.rows[0] = (mc_rank){.segment = calloc(1, sizeof(mc_segment)), .alive = 1};
    ranks.rows[0].segment->cpu_mask[0] = mask;
    return ranks;
}

static void forget_ranks(mc_job_ranks *ranks)
{
    free(ranks->rows[0].segment);
    free(ranks->rows);
}

/* What is asked of this job in the shutter of the other one, whose answer is wanted. */
static int serve_once(mc_bubbling *bubbling, const mc_board_view *view, const mc_job_ranks *ranks,
                      mc_press_request request, mc_ack *ack)
{
    mc_reservation shutter = reserve(mc_now_ns());
    int never = 0;
    shutter.request = request;
    *ack = (mc_ack){.epoch = shutter.epoch};
    if (!mc_bubbling_serve(bubbling, &shutter, view, 1, ranks))
        return 0;
    wait_until(shutter.t1 - MS);
    mc_bubbling_await(bubbling, &shutter, &never);
    mc_bubbling_answer(bubbling, &shutter, ack, &never);
    CHECK(ack->epoch == shutter.epoch && ack->has_pressed <= 1 && (ack->has_pressed || !ack->n_lines));
    return 1;
}

static void wait_for_offer(mc_bubbling *bubbling, const mc_job_ranks *ranks)
{
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    while (!mc_bubbling_offer(bubbling, ranks).n && mc_now_ns() < deadline)
        wait_until(mc_now_ns() + MS);
}

static void check_served(mc_bubbling *bubbling, const mc_board_view *view, const mc_job_ranks *ranks,
                         uint64_t thousandths)
{
    mc_ack ack = {0};
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    while (!ack.has_pressed && mc_now_ns() < deadline)
        if (!serve_once(bubbling, view, ranks, request_of(0, thousandths), &ack))
            wait_until(mc_now_ns() + MS); /* a thread that was preempted with the lock needs a processor to let it go */
    CHECK_OR_BUSY(ack.has_pressed);
    CHECK(!ack.has_pressed || (ack.n_lines > 0 && ack.press_cpu_ns > 3 * MS && ack.press_cpu_ns < 6 * MS));
}

static void test_it_presses_for_a_co_runner(mc_board *board)
{
    mc_board_view view = view_with_corunner(board, 0);
    mc_job_ranks ranks = ranks_on(UINT64_MAX), none = ranks_on(0);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    mc_ack ack;
    CHECK(mc_bubbling_offer(NULL, &ranks).n == 0 && !mc_bubbling_serve(NULL, &(mc_reservation){0}, &view, 1, &ranks));
    wait_for_offer(bubbling, &ranks);
    CHECK(mc_bubbling_offer(bubbling, &ranks).n == 1 && mc_bubbling_offer(bubbling, &none).n == 0);
    check_served(bubbling, &view, &ranks, 8000);
    check_served(bubbling, &view, &ranks, 500);
    check_served(bubbling, &view, &ranks, 0);
    CHECK(!serve_once(bubbling, &view, &ranks, (mc_press_request){.level_thousandths = 8000},
                      &ack));                                               /* nobody is asked */
    CHECK(!serve_once(bubbling, &view, &ranks, request_of(1, 8000), &ack)); /* another one */
    CHECK(!serve_once(bubbling, &view, &ranks, request_of(0, 8001), &ack));
    CHECK(!serve_once(bubbling, &view, &ranks, request_of(0, UINT64_MAX), &ack));
    CHECK(!serve_once(bubbling, &view, &none, request_of(0, 8000), &ack));
    mc_press_request other_levels = request_of(0, 8000);
    other_levels.n_bubbles = 2;
    CHECK(!serve_once(bubbling, &view, &ranks, other_levels, &ack));
    board->slots[1].cpu_mask[0] = UINT64_MAX; /* the other job may use all of this one's processors */
    CHECK(!serve_once(bubbling, &view, &ranks, request_of(0, 0), &ack));
    mc_bubbling_close(bubbling);
    forget_ranks(&ranks);
    forget_ranks(&none);
}

int main(void)
{
    mc_board *board = calloc(1, sizeof *board);
    if (!board)
        return 1;
    calibrate(sysconf(_SC_NPROCESSORS_ONLN), 2.0);
    setenv("MPICOLOC_BUBBLE_LEVELS", "3.5,8", 1);
    test_confined_job_requests_a_corunner(board);
    test_co_runners_press_together(board);
    test_level_counts_if_all_asked_acknowledge(board);
    test_corunner_without_offer_gets_no_request(board);
    test_a_confined_job(board);
    test_it_presses_for_a_co_runner(board);
    unlink(CALIBRATION);
    free(board);
    return exit_code();
}
