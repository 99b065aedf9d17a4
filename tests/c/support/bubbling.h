/* Make-believe views of the board for tests of bubbles in shutters. */
#ifndef MC_TEST_BUBBLING_H
#define MC_TEST_BUBBLING_H

#include "calibration.h"
#include "free_processors.h"

#include "agent/bubbles/bubbling.h"
#include "common/proc.h"

#include <string.h>
#include <unistd.h>

enum { OWNER = 7, OTHER = 9 };

static const uint64_t MS = 1000000u;
/* Bubbles take only what nobody else wants of a processor: on a busy machine that is little. */
static const uint64_t PATIENCE_NS = 40000000000u;
static int is_busy; /* something did not come in all that time */
static char why[MC_TEXT_LEN];

static mc_probe_curve curve;

enum { CANNOT = 77 };

/* What comes only where a thread of the lowest priority has a processor. */
#define CHECK_OR_BUSY(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so, perhaps for want of a processor: %s\n", __FILE__, __LINE__, #condition); \
            is_busy = 1; \
        } \
    } while (0)

static inline int exit_code(void)
{
    if (n_failed || !is_busy)
        return n_failed;
    int percent = free_percent();
    fprintf(stderr, "%d %% of the first processor are free\n", percent);
    return percent < 90 ? CANNOT : 1;
}

/* A board with this job alone, on all processors or on none. */
static inline mc_board_view view_alone(mc_board *board, uint64_t mask)
{
    mc_board_view view = {.board = board, .slot = &board->slots[0], .owner = OWNER, .n_live = 1};
    view.live[0] = (mc_neighbour){.i_slot = 0, .owner = OWNER, .n_ranks = 1};
    memset(board->slots[0].cpu_mask, mask ? 0xff : 0, sizeof board->slots[0].cpu_mask);
    return view;
}

/* A bubble must have begun after one millisecond, and 4.3 ms count. */
static inline mc_reservation reserve(uint64_t t0)
{
    return (mc_reservation){.epoch = t0, .t0 = t0, .t1 = t0 + 6 * MS};
}

static inline void wait_until(uint64_t t)
{
    int never = 0;
    mc_sleep_until(t, &never);
}

/* Until it has its memory none is drawn anyway, so it is asked for a while. */
static inline void check_that_none_is_drawn(const mc_board_view *view, const char *reason)
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

#endif
