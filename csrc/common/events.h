/* A rank's trace ring, hardware counts and resource usage. Part of the contract: only mpicoloc.h includes this file. */
#ifndef MPICOLOC_EVENTS_H
#define MPICOLOC_EVENTS_H

/* One event of the trace ring. In a full trace (mc_ring.is_kept), the upper bits of `call` and `i_site` hold the ring's
   lap, the role of `peer`, the lane, and whether the event is only a further message of the next call in this lane. */
typedef struct mc_event {
    uint64_t t_ns;
    uint64_t duration_ns;
    uint64_t bytes;
    int32_t peer;
    uint16_t call;
    uint16_t i_site;
} mc_event;

enum {
    MC_EVENT_LAP = 0x8000,
    MC_EVENT_SENT = 0x4000,     /* a message was sent to `peer` */
    MC_EVENT_RECEIVED = 0x2000, /* a message from `peer` was received */
    MC_EVENT_MESSAGE = 0x1000,
    MC_EVENT_ONE_SIDED = 0x0800, /* the peer makes no call to receive this message */
    MC_EVENT_CALL = 0x07ff,
    MC_EVENT_SITE = MC_N_SITES - 1,
    MC_EVENT_LANE_SHIFT = 11, /* in i_site */
};

/* Event number i of a rank is stored at index i % n_events_max. Fields that different processes write are on different
   cache lines. */
typedef struct mc_ring {
    uint64_t is_kept; /* 1: full trace; the agent writes every event to a file, and a full ring refuses new events */
    uint64_t error;   /* errno of the failure that ended writing; written by the agent */
    uint64_t _pad[6];
    uint64_t n_put;
    uint64_t _pad_put[7];
    uint64_t n_taken; /* number of events written to the file; stored by the agent */
    uint64_t _pad_taken[7];
} mc_ring;

/* A hardware event counted from the end of MPI_Init to MPI_Finalize, in user code of the thread that called MPI_Init
   and of all threads and processes that it has started since. If there are more events than hardware counters, they
   take turns: `value` was counted during running_ns of enabled_ns. */
typedef struct mc_pmu_row {
    char name[MC_NAME_LEN]; /* "": free row */
    uint64_t value;
    uint64_t enabled_ns; /* processor time of the counted threads */
    uint64_t running_ns;
} mc_pmu_row;

/* Resources that a process has used so far, including threads that have ended. */
typedef struct mc_usage {
    uint64_t is_known;
    uint64_t cpu_ns;
    uint64_t minor_faults, major_faults;
    uint64_t voluntary_switches, involuntary_switches;
    uint64_t n_migrating, migrations;   /* live threads whose migrations the kernel reports, and their migrations */
    uint64_t n_scheduled, run_delay_ns; /* live threads whose run delay the kernel reports, and their run delay */
} mc_usage;

#endif
