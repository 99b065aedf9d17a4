/* The trace ring of a rank, what its processor counted, and what it used.
   Part of the contract: only mpicoloc.h includes it. */
#ifndef MPICOLOC_EVENTS_H
#define MPICOLOC_EVENTS_H

/* One event of the trace ring. Where the agent writes all of them (mc_ring), the upper bits of call and i_site tell
   more: the lap of the ring, what `peer` is, that this is no call but one more message of the call that comes next in
   this lane, and the lane. */
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
    MC_EVENT_SENT = 0x4000,     /* peer was sent a message, */
    MC_EVENT_RECEIVED = 0x2000, /* or one came from it */
    MC_EVENT_MESSAGE = 0x1000,
    MC_EVENT_ONE_SIDED = 0x0800, /* the peer makes no call for this message */
    MC_EVENT_CALL = 0x07ff,
    MC_EVENT_SITE = MC_N_SITES - 1,
    MC_EVENT_LANE_SHIFT = 11, /* of i_site */
};

/* Event number i of a rank lies in place i % n_events_max. What different processes write lies on lines of its own. */
typedef struct mc_ring {
    uint64_t is_kept; /* 1: the agent writes every event to a file, and a full ring refuses new ones */
    uint64_t error;   /* errno that ended this; by the agent */
    uint64_t _pad[6];
    uint64_t n_put;
    uint64_t _pad_put[7];
    uint64_t n_taken; /* by the agent: these are in the file */
    uint64_t _pad_taken[7];
} mc_ring;

/* An event that was counted from the end of MPI_Init to MPI_Finalize, in user code: of the thread that called MPI_Init,
   and of all threads and processes that have come from it since. Where events are more than the processor has counters
   for, they have them by turns: `value` was counted in running_ns out of enabled_ns. */
typedef struct mc_pmu_row {
    char name[MC_NAME_LEN]; /* "": free row */
    uint64_t value;
    uint64_t enabled_ns; /* processor time of what was counted */
    uint64_t running_ns;
} mc_pmu_row;

/* What a process used up to an instant: all its threads, also those that have ended. */
typedef struct mc_usage {
    uint64_t is_known;
    uint64_t cpu_ns;
    uint64_t minor_faults, major_faults;
    uint64_t voluntary_switches, involuntary_switches;
    uint64_t n_migrating, migrations;   /* threads whose migrations the kernel tells, and theirs; these live */
    uint64_t n_scheduled, run_delay_ns; /* likewise: how long they were ready to run and had no processor */
} mc_usage;

#endif
