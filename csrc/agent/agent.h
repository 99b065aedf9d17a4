/* The node agent's inside, shared by the files of this folder. One thread uses an agent at a time. */
#ifndef MPICOLOC_AGENT_H
#define MPICOLOC_AGENT_H

#include "agent/loop/search.h"
#include "common/board.h"
#include "common/counters/perf.h"
#include "common/proc.h"
#include "trace/trace.h"

#include <time.h>

enum {
    MC_PREFIX_LEN = MC_NAME_LEN + 16,
    MC_N_PROBES = 512,
    MC_APART_NS = 1500000 /* between the windows of the meters ipc and loop and the pauses */
};

/* One rank of the agent's own job. */
typedef struct mc_rank {
    mc_segment *segment;
    int world_rank, pid, alive;
    uint64_t start_ticks;
    clockid_t cpu_clock;
    uint64_t cpu_ns;   /* processor time when the pause had begun */
    int may_signal;    /* its handler was seen just before the shutter */
    int n_signalled;   /* threads told in this shutter */
    int n_untold;      /* threads left asleep, or that block the signal */
    int has_window;    /* it was told of the shutter that waits for its verdict */
    uint64_t i_window; /* under this number */
} mc_rank;

/* What the agent does next, at t_duty. */
enum { MC_DUTY_PREPARE, MC_DUTY_PAUSE, MC_DUTY_MEASURE };

/* A shutter of this job that waits for its verdict; n_shutters counts it already. */
typedef struct mc_turn {
    int open;
    uint64_t i_common; /* its number among those of all nodes; 0: of this node alone */
    int is_judged;     /* here; the other nodes' verdict is awaited */
    mc_reservation reservation;
    uint64_t guard_ns, t_window_end;
    int n_others;
    mc_neighbour others[MC_N_SLOTS];
    mc_shutter shutter;
} mc_turn;

/* The meter loop: what it does now, and which entry it counts. */
enum { MC_LOOP_WAITING, MC_LOOP_SAMPLING, MC_LOOP_TRYING, MC_LOOP_COUNTING };

typedef struct mc_loop {
    int stage;
    int is_forced;       /* by the option: also where bursts would do */
    uint64_t t_stage;    /* this stage began */
    uint64_t t_retry;    /* no search before */
    int n_searches;      /* in vain, one after another */
    int n_vain, n_found; /* turns one after another that counted nothing, or too much; entries found so far */
    mc_search *search;
    char path[MC_PATH_LEN]; /* what is counted */
    uint64_t offset;
    double gap_ns; /* time between two hits around a random instant */
    double line_cost;
    uint64_t hit_ns;
    mc_maps maps;
    uint64_t addresses[MC_N_NODE_RANKS]; /* of the entry in each rank; 0: not looked up */
    int n_probes;
    mc_probe probes[MC_N_PROBES];
    char no_ipc[MC_TEXT_LEN];
} mc_loop;

struct mc_agent {
    char key[MC_NAME_LEN], job_id[MC_NAME_LEN];
    int wake;    /* futex: not 0 ends every sleep */
    int watches; /* another process is the agent */

    uint64_t option_period_ns, option_duration_ns, max_ns;
    double duty_frac;
    int adapts;

    mc_board *board; /* NULL: no board, so no shutters */
    mc_slot *slot;
    uint64_t owner, t_open;
    mc_node *node;

    mc_rank *ranks;
    int n_ranks, n_alive, local_size;

    uint64_t period_ns, duration_ns; /* grid in force; shutter as target, as wished */
    uint64_t planned_ns;             /* the next one as target, which may be longer */
    double stretch;                  /* part of the longest that neighbours obey; 1 until they refuse */
    uint64_t n_turns;                /* own turns come, taken or not */
    uint64_t t_instant, i_instant;   /* the next T_q and its q */
    uint64_t booked_owner;           /* whose booked shutter that is; 0: an instant of the grid */
    mc_booking booking;              /* that shutter */
    mc_booking own;                  /* booked for this job; what stands in its slot, anybody may have written */
    uint64_t t_booked;               /* begin of the last one */
    int is_common;                   /* this job is on several nodes, whose coordinators agree */
    uint64_t t_duty;
    int duty;
    int n_live, n_others; /* jobs on the board, this one included; without it */
    int i_target;         /* in live: whose turn it is */
    mc_neighbour live[MC_N_SLOTS];
    mc_reservation obeyed; /* the shutter of another that comes next */
    mc_turn turn;
    mc_perf *perf; /* NULL: not the meter */
    mc_loop *loop; /* NULL: neither the meter nor to become it */

    mc_tracer *tracer; /* NULL: no trace of everything */

    uint64_t paused_ns; /* granted to others so far */
    uint64_t t_refreshed, t_checked, t_adapted;
    int was_shared;
};

/* ranks.c */
void mc_ranks_find(mc_agent *agent);
void mc_ranks_check(mc_agent *agent, uint64_t now); /* who is still alive */
void mc_ranks_close(mc_agent *agent);

/* pause.c: a shutter of another job */
void mc_pause_prepare(mc_agent *agent, uint64_t i_target);
void mc_pause_do(mc_agent *agent);
/* Signals every thread that runs (signal 0: none) and returns their number; *n_untold are the others. */
int mc_pause_each_running(const mc_rank *rank, int signal, int *n_untold);

/* schedule.c: which instant is next, and whose it is */
uint64_t mc_lead_ns(const mc_agent *agent); /* between waking and the instant, when the turn is this job's */
void mc_schedule(mc_agent *agent, uint64_t now);
void mc_schedule_turn(mc_agent *agent, uint64_t now);

/* multi_node.c: shutters of a job on several nodes */
void mc_common_step(mc_agent *agent, uint64_t now);
uint64_t mc_booking_gap_ns(uint64_t period_ns); /* no two shutters closer than this when one of them is booked */

/* own_shutter.c: a shutter of this job; i_common 0: on this node alone */
void mc_turn_begin(mc_agent *agent, uint64_t duration_ns, uint64_t i_common);
void mc_turn_measure(mc_agent *agent);
void mc_turn_verdict(mc_agent *agent, uint64_t now);
void mc_turn_close(mc_agent *agent, uint64_t verdict); /* of the other nodes; it was valid on this one or not */

/* 1: the meter counts in windows around the shutter too. */
int mc_turn_counts(const mc_agent *agent);
/* Length of such a window. */
uint64_t mc_turn_around_ns(const mc_agent *agent);

/* loop_meter.c: the meter loop */
void mc_loop_open(mc_agent *agent, int is_forced);
void mc_loop_step(mc_agent *agent, uint64_t now);
void mc_loop_measure(mc_agent *agent);
void mc_loop_close(mc_agent *agent);

/* adapt.c: how long the bursts between MPI calls are, that around now included; 1 if too long for any shutter */
int mc_bursts_too_long(const mc_agent *agent, uint64_t now, double *mean_ns);

/* adapt.c: duration and period that suit the job */
void mc_agent_adapt(mc_agent *agent, uint64_t now);
/* Whether this job takes the turn that has come, how long the next shutter as target is to be, and that one of the last
   length was refused. */
int mc_wants_turn(mc_agent *agent, uint64_t now);
void mc_stretch_less(mc_agent *agent);
uint64_t mc_planned_ns(const mc_agent *agent, uint64_t now);

static inline uint64_t mc_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What a shutter gives its co-runners to come to rest, before its sampling window begins. */
static inline uint64_t mc_guard_ns(uint64_t duration_ns)
{
    return mc_min(500000, duration_ns / 8);
}

/* And what it gives its own job: caches refill, and ranks that co-runners had set apart come back into step, which the
   first of them spends waiting. Only then does the job run as it would alone. */
static inline uint64_t mc_settle_ns(uint64_t duration_ns)
{
    return mc_min(10000000, duration_ns / 4);
}

/* And what the window ends earlier than the pauses, so that no co-runner is back before. */
static inline uint64_t mc_margin_ns(uint64_t duration_ns)
{
    return mc_min(200000, duration_ns / 16);
}

static inline uint64_t mc_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
