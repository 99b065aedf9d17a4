/* What node agents write into shared memory: a job's node file, and the board on which the jobs of a node agree.
   Also the agent's functions. Part of the contract: only mpicoloc.h includes it. */
#ifndef MPICOLOC_NODE_H
#define MPICOLOC_NODE_H

/* One shutter in which this job was the target. */
typedef struct mc_shutter {
    uint64_t epoch, t0, t1, verdict, n_corunners;
    uint64_t i_common;            /* its number on all nodes of the job; 0: it is of this node alone */
    uint64_t moved_ns;            /* processor time that co-runners used inside it */
    mc_ipc before, during, after; /* meter ipc: counts of all threads */
    mc_ipc outside_before, outside_during, outside_after; /* the part outside MPI; all 0: not known */
    uint64_t before_ns, during_ns, after_ns;              /* length of the meter's windows; 0: not measured */
    double busy_frac;                                     /* processor time of the counted threads per elapsed time */
    /* meter count: where sampled threads were outside MPI, by window; all 0: not known */
    uint64_t n_samples[MC_N_COUNT_WINDOWS], n_near[MC_N_COUNT_WINDOWS];
    double waited_frac; /* of the shutter, for which a thread waited for a processor; below 0: not known */
    /* Bytes that MPI calls of one rank moved, from the end of the shutter before until the window before this one, and
       in that window. since_ns is without pauses; 0: not all of it was beside co-runners, or not known. */
    uint64_t since_ns, since_bytes, before_bytes;
    double bubble_level;   /* of the bubble that ran beside the job in the shutter; 0: none */
    double probe_slowdown; /* of the probe that ran instead, beside the job; 0: none */
    /* Co-runners that were there, and those of them that were spared: a bit for each row of mc_node.corunners. */
    uint64_t present, spared;
} mc_shutter;

/* How much bubbles of levels 0 to 8 slow the probe on this machine, with the ends of the interval; 0: not known. */
typedef struct mc_probe_curve {
    double slowdown[MC_N_PROBE_LEVELS], low[MC_N_PROBE_LEVELS], high[MC_N_PROBE_LEVELS];
} mc_probe_curve;

typedef struct mc_corunner {
    char job_id[MC_NAME_LEN];
    uint64_t owner, t_first, t_last;
} mc_corunner;

/* A shutter that a job on several nodes announces on the board in advance: it takes place at one instant on all of
   its nodes. t0 0: none. */
typedef struct mc_booking {
    uint64_t t0, t1;
    uint64_t is_firm; /* 1: all nodes are free then; 0: the booking only holds the place */
} mc_booking;

/* Coordinators of a job on several nodes agree over MPI. This is what they ask this node's agent, and what it
   answers. One shutter at a time; its number i is stored last. */
typedef struct mc_common {
    /* written by the coordinator */
    uint64_t state;                    /* MC_COMMON_... */
    uint64_t i_asked, t0, t1;          /* is the node free from t0 to t1, by its own clock? */
    uint64_t bubble;                   /* with i_asked: 1 + thousandths of the level of the bubble that shall run
                                          beside the job on all nodes; 1: the probe; 0: neither */
    uint64_t i_decided, is_firm;       /* the decision for shutter i_decided; 1: all nodes are free */
    uint64_t has_bubble;               /* with i_decided; 1: what was asked for can run on all nodes */
    uint64_t i_confirmed, all_verdict; /* the verdict of all nodes on it */
    uint64_t is_shared;                /* the job has co-runners on some node */
    int64_t clock_offset_ns;           /* this node's clock minus that of the first coordinator's node */
    uint64_t clock_bound_ns;           /* two nodes' clocks differ by at most this much after correction */
    uint64_t clock_worst_ns;           /* the largest bound so far */
    /* written by the agent */
    uint64_t i_answered, is_free, can_bubble;
    uint64_t i_judged, verdict;
    uint64_t drawn_bubble;     /* for the next shutter, as `bubble` above; the first node's counts */
    uint64_t is_bubble_wanted; /* 1: also beside co-runners; without any, shutters are for nothing else */
    uint64_t n_jobs;           /* jobs with ranks, this one included */
    uint64_t period_ns, duration_ns;
} mc_common;

/* One job on one node: file <shm dir>/mpicoloc.<key>.node, written by its agent. */
typedef struct mc_node {
    uint32_t magic, abi_version;
    uint64_t size_bytes;
    char key[MC_NAME_LEN];
    int32_t agent_pid, keeper_pid;
    int32_t coordinator_pid, _pad; /* 0: no coordinator has come yet */
    uint64_t meter;
    char meter_reason[MC_TEXT_LEN];  /* why it is not a better one */
    char bubble_reason[MC_TEXT_LEN]; /* why no bubble ran; empty: none was wanted, or some ran */
    char unseen_reason[MC_TEXT_LEN]; /* why there may have been jobs that are not on the board; empty: all were */
    mc_probe_curve probe_curve;
    uint64_t t_open, t_last;
    uint64_t profile;   /* MC_PROFILE_... */
    uint64_t shared_ns; /* time with at least one co-runner */
    uint64_t n_pauses, paused_ns;
    uint64_t n_refused;   /* shutters of others that were refused because of the duty limit */
    uint64_t n_uncounted; /* most threads at a time that the meter could not count: too many, or too many files */
    uint64_t shutter_duration_ns, shutter_period_ns; /* as adapted last */
    mc_common common;
    uint64_t n_corunners;
    mc_corunner corunners[MC_N_CORUNNERS];
    uint64_t n_shutters; /* shutters taken; the last MC_N_SHUTTERS are stored */
    mc_shutter shutters[MC_N_SHUTTERS];
    mc_counts counts;
} mc_node;

/* Bubbles that a job can press on its ranks' processors in shutters of others. */
typedef struct mc_press_offer {
    uint64_t n;     /* 0: none */
    uint64_t n_all; /* of a level, in its calibration: where that is another number, levels are others */
} mc_press_offer;

/* What a job asks of co-runners in its shutter: that they press on the processors of their ranks, which stand still. */
typedef struct mc_press_request {
    uint64_t level_thousandths;        /* of the bubble; 0: the probe is wanted */
    uint64_t n_bubbles;                /* of that level, by all who are asked; 0: nobody is asked */
    uint64_t shares[MC_N_SHARE_WORDS]; /* how many of them each presses: a byte for each slot */
} mc_press_request;

/* A shutter that a job takes next, from t0 to t1. */
typedef struct mc_reservation {
    uint64_t epoch, t0, t1;
    uint64_t spared; /* jobs that go on, a bit for each slot */
    mc_press_request request;
} mc_reservation;

/* A job's acknowledgement of another job's shutter. */
typedef struct mc_ack {
    uint64_t epoch, t_told; /* its threads had been signalled at t_told */
    uint64_t t_resume;      /* the first of them went on at this time */
    uint64_t moved_ns;      /* processor time that it used inside the shutter */
    /* 1: the bubble or the probe that was asked of it began in time and had its processors to itself; 0: also if
       nothing was asked */
    uint64_t has_pressed;
    uint64_t n_lines, press_cpu_ns; /* cache lines of one of them while that counted, and processor time for them */
} mc_ack;

/* One job on the board. The job's agent is the only writer of every field. It holds a lock on the slot's first byte
   (F_OFD_SETLK): without one the slot is free, whatever stands in it. Owner and heartbeat stand first in every version. */
typedef struct mc_slot {
    uint64_t owner;     /* pid << 32 | low half of the agent's start ticks, see mc_board_owner; 0: free */
    uint64_t heartbeat; /* 0: the rest is not filled in yet */
    uint64_t t_joined;
    uint64_t seq; /* odd while the reservation is being written */
    mc_reservation reservation;
    mc_press_offer offer;
    mc_booking booking;
    uint64_t books; /* 1: the job is on several nodes and books its shutters, so it takes no instant of the grid */
    mc_ack ack;
    uint32_t uid, n_ranks;
    uint64_t want_duration_ns, want_period_ns; /* of the shutters that this job wishes for itself */
    uint64_t want_per_turn;                    /* so many one after the other */
    char job_id[MC_NAME_LEN];
    uint64_t cpu_mask[MC_N_CPU_WORDS];
} mc_slot;

/* All jobs of a node with the same version: file <shm dir>/mpicoloc.abi<version>.board of the first of them. What stands before the
   padding is the same in every version, so that jobs of other versions can be counted. */
typedef struct mc_board {
    uint32_t magic, abi_version;
    uint64_t size_bytes;
    uint64_t mark; /* differs from the mark of a board that is made after somebody has removed this one */
    uint32_t slots_at_bytes, slot_bytes, n_slots, _pad32;
    uint64_t _pad[3];
    mc_slot slots[MC_N_SLOTS];
} mc_board;

/* The node agent of one job: POPPA's Algorithms 1-3 without a daemon. It opens the board and the node file, and
   finds the segments of the job's ranks by the key as they appear. */
typedef struct mc_agent mc_agent;
/* From now on this process survives when somebody shortens the board's file, which everybody may write, while it is
   mapped. For processes that may run an agent. */
void mc_board_outlive(void);
/* MC_E_GONE: another process is the agent. */
int mc_agent_open(mc_agent **out, const char *key, const char *job_id);
/* Watch the agent of another process (the keeper); wait for it at most wait_ns. Steps then only sleep and look for
   ranks. MC_E_GONE: there is no agent. */
int mc_agent_watch(mc_agent **out, const char *key, uint64_t wait_ns);
/* Sleep until the next duty (at most max_wait_ns) and do it. Returns MC_OK or a status; never blocks longer than
   max_wait_ns plus the longest shutter. */
int mc_agent_step(mc_agent *agent, uint64_t max_wait_ns);
/* Ranks of this job on this node: all that were ever seen, those alive, those in MPI_Finalize. */
void mc_agent_ranks(const mc_agent *agent, int *n_seen, int *n_alive, int *n_finalizing);
/* Shutters of a job on several nodes, for its coordinator. The agent's answers appear in the node file soon after. */
void mc_common_state(mc_agent *agent, uint64_t state);
void mc_common_clock(mc_agent *agent, int64_t offset_ns, uint64_t bound_ns);
void mc_common_share(mc_agent *agent, int is_shared);
void mc_common_ask(mc_agent *agent, uint64_t i, uint64_t t0, uint64_t t1, uint64_t bubble);
void mc_common_decide(mc_agent *agent, uint64_t i, int is_firm, int has_bubble);
void mc_common_confirm(mc_agent *agent, uint64_t i, uint64_t verdict);
void mc_common_read(mc_agent *agent, mc_common *out);
void mc_agent_close(mc_agent *agent);

#endif
