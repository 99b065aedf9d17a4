/* The node agent: the shutters of one job on one node. One thread uses an agent at a time. */
#ifndef MPICOLOC_AGENT_H
#define MPICOLOC_AGENT_H

#include "agent/bubbles/bubbling.h"
#include "agent/lengths.h"
#include "agent/meters/meter.h"
#include "agent/schedule.h"
#include "agent/shutter/own_shutter.h"
#include "agent/shutter/pause.h"
#include "trace/trace.h"

/* The agent's next duty, due at t_duty. */
enum { MC_DUTY_DECIDE, MC_DUTY_PAUSE, MC_DUTY_MEASURE };

struct mc_agent {
    char job_id[MC_NAME_LEN];
    int wake;    /* futex; a value other than 0 ends every sleep */
    int watches; /* 1: another process is the agent, and this process watches it */
    uint64_t t_open, t_refreshed;
    int was_shared;
    mc_node *node;
    mc_job_ranks ranks;
    mc_board_view view;
    mc_lengths lengths;
    mc_meter meter;
    mc_schedule schedule;
    uint64_t planned_ns; /* length of the next shutter of this job */
    mc_own_shutter own;
    mc_pause pause;
    mc_bubbling *bubbling; /* NULL: no bubbles */
    int is_bubbled;        /* 1: a bubble or the probe was drawn for the next shutter of this job */
    uint64_t n_alone;      /* number of shutters without co-runners */
    uint64_t n_partial;    /* number of shutters in which some co-runners kept running */
    int duty;
    uint64_t t_duty;
    mc_tracer *tracer; /* NULL: no full trace */
};

/* step.c: find the next instant, and the agent's next duty before that instant. */
void mc_agent_plan(mc_agent *agent, uint64_t now);
/* Judge this job's shutter when it is over. */
void mc_agent_judge(mc_agent *agent, uint64_t now);
/* open.c: continue the job without shutters, and record the reason in its profile. */
void mc_agent_lose_board(mc_agent *agent, int status);

#endif
