/* Bubbles in shutters: when there are none, when they press, for whom, and that they end. Run in a folder of its own. */
#include "../support/calibration.h"
#include "../support/check.h"
#include "../support/filters.h"

#include "agent/bubbling.h"
#include "common/proc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_WANTED = 5, OWNER = 7, OTHER = 9 };

static const uint64_t MS = 1000000u, SECOND_NS = 1000000000u;
/* Bubbles take only what nobody else wants of a processor: on a busy machine that is little. */
static const uint64_t PATIENCE_NS = 60000000000u;
static char why[MC_TEXT_LEN];

static mc_probe_curve curve;

/* A board with this job alone, on all processors or on none. */
static mc_board_view alone(mc_board *board, uint64_t mask)
{
    mc_board_view view = {.board = board, .slot = &board->slots[0], .owner = OWNER, .n_live = 1};
    view.live[0] = (mc_neighbour){.i_slot = 0, .owner = OWNER, .n_ranks = 1};
    memset(board->slots[0].cpu_mask, mask ? 0xff : 0, sizeof board->slots[0].cpu_mask);
    return view;
}

static void test_none_without_option_or_calibration(void)
{
    unsetenv("MPICOLOC_BUBBLE");
    CHECK(mc_bubbling_open(why, &curve) == NULL && why[0] == '\0');
    setenv("MPICOLOC_BUBBLE", "0.5", 1);
    setenv("MPICOLOC_BUBBLE_CALIBRATION", "nowhere.txt", 1);
    CHECK(mc_bubbling_open(why, &curve) == NULL && strstr(why, "run `mpicoloc bubble calibrate`: no nowhere.txt"));
    calibrate(sysconf(_SC_NPROCESSORS_ONLN) + 1, 2.0);
    CHECK(mc_bubbling_open(why, &curve) == NULL && strstr(why, "is of another machine: calibration.txt"));
    CHECK(curve.slowdown[8] == 0.0);
}

/* A bubble must have begun after three quarters of a millisecond, and 4.3 ms count. */
static mc_reservation reserve(uint64_t t0)
{
    return (mc_reservation){.epoch = t0, .t0 = t0, .t1 = t0 + 6 * MS};
}

static void wait_until(uint64_t t)
{
    int never = 0;
    mc_sleep_until(t, &never);
}

/* Tell a bubble or the probe to run in a shutter, and wait until it has. */
static int press_once(mc_bubbling *bubbling, const mc_board_view *view, double *level, double *probe_slowdown)
{
    mc_reservation shutter = reserve(mc_now_ns() + MS);
    if (!mc_bubbling_draw(bubbling, view))
        return wait_until(shutter.t1), 0;
    CHECK(mc_bubbling_wish(bubbling).owner == 0);
    mc_bubbling_begin(bubbling, &shutter);
    CHECK(mc_bubbling_was_told(bubbling, shutter.t0) && !mc_bubbling_was_told(bubbling, shutter.t0 + 1));
    wait_until(shutter.t1 + MS);
    mc_bubbling_result(bubbling, NULL, level, probe_slowdown);
    return *level > 0.0 || *probe_slowdown > 0.0;
}

/* The first ones come when the memory is there. */
static void test_bubbles_and_the_probe_run_within_their_time(mc_board *board)
{
    mc_board_view view = alone(board, 0);
    setenv("MPICOLOC_BUBBLE_LEVELS", "3.5,8", 1);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    int n_bubbles = 0, n_probes = 0;
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    CHECK(curve.slowdown[0] == 1.0 && curve.slowdown[8] == 2.0 && curve.low[8] == 0.9 && curve.high[8] == 2.0);
    while (bubbling && mc_now_ns() < deadline && (n_bubbles < N_WANTED || n_probes < N_WANTED)) {
        double level = 0.0, probe_slowdown = 0.0;
        if (!press_once(bubbling, &view, &level, &probe_slowdown))
            continue;
        CHECK((level > 0.0) != (probe_slowdown > 0.0));
        CHECK(level == 0.0 || level == 3.5 || level == 8.0);
        n_bubbles += level > 0.0;
        n_probes += probe_slowdown > 0.0;
    }
    CHECK(n_bubbles >= N_WANTED && n_probes >= N_WANTED && why[0] == '\0');
    mc_bubbling_close(bubbling);
}

/* Its shutter began long ago. */
static void test_a_bubble_that_begins_late_does_not_count(mc_board *board)
{
    mc_board_view view = alone(board, 0);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    int is_told = 0;
    while (bubbling && !is_told && mc_now_ns() < deadline) {
        double level, probe_slowdown;
        uint64_t now = mc_now_ns();
        mc_reservation shutter = {.epoch = now - 20 * MS, .t0 = now - 20 * MS, .t1 = now + 20 * MS};
        wait_until(now + MS);
        is_told = mc_bubbling_draw(bubbling, &view);
        if (!is_told)
            continue;
        mc_bubbling_begin(bubbling, &shutter);
        wait_until(shutter.t1 + 20 * MS);
        mc_bubbling_result(bubbling, NULL, &level, &probe_slowdown);
        CHECK(level == 0.0 && probe_slowdown == 0.0);
    }
    CHECK(is_told);
    mc_bubbling_close(bubbling);
}

/* Until it has its memory none is drawn anyway, so it is asked for a while. */
static void check_that_none_is_drawn(const mc_board_view *view, const char *reason)
{
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    CHECK(bubbling && mc_bubbling_frac(bubbling) == 0.9 && strstr(why, "no shutter had counts yet"));
    while (bubbling && strstr(why, "no shutter had counts yet") && mc_now_ns() < deadline) {
        CHECK(!mc_bubbling_draw(bubbling, view));
        wait_until(mc_now_ns() + MS);
    }
    CHECK(strstr(why, reason));
    mc_bubbling_close(bubbling);
}

static void test_none_where_no_processor_is_left(mc_board *board)
{
    mc_board_view view = alone(board, 1);
    check_that_none_is_drawn(&view, "there are not as many processors");
    view = alone(board, 0);
    setenv("MPICOLOC_BUBBLE_CORES", "1000-1001", 1); /* none of this machine */
    check_that_none_is_drawn(&view, "there are not as many processors");
    setenv("MPICOLOC_BUBBLE_CORES", "5000", 1); /* none at all: not the same as no list */
    check_that_none_is_drawn(&view, "there are not as many processors");
    unsetenv("MPICOLOC_BUBBLE_CORES");
    CHECK(mc_bubbling_frac(NULL) == 0.0 && !mc_bubbling_draw(NULL, &view));
}

static void test_a_bubble_stops_on_close(mc_board *board)
{
    mc_board_view view = alone(board, 0);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    int is_told = 0;
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    while (bubbling && !is_told && mc_now_ns() < deadline) {
        uint64_t now = mc_now_ns();
        is_told = mc_bubbling_draw(bubbling, &view);
        if (is_told)
            mc_bubbling_begin(bubbling, &(mc_reservation){.epoch = now, .t0 = now, .t1 = now + 3600 * SECOND_NS});
        wait_until(mc_now_ns() + 5 * MS);
    }
    CHECK(is_told);
    uint64_t began = mc_now_ns();
    mc_bubbling_close(bubbling);
    CHECK(mc_now_ns() - began < 30 * SECOND_NS);
}

/* ---- a co-runner presses ---- */

/* This job has all processors of the machine, and another one, which offers bubbles, has one that is not there. */
static mc_board_view beside(mc_board *board, uint64_t n_bubbles)
{
    mc_board_view view = alone(board, 1);
    mc_slot *other = &board->slots[1];
    view.n_live = 2;
    view.live[1] = (mc_neighbour){.i_slot = 1, .owner = OTHER, .n_ranks = 1};
    view.slot->cpu_mask[15] = 0;
    memset(other->cpu_mask, 0, sizeof other->cpu_mask);
    other->cpu_mask[15] = 1;
    other->n_bubbles = n_bubbles;
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

static void check_result(const mc_bubbling *bubbling, const mc_ack *ack, double level, double probe_slowdown)
{
    double found_level, found_slowdown;
    mc_bubbling_result(bubbling, ack, &found_level, &found_slowdown);
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
    mc_board_view view = beside(board, 1);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    int n_bubbles = 0, n_probes = 0;
    while ((!n_bubbles || !n_probes) && draw_one(bubbling, &view)) {
        mc_reservation shutter = reserve(mc_now_ns());
        shutter.wish = mc_bubbling_wish(bubbling);
        uint64_t thousandths = shutter.wish.level_thousandths;
        CHECK(shutter.wish.owner == OTHER && (thousandths == 0 || thousandths == 3500 || thousandths == 8000));
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
    mc_board_view view = beside(board, 0); /* it offers none */
    check_that_none_is_drawn(&view, "there are not as many processors");
    view = beside(board, 1);
    memset(board->slots[1].cpu_mask, 0, sizeof board->slots[1].cpu_mask);
    board->slots[1].cpu_mask[0] = 1; /* which this job may use too */
    check_that_none_is_drawn(&view, "there are not as many processors");
    view = beside(board, 1);
    setenv("MPICOLOC_BUBBLE_CORES", "0-900", 1); /* its processor is not among them */
    check_that_none_is_drawn(&view, "there are not as many processors");
    unsetenv("MPICOLOC_BUBBLE_CORES");
}

/* In a thread of its own the kernel refuses to put threads on processors, as it does in a cpuset. */
static void *be_confined(void *board)
{
    mc_board_view view = alone(board, 0);
    filter_affinity(SECCOMP_RET_ERRNO | EINVAL);
    check_that_none_is_drawn(&view, "run one with --bubble as well");
    view = beside(board, 1);
    memset(view.slot->cpu_mask, 0, sizeof view.slot->cpu_mask);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    CHECK(draw_one(bubbling, &view) && mc_bubbling_wish(bubbling).owner == OTHER);
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
static int serve_once(mc_bubbling *bubbling, const mc_board_view *view, const mc_job_ranks *ranks, mc_wish wish,
                      mc_ack *ack)
{
    mc_reservation shutter = reserve(mc_now_ns());
    int never = 0;
    shutter.wish = wish;
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
    while (!mc_bubbling_offer(bubbling, ranks) && mc_now_ns() < deadline)
        wait_until(mc_now_ns() + MS);
}

static void check_served(mc_bubbling *bubbling, const mc_board_view *view, const mc_job_ranks *ranks,
                         uint64_t thousandths)
{
    mc_ack ack = {0};
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    while (!ack.has_pressed && mc_now_ns() < deadline)
        if (!serve_once(bubbling, view, ranks, (mc_wish){OWNER, thousandths}, &ack))
            wait_until(mc_now_ns() + MS); /* a thread that was preempted with the lock needs a processor to let it go */
    CHECK(ack.has_pressed && ack.n_lines > 0 && ack.press_cpu_ns > 3 * MS && ack.press_cpu_ns < 6 * MS);
}

static void test_it_presses_for_a_co_runner(mc_board *board)
{
    mc_board_view view = beside(board, 0);
    mc_job_ranks ranks = ranks_on(UINT64_MAX), none = ranks_on(0);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    mc_ack ack;
    CHECK(mc_bubbling_offer(NULL, &ranks) == 0 && !mc_bubbling_serve(NULL, &(mc_reservation){0}, &view, 1, &ranks));
    wait_for_offer(bubbling, &ranks);
    CHECK(mc_bubbling_offer(bubbling, &ranks) == 1 && mc_bubbling_offer(bubbling, &none) == 0);
    check_served(bubbling, &view, &ranks, 8000);
    check_served(bubbling, &view, &ranks, 500);
    check_served(bubbling, &view, &ranks, 0);
    CHECK(!serve_once(bubbling, &view, &ranks, (mc_wish){0, 8000}, &ack));     /* nobody is asked */
    CHECK(!serve_once(bubbling, &view, &ranks, (mc_wish){OTHER, 8000}, &ack)); /* another one */
    CHECK(!serve_once(bubbling, &view, &ranks, (mc_wish){OWNER, 8001}, &ack));
    CHECK(!serve_once(bubbling, &view, &ranks, (mc_wish){OWNER, UINT64_MAX}, &ack));
    CHECK(!serve_once(bubbling, &view, &none, (mc_wish){OWNER, 8000}, &ack));
    board->slots[1].cpu_mask[0] = UINT64_MAX; /* the other job may use all of this one's processors */
    CHECK(!serve_once(bubbling, &view, &ranks, (mc_wish){OWNER, 0}, &ack));
    mc_bubbling_close(bubbling);
    forget_ranks(&ranks);
    forget_ranks(&none);
}

int main(void)
{
    mc_board *board = calloc(1, sizeof *board);
    if (!board)
        return 1;
    test_none_without_option_or_calibration();
    calibrate(sysconf(_SC_NPROCESSORS_ONLN), 2.0);
    test_bubbles_and_the_probe_run_within_their_time(board);
    test_a_bubble_that_begins_late_does_not_count(board);
    test_none_where_no_processor_is_left(board);
    test_a_bubble_stops_on_close(board);
    test_confined_job_requests_a_corunner(board);
    test_corunner_without_offer_gets_no_request(board);
    test_a_confined_job(board);
    test_it_presses_for_a_co_runner(board);
    unlink(CALIBRATION);
    free(board);
    return n_failed;
}
