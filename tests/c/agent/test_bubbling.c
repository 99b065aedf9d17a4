/* Bubbles in shutters: when there are none, when they press, and that they end. Run in a folder of its own. */
#define _GNU_SOURCE
#include "../support/bubbling.h"
#include "../support/check.h"
#include "../support/filters.h"

#include "agent/bubbles/bubbling.h"
#include "common/proc.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_WANTED = 5 };

static const uint64_t SECOND_NS = 1000000000u;

static void test_none_without_option_or_calibration(void)
{
    unsetenv("MPICOLOC_BUBBLE");
    CHECK(mc_bubbling_open(why, &curve) == NULL && why[0] == '\0');
    setenv("MPICOLOC_BUBBLE", "0.5", 1);
    setenv("MPICOLOC_BUBBLE_CALIBRATION", "nowhere.txt", 1);
    CHECK(mc_bubbling_open(why, &curve) == NULL && strstr(why, "run `mpicoloc bubble calibrate`): no nowhere.txt"));
    calibrate(sysconf(_SC_NPROCESSORS_ONLN) + 1, 2.0);
    CHECK(mc_bubbling_open(why, &curve) == NULL && strstr(why, "is of another machine: calibration.txt"));
    CHECK(curve.slowdown[8] == 0.0);
}

/* Tell a bubble or the probe to run in a shutter, and wait until it has. */
static int press_once(mc_bubbling *bubbling, const mc_board_view *view, double *level, double *probe_slowdown)
{
    mc_reservation shutter = reserve(mc_now_ns() + MS);
    if (!mc_bubbling_draw(bubbling, view))
        return wait_until(shutter.t1), 0;
    CHECK(mc_bubbling_request(bubbling).n_bubbles == 0);
    mc_bubbling_begin(bubbling, &shutter);
    CHECK(mc_bubbling_was_told(bubbling, shutter.t0) && !mc_bubbling_was_told(bubbling, shutter.t0 + 1));
    wait_until(shutter.t1 + MS);
    mc_bubbling_result(bubbling, NULL, 0, level, probe_slowdown);
    return *level > 0.0 || *probe_slowdown > 0.0;
}

/* The first ones come when the memory is there. */
static void test_bubbles_and_the_probe_run_within_their_time(mc_board *board)
{
    mc_board_view view = view_alone(board, 0);
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
    CHECK_OR_BUSY(n_bubbles >= N_WANTED && n_probes >= N_WANTED);
    CHECK(is_busy || why[0] == '\0');
    mc_bubbling_close(bubbling);
}

/* Its shutter began long ago. */
static void test_a_bubble_that_begins_late_does_not_count(mc_board *board)
{
    mc_board_view view = view_alone(board, 0);
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
        mc_bubbling_result(bubbling, NULL, 0, &level, &probe_slowdown);
        CHECK(level == 0.0 && probe_slowdown == 0.0);
    }
    CHECK(is_told);
    mc_bubbling_close(bubbling);
}

static void test_none_where_no_processor_is_left(mc_board *board)
{
    mc_board_view view = view_alone(board, 1);
    check_that_none_is_drawn(&view, "there are not as many processors");
    view = view_alone(board, 0);
    setenv("MPICOLOC_BUBBLE_CORES", "1000-1001", 1); /* none of this machine */
    check_that_none_is_drawn(&view, "there are not as many processors");
    setenv("MPICOLOC_BUBBLE_CORES", "5000", 1); /* none at all: not the same as no list */
    check_that_none_is_drawn(&view, "there are not as many processors");
    unsetenv("MPICOLOC_BUBBLE_CORES");
    CHECK(mc_bubbling_frac(NULL) == 0.0 && !mc_bubbling_draw(NULL, &view));
}

/* Begin a bubble or the probe once the memory is there. Returns the begin of its shutter; 0: the memory never was. */
static uint64_t begin_when_ready(mc_bubbling *bubbling, const mc_board_view *view, uint64_t from_now_ns,
                                 uint64_t duration_ns)
{
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    while (bubbling && mc_now_ns() < deadline) {
        uint64_t t0 = mc_now_ns() + from_now_ns;
        if (mc_bubbling_draw(bubbling, view)) {
            mc_bubbling_begin(bubbling, &(mc_reservation){.epoch = t0, .t0 = t0, .t1 = t0 + duration_ns});
            return t0;
        }
        wait_until(mc_now_ns() + 5 * MS);
    }
    return 0;
}

/* How often threads that press have gone to sleep, all together. */
static uint64_t sleeps_of_workers(void)
{
    int tids[64], n_skipped, n = mc_proc_threads(getpid(), tids, 64, &n_skipped);
    uint64_t found = 0;
    for (int i = 0; i < n; i++) {
        mc_proc_thread thread;
        if (sched_getscheduler(tids[i]) == SCHED_IDLE && mc_proc_read_thread(&thread, getpid(), tids[i], 0) == MC_OK)
            found += thread.n_sleeps;
    }
    return found;
}

/* Else they would wait for a co-runner's processor, and its agent for them. */
static void test_bubbles_sleep_until_their_shutter_has_begun(mc_board *board)
{
    mc_board_view view = view_alone(board, 0);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    uint64_t t0 = begin_when_ready(bubbling, &view, MS, MS);
    wait_until(t0 + 20 * MS);
    uint64_t before = sleeps_of_workers();
    t0 = begin_when_ready(bubbling, &view, 200 * MS, 6 * MS);
    CHECK(t0 && before > 0);
    wait_until(t0 - 100 * MS);
    CHECK_OR_BUSY(sleeps_of_workers() == before || mc_now_ns() >= t0);
    wait_until(t0 + 20 * MS);
    CHECK_OR_BUSY(sleeps_of_workers() > before);
    mc_bubbling_close(bubbling);
}

static void test_a_bubble_stops_on_close(mc_board *board, uint64_t from_now_ns)
{
    mc_board_view view = view_alone(board, 0);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    CHECK(begin_when_ready(bubbling, &view, from_now_ns, 3600 * SECOND_NS));
    wait_until(mc_now_ns() + 5 * MS);
    uint64_t began = mc_now_ns();
    mc_bubbling_close(bubbling);
    CHECK(mc_now_ns() - began < 30 * SECOND_NS);
}

/* What the coordinators of several nodes have drawn. */
static void test_what_was_drawn_for_all_nodes(mc_board *board)
{
    mc_board_view view = view_alone(board, 0);
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    uint64_t is_wanted, bubble = 0;
    int n_wanted = 0, n_probes = 0;
    CHECK(!mc_bubbling_draw_for_all(NULL, &is_wanted) && !mc_bubbling_take(NULL, &view, 2001));
    while (!(bubble = mc_bubbling_draw_for_all(bubbling, &is_wanted)) && mc_now_ns() < deadline)
        wait_until(mc_now_ns() + MS);
    CHECK_OR_BUSY(bubble > 0);
    for (int i = 0; bubble && i < 3000; i++) { /* each of two levels as often as the probe */
        bubble = mc_bubbling_draw_for_all(bubbling, &is_wanted);
        CHECK(bubble == 1 || bubble == 3501 || bubble == 8001);
        n_probes += bubble == 1;
        n_wanted += (int)is_wanted;
    }
    CHECK(is_busy || (n_probes > 850 && n_probes < 1150 && n_wanted > 2600 && n_wanted < 2800));
    CHECK(mc_bubbling_take(bubbling, &view, 2001) && mc_bubbling_take(bubbling, &view, 1));
    CHECK(!mc_bubbling_take(bubbling, &view, 0) && !mc_bubbling_take(bubbling, &view, 8002));
    CHECK(!mc_bubbling_take(bubbling, &view, UINT64_MAX));
    mc_reservation shutter = reserve(mc_now_ns());
    CHECK(mc_bubbling_take(bubbling, &view, 2001));
    mc_bubbling_begin(bubbling, &shutter);
    CHECK(mc_bubbling_was_told(bubbling, shutter.t0));
    wait_until(shutter.t1 + MS);
    view = view_alone(board, 1); /* the job may use all processors */
    CHECK(!mc_bubbling_take(bubbling, &view, 2001));
    mc_bubbling_close(bubbling);
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
    test_bubbles_sleep_until_their_shutter_has_begun(board);
    test_a_bubble_stops_on_close(board, 0);
    test_a_bubble_stops_on_close(board, 3600 * SECOND_NS);
    test_what_was_drawn_for_all_nodes(board);
    unlink(CALIBRATION);
    free(board);
    return exit_code();
}
