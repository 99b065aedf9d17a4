/* Bubbles in a job's shutters: when there are none, when they press, and that they end. Run in a folder of its own. */
#include "../support/check.h"

#include "agent/bubbling.h"
#include "common/proc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_WANTED = 5 };

static const uint64_t MS = 1000000u, SECOND_NS = 1000000000u;
/* Bubbles take only what nobody else wants of a processor: on a busy machine that is little. */
static const uint64_t PATIENCE_NS = 60000000000u;
static const char PATH[] = "calibration.txt";
static char why[MC_TEXT_LEN];

static mc_probe_curve curve;

static void calibrate(long n_cpus, double largest_slowdown)
{
    FILE *file = fopen(PATH, "w");
    CHECK(file != NULL);
    if (!file)
        return;
    fprintf(file, "mpicoloc bubble calibration 1\nmodel test\ncpus %ld 1\nprobe 65536 0.0\nprobe_alone 1e9\n", n_cpus);
    for (int i = 0; i <= 8; i++)
        fprintf(file, "level %d %d %d.0 %f 0.9 2.0\n", i, i * 65536, i * 1000000,
                1.0 + i * (largest_slowdown - 1.0) / 8);
    fclose(file);
    setenv("MPICOLOC_BUBBLE_CALIBRATION", PATH, 1);
    setenv("MPICOLOC_BUBBLE", "0.9", 1);
}

/* A board with this job alone, on all processors or on none. */
static mc_board_view alone(mc_board *board, uint64_t mask)
{
    mc_board_view view = {.board = board, .slot = &board->slots[0], .owner = 7, .n_live = 1};
    view.live[0] = (mc_neighbour){.i_slot = 0, .owner = 7, .n_ranks = 1};
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
    calibrate(sysconf(_SC_NPROCESSORS_ONLN), 1.02);
    CHECK(mc_bubbling_open(why, &curve) == NULL && strstr(why, "hardly slows the probe"));
    CHECK(curve.slowdown[8] == 0.0);
}

/* Tell a bubble or the probe to run for some milliseconds, and wait until it has. */
static int press_once(mc_bubbling *bubbling, const mc_board_view *view, double *level, double *probe_slowdown)
{
    uint64_t t0 = mc_now_ns() + MS, t1 = t0 + 4 * MS, t_late = t1 + 10 * SECOND_NS;
    int never = 0;
    if (!mc_bubbling_draw(bubbling, view))
        return mc_sleep_until(t1, &never), 0;
    mc_bubbling_begin(bubbling, (mc_bubble_times){t0, t0 + MS, t1});
    CHECK(mc_bubbling_was_told(bubbling, t0) && !mc_bubbling_was_told(bubbling, t0 + 1));
    mc_sleep_until(t1 + MS, &never);
    mc_bubbling_result(bubbling, t0 - 1, level, probe_slowdown); /* as if that were too late */
    CHECK(*level == 0.0 && *probe_slowdown == 0.0);
    for (int i = 0; i < 1000; i++) {
        mc_bubbling_result(bubbling, t_late, level, probe_slowdown);
        if (*level > 0.0 || *probe_slowdown > 0.0)
            return 1;
        mc_sleep_until(mc_now_ns() + MS, &never);
    }
    return 0;
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

/* Until it has its memory none is drawn anyway, so it is asked for a while. */
static void check_that_none_is_drawn(const mc_board_view *view)
{
    mc_bubbling *bubbling = mc_bubbling_open(why, &curve);
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    int never = 0;
    CHECK(bubbling && mc_bubbling_frac(bubbling) == 0.9 && strstr(why, "no shutter had counts yet"));
    while (bubbling && strstr(why, "no shutter had counts yet") && mc_now_ns() < deadline) {
        CHECK(!mc_bubbling_draw(bubbling, view));
        mc_sleep_until(mc_now_ns() + MS, &never);
    }
    CHECK(strstr(why, "there are not as many processors"));
    mc_bubbling_close(bubbling);
}

static void test_none_where_no_processor_is_left(mc_board *board)
{
    mc_board_view view = alone(board, 1);
    check_that_none_is_drawn(&view);
    view = alone(board, 0);
    setenv("MPICOLOC_BUBBLE_CORES", "1000-1001", 1); /* none of this machine */
    check_that_none_is_drawn(&view);
    setenv("MPICOLOC_BUBBLE_CORES", "5000", 1); /* none at all: not the same as no list */
    check_that_none_is_drawn(&view);
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
            mc_bubbling_begin(bubbling, (mc_bubble_times){now, now + MS, now + 3600 * SECOND_NS});
        int never = 0;
        mc_sleep_until(mc_now_ns() + 5 * MS, &never);
    }
    CHECK(is_told);
    uint64_t began = mc_now_ns();
    mc_bubbling_close(bubbling);
    CHECK(mc_now_ns() - began < 30 * SECOND_NS);
}

int main(void)
{
    mc_board *board = calloc(1, sizeof *board);
    if (!board)
        return 1;
    test_none_without_option_or_calibration();
    calibrate(sysconf(_SC_NPROCESSORS_ONLN), 2.0);
    test_bubbles_and_the_probe_run_within_their_time(board);
    test_none_where_no_processor_is_left(board);
    test_a_bubble_stops_on_close(board);
    unlink(PATH);
    free(board);
    return n_failed;
}
