/* The next instant, and the job that has its shutter then. All agents of a node read the same board and decide the
   same. */
#ifndef MPICOLOC_SCHEDULE_H
#define MPICOLOC_SCHEDULE_H

#include "agent/shutter/board_view.h"

enum { MC_TELL_NS = 1000000 }; /* a co-runner's agent wakes this long before the instant of a pause */

/* The job that takes the shutter at an instant: none, another job, or this one. */
enum { MC_TARGET_NOBODY, MC_TARGET_OTHER, MC_TARGET_OWN };

typedef struct mc_schedule {
    uint64_t t_instant, i_instant; /* the next instant and its number on the grid */
    uint64_t booked_owner;         /* owner of the booked shutter; 0: the instant is one of the grid */
    mc_booking booking;            /* the booked shutter */
    uint64_t t_booked;             /* instant of the last booked shutter that was decided */
    int i_target;                  /* job that takes the instant: index into the view's live jobs */
} mc_schedule;

/* Time from the agent's wake-up to an instant that its own job can take. around_ns: length of the windows that its
   meter counts beside the shutter; 0: none. */
uint64_t mc_schedule_lead_ns(uint64_t period_ns, uint64_t around_ns);
/* Time from the wake-up of a co-runner's agent to the instant. */
uint64_t mc_schedule_signal_ns(uint64_t period_ns);

/* The next instant that is at least lead_ns after now. */
void mc_schedule_next(mc_schedule *schedule, const mc_board_view *view, uint64_t period_ns, uint64_t lead_ns,
                      uint64_t now);
/* 1: it is time to decide which job takes the instant. */
int mc_schedule_is_time(const mc_schedule *schedule, uint64_t lead_ns, uint64_t now);
/* Decide which job takes the instant: MC_TARGET_*. */
int mc_schedule_decide(mc_schedule *schedule, const mc_board_view *view, uint64_t period_ns);

#endif
