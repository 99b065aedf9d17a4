/* Data that node agents write into shared memory: a job's node file, and the board on which the jobs of a node
   coordinate. This file also declares the agent's functions. Part of the contract: only mpicoloc.h includes this
   file. */
#ifndef MPICOLOC_NODE_H
#define MPICOLOC_NODE_H

/* A shutter of which this job was the target. */
typedef struct mc_shutter {
    uint64_t epoch, t0, t1, verdict, n_corunners;
    uint64_t i_common;            /* number of a shutter common to all nodes of the job; 0: only on this node */
    uint64_t moved_ns;            /* processor time that co-runners used inside the shutter */
    mc_ipc before, during, after; /* meter ipc: hardware counts of all threads */
    mc_ipc outside_before, outside_during, outside_after; /* the part of these counts outside MPI; all 0: unknown */
    uint64_t before_ns, during_ns, after_ns;              /* length of the meter's windows; 0: not measured */
    double busy_frac;                                     /* processor time of counted threads / elapsed time */
    /* meter count, for each window: number of samples of threads outside MPI, and how many of these samples were near a
       counted place; all 0: unknown */
    uint64_t n_samples[MC_N_COUNT_WINDOWS], n_near[MC_N_COUNT_WINDOWS];
    double waited_frac; /* fraction of the shutter for which a thread waited for a processor; below 0: unknown */
    /* Mean time for which the ranks waited for a processor: since_waited_ns from the end of the previous shutter to the
       window before this shutter, and before_waited_ns in that window. since_ns is the time for since_waited_ns, without
       pauses; 0: unknown, or the job had no co-runners for a part of the time. */
    uint64_t since_ns, since_waited_ns, before_waited_ns;
    double bubble_level;   /* level of the bubble that ran beside the job in the shutter; 0: none */
    double probe_slowdown; /* slowdown of the probe that ran instead of a bubble; 0: none */
    /* Co-runners that were present, and co-runners that were spared: a bit for each row of mc_node.corunners. */
    uint64_t present, spared;
} mc_shutter;

/* Slowdown of the probe on this machine beside bubbles of levels 0 to 8, with the ends of its confidence interval; 0:
   unknown. */
typedef struct mc_probe_curve {
    double slowdown[MC_N_PROBE_LEVELS], low[MC_N_PROBE_LEVELS], high[MC_N_PROBE_LEVELS];
} mc_probe_curve;

typedef struct mc_corunner {
    char job_id[MC_NAME_LEN];
    uint64_t owner, t_first, t_last;
    uint64_t cpu_ns;      /* processor time that it has used on this job's processors since t_first */
    uint64_t slot_cpu_ns; /* cpu_ns of its slot at t_last */
} mc_corunner;

/* A shutter that a job on several nodes announces on the board in advance, because it takes place at the same instant
   on all of the job's nodes. t0 is 0 if there is none. */
typedef struct mc_booking {
    uint64_t t0, t1;
    uint64_t is_firm; /* 1: all nodes are free at that time; 0: tentative, while the coordinators still ask them */
} mc_booking;

/* Requests of this node's coordinator to its agent, and the agent's answers: the coordinators of a job on several nodes
   agree on shutters over MPI. They handle one shutter at a time. Its number i_... is stored after the other fields. */
typedef struct mc_common {
    /* written by the coordinator */
    uint64_t state;              /* MC_COMMON_... */
    uint64_t i_asked, t0, t1;    /* request i_asked: whether the node is free from t0 to t1, by the node's clock */
    uint64_t bubble;             /* with i_asked: 1 + thousandths of the level of the bubble to run beside
                                          the job on all nodes; 1: the probe; 0: neither */
    uint64_t i_decided, is_firm; /* the decision for shutter i_decided; 1: all nodes are free */
    uint64_t has_bubble;         /* with i_decided; 1: the proposed bubble or probe can run on all nodes */
    uint64_t i_confirmed, all_verdict; /* the joint verdict of all nodes on shutter i_confirmed */
    uint64_t is_shared;                /* the job has co-runners on some node */
    int64_t clock_offset_ns;           /* this node's clock minus that of the first coordinator's node */
    uint64_t clock_bound_ns;           /* after correction, the clocks of two nodes differ by at most this much */
    uint64_t clock_worst_ns;           /* the largest clock_bound_ns so far */
    /* written by the agent */
    uint64_t i_answered, is_free, can_bubble;
    uint64_t i_judged, verdict;
    uint64_t drawn_bubble;     /* proposal for the next shutter, coded like `bubble`; the first node's counts */
    uint64_t is_bubble_wanted; /* 1: bubbles are wanted even beside co-runners; without co-runners, shutters serve only
                                  for bubbles */
    uint64_t n_jobs;           /* number of jobs with ranks, including this job */
    uint64_t period_ns, duration_ns;
} mc_common;

/* One job on one node: file <shm dir>/mpicoloc.<key>.node, written by its agent. */
typedef struct mc_node {
    uint32_t magic, abi_version;
    uint64_t size_bytes;
    char key[MC_NAME_LEN];
    int32_t agent_pid, keeper_pid;
    int32_t coordinator_pid, _pad; /* 0: no coordinator yet */
    uint64_t meter;
    char meter_reason[MC_TEXT_LEN];  /* why no better meter is used */
    char bubble_reason[MC_TEXT_LEN]; /* why no bubble ran; empty: none was wanted, or some ran */
    char unseen_reason[MC_TEXT_LEN]; /* why jobs may have been missing from the board; empty: none was */
    mc_probe_curve probe_curve;
    uint64_t t_open, t_last;
    uint64_t profile;   /* MC_PROFILE_... */
    uint64_t shared_ns; /* time with at least one co-runner */
    uint64_t n_pauses, paused_ns;
    uint64_t n_refused;   /* number of shutters of other jobs refused because of the duty limit */
    uint64_t n_uncounted; /* largest number of threads left uncounted, because of the meter's limit or the file limit */
    uint64_t shutter_duration_ns, shutter_period_ns; /* present values, which the agent adapts */
    mc_common common;
    uint64_t n_corunners;
    mc_corunner corunners[MC_N_CORUNNERS];
    uint64_t n_shutters; /* number of shutters taken; the last MC_N_SHUTTERS are stored */
    mc_shutter shutters[MC_N_SHUTTERS];
    mc_counts counts;
} mc_node;

/* Bubbles that a job offers to run on its ranks' processors during shutters of other jobs. */
typedef struct mc_press_offer {
    uint64_t n;     /* 0: none */
    uint64_t n_all; /* bubbles per level in the job's calibration; levels with different n_all are not comparable */
} mc_press_offer;

/* A job's request that co-runners run bubbles in its shutter, on the processors of their paused ranks. */
typedef struct mc_press_request {
    uint64_t level_thousandths;        /* level of the bubble; 0: the probe is wanted */
    uint64_t n_bubbles;                /* number of all bubbles of that level; 0: there is no request */
    uint64_t shares[MC_N_SHARE_WORDS]; /* number of bubbles that each job runs: a byte for each slot */
} mc_press_request;

/* A job's next shutter, from t0 to t1. */
typedef struct mc_reservation {
    uint64_t epoch, t0, t1;
    uint64_t spared; /* jobs that are not paused in it: a bit for each slot */
    mc_press_request request;
} mc_reservation;

/* A job's acknowledgement of another job's shutter. */
typedef struct mc_ack {
    uint64_t epoch, t_told; /* t_told: when all threads had been signalled */
    uint64_t t_resume;      /* when the first thread resumed */
    uint64_t moved_ns;      /* processor time that the job used inside the shutter */
    /* 1: the requested bubbles or probe began in time and had their processors to themselves; 0: otherwise, or nothing
       was requested */
    uint64_t has_pressed;
    uint64_t n_lines, press_cpu_ns; /* cache lines that one bubble touched in the sampled time; processor time used */
} mc_ack;

/* One job on the board. Only the job's agent writes the fields. The agent holds a lock on the slot's first byte
   (F_OFD_SETLK). A slot without the lock is free, whatever it contains. Owner and heartbeat come first in every
   version. */
typedef struct mc_slot {
    uint64_t owner;     /* pid << 32 | low half of the agent's start ticks, see mc_board_owner; 0: free */
    uint64_t heartbeat; /* 0: the other fields are not filled in yet */
    uint64_t t_joined;
    uint64_t seq; /* odd while the reservation is being written */
    mc_reservation reservation;
    mc_press_offer offer;
    mc_booking booking;
    uint64_t books; /* 1: the job is on several nodes and books its shutters, so it does not use the grid's instants */
    mc_ack ack;
    uint32_t uid, n_ranks;
    uint64_t want_duration_ns, want_period_ns; /* length and period of the shutters that this job wants */
    uint64_t want_per_turn;                    /* number of shutters in a row that the job wants */
    char job_id[MC_NAME_LEN];
    uint64_t cpu_mask[MC_N_CPU_WORDS];
    uint64_t cpu_ns; /* processor time that the job's ranks have used */
} mc_slot;

/* All jobs of a node with the same version: file mpicoloc.abi<version>.board in the shared-memory folder of the first
   job. The fields before the padding are the same in every version, so that jobs of other versions can be counted. */
typedef struct mc_board {
    uint32_t magic, abi_version;
    uint64_t size_bytes;
    uint64_t mark; /* made from time and process ID, so that a new board's mark differs from a removed board's */
    uint32_t slots_at_bytes, slot_bytes, n_slots, _pad32;
    uint64_t _pad[3];
    mc_slot slots[MC_N_SLOTS];
} mc_board;

/* The node agent of one job, which executes POPPA's Algorithms 1-3 without a daemon. The agent opens the board and the
   node file. It finds the segments of the job's ranks by the key when they appear. */
typedef struct mc_agent mc_agent;
/* Let this process survive if the mapped board's file is truncated, which any user can do. Call it in processes that
   may run an agent. */
void mc_board_outlive(void);
/* Become the job's agent. Returns MC_E_GONE if another process is the agent. */
int mc_agent_open(mc_agent **out, const char *key, const char *job_id);
/* Watch the agent in another process (the keeper). Waits at most wait_ns for that agent to appear. The steps of a
   watching agent only sleep and look for ranks. Returns MC_E_GONE if there is no agent. */
int mc_agent_watch(mc_agent **out, const char *key, uint64_t wait_ns);
/* Sleep until the next duty (at most max_wait_ns) and do it. Returns MC_OK or another status. This function never
   blocks for longer than max_wait_ns plus the longest shutter. */
int mc_agent_step(mc_agent *agent, uint64_t max_wait_ns);
/* Numbers of this job's ranks on this node: ranks seen so far, ranks alive, ranks in MPI_Finalize. */
void mc_agent_ranks(const mc_agent *agent, int *n_seen, int *n_alive, int *n_finalizing);
/* These functions are for the coordinator of a job on several nodes. It sends requests about common shutters, and soon
   after, the agent's answers appear in the node file. */
void mc_common_state(mc_agent *agent, uint64_t state);
void mc_common_clock(mc_agent *agent, int64_t offset_ns, uint64_t bound_ns);
void mc_common_share(mc_agent *agent, int is_shared);
void mc_common_ask(mc_agent *agent, uint64_t i, uint64_t t0, uint64_t t1, uint64_t bubble);
void mc_common_decide(mc_agent *agent, uint64_t i, int is_firm, int has_bubble);
void mc_common_confirm(mc_agent *agent, uint64_t i, uint64_t verdict);
void mc_common_read(mc_agent *agent, mc_common *out);
void mc_agent_close(mc_agent *agent);

#endif
