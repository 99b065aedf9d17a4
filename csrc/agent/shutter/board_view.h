/* The node's board as this job sees it: the jobs on it, and this job's own slot. */
#ifndef MPICOLOC_BOARD_VIEW_H
#define MPICOLOC_BOARD_VIEW_H

#include "agent/shutter/ranks.h"
#include "common/board/board.h"

typedef struct mc_board_view {
    mc_board *board; /* NULL: there is no board, so there are no shutters */
    mc_slot *slot;   /* this job's */
    uint64_t owner;
    int n_live, n_others; /* number of jobs on the board; number of jobs other than this one */
    double bubble_frac; /* fraction of its shutters in which this job wants bubbles, even without co-runners; 0: none */
    mc_neighbour live[MC_N_SLOTS];
    mc_booking booking; /* this job's own booking; any job could have changed the copy in the slot */
} mc_board_view;

/* Open the board and claim a slot. MC_OK, or the reason why there is no board. */
int mc_view_join(mc_board_view *view, const char *job_id);
void mc_view_leave(mc_board_view *view);
/* If the board was removed or replaced, move to the current board. */
int mc_view_follow(mc_board_view *view, const char *job_id);

/* Read which jobs are on the board; 1 if their number has changed. */
int mc_view_read(mc_board_view *view, uint64_t now);
/* Write to this job's slot a heartbeat, the job's ranks and processors, and the number of bubbles that it can run for
   others. */
void mc_view_publish(mc_board_view *view, const mc_job_ranks *ranks, mc_press_offer offer, uint64_t now);

void mc_view_book(mc_board_view *view, mc_booking booking);
/* The booked shutter of job i_live; 0: it has none. */
int mc_view_booking(const mc_board_view *view, int i_live, mc_booking *out);

static inline mc_slot *mc_view_slot(const mc_board_view *view, int i_live)
{
    return &view->board->slots[view->live[i_live].i_slot];
}

static inline int mc_view_is_own(const mc_board_view *view, int i_live)
{
    return mc_view_slot(view, i_live) == view->slot;
}

static inline int mc_view_own_slot(const mc_board_view *view)
{
    return (int)(view->slot - view->board->slots);
}

/* Whether this job has shutters now. */
static inline int mc_view_has_shutters(const mc_board_view *view)
{
    return view->n_others > 0 || view->bubble_frac > 0.0;
}

/* Least distance between a booked shutter and any other shutter. The windows that a job counts beside its own shutter
   are within this distance. */
static inline uint64_t mc_booking_gap_ns(uint64_t period_ns)
{
    return period_ns * 3 / 4;
}

#endif
