/* Bubbles in a job's shutters: when there are none, when they press, and that they end. Run in a folder of its own. */
#include "../support/check.h"

#include "agent/bubbling.h"
#include "common/proc.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_WANTED = 20 };

static const uint64_t MS = 1000000u, SECOND_NS = 1000000000u;
/* Bubbles take only what nobody else wants of a processor: on a busy machine that is little. */
static const uint64_t PATIENCE_NS = 60000000000u;
static const char PATH[] = "calibration.txt";
static char why[MC_TEXT_LEN];

static void calibrate(long n_cpus)
{
    FILE *file = fopen(PATH, "w");
    CHECK(file != NULL);
    if (!file)
        return;
    fprintf(file, "mpicoloc bubble calibration 1\nmodel test\ncpus %ld 1\n", n_cpus);
    for (int i = 0; i <= 8; i++)
        fprintf(file, "level %d %d %d.0 1.0 1.0 1.0\n", i, i * 65536, i * 1000000);
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
    CHECK(mc_bubbling_open(why) == NULL && why[0] == '\0');
    setenv("MPICOLOC_BUBBLE", "0.5", 1);
    setenv("MPICOLOC_BUBBLE_CALIBRATION", "nowhere.txt", 1);
    CHECK(mc_bubbling_open(why) == NULL && strstr(why, "run `mpicoloc bubble calibrate`: no nowhere.txt"));
    calibrate(sysconf(_SC_NPROCESSORS_ONLN) + 1);
    CHECK(mc_bubbling_open(why) == NULL && strstr(why, "the calibration is of another machine: calibration.txt"));
}

/* The first ones come when the memory is there. */
static void test_bubbles_press_within_their_time(mc_board *board)
{
    mc_board_view view = alone(board, 0);
    mc_bubbling *bubbling = mc_bubbling_open(why);
    int n_pressed = 0;
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    while (bubbling && mc_now_ns() < deadline && n_pressed < N_WANTED) {
        uint64_t t0 = mc_now_ns() + MS, t1 = t0 + 2 * MS;
        double level = mc_bubbling_begin(bubbling, &view, t0, t1);
        CHECK(level == 0.0 || level == 2.0 || level == 4.0 || level == 6.0 || level == 8.0);
        int never = 0;
        mc_sleep_until(t1, &never);
        for (int j = 0; level > 0.0 && j < 1000 && !mc_bubbling_has_pressed(bubbling, t1 + 10 * SECOND_NS); j++)
            mc_sleep_until(mc_now_ns() + 10 * MS, &never);
        n_pressed += level > 0.0 && mc_bubbling_has_pressed(bubbling, t1 + 10 * SECOND_NS);
        CHECK(level == 0.0 || !mc_bubbling_has_pressed(bubbling, t0 - 1));
    }
    CHECK(n_pressed == N_WANTED && why[0] == '\0');
    mc_bubbling_close(bubbling);
}

static void test_none_where_the_job_has_all_processors(mc_board *board)
{
    mc_board_view view = alone(board, 1);
    mc_bubbling *bubbling = mc_bubbling_open(why);
    for (int i = 0; bubbling && i < N_WANTED; i++)
        CHECK(mc_bubbling_begin(bubbling, &view, mc_now_ns(), mc_now_ns() + MS) == 0.0);
    CHECK(why[0] != '\0');
    mc_bubbling_close(bubbling);
}

static void test_a_bubble_stops_on_close(mc_board *board)
{
    mc_board_view view = alone(board, 0);
    mc_bubbling *bubbling = mc_bubbling_open(why);
    double level = 0.0;
    uint64_t deadline = mc_now_ns() + PATIENCE_NS;
    while (bubbling && level == 0.0 && mc_now_ns() < deadline) {
        level = mc_bubbling_begin(bubbling, &view, mc_now_ns(), mc_now_ns() + 3600 * SECOND_NS);
        int never = 0;
        mc_sleep_until(mc_now_ns() + 5 * MS, &never);
    }
    CHECK(level > 0.0);
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
    calibrate(sysconf(_SC_NPROCESSORS_ONLN));
    test_bubbles_press_within_their_time(board);
    test_none_where_the_job_has_all_processors(board);
    test_a_bubble_stops_on_close(board);
    unlink(PATH);
    free(board);
    return n_failed;
}
