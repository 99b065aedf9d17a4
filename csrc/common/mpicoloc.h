/* The one contract between the C core and Python: layouts of shared memory, limits, states, error codes. `cc -E -P` on
   this file feeds cffi (mpicoloc/pmpi/), and numpy dtypes are derived from the result. So every size, offset and number
   is defined only here. The file contains only declarations: no inline code, no initialisers. All times are
   CLOCK_MONOTONIC nanoseconds unless the name says otherwise. Fields that several processes use are plain integers,
   which C code accesses with the compiler's __atomic functions: cffi cannot parse _Atomic, and <stdatomic.h> accepts
   only _Atomic types. */
#ifndef MPICOLOC_H
#define MPICOLOC_H

#ifndef MC_CDEF /* cffi knows these types without a header */
#include <stddef.h>
#include <stdint.h>
#endif

enum {
    MC_ABI_VERSION = 32,
    MC_MAGIC = 0x6d63346c, /* "l4cm" */

    MC_NAME_LEN = 64,
    MC_PATH_LEN = 1024,
    MC_HOW_LEN = 7, /* field "init" or "session" of a record in <key>.init; the round and a line end follow */
    MC_RECORD_LEN = 16,
    MC_ROUND_WAIT_MS = 10000, /* longest wait for processes that are still in the previous round of MPI */
    MC_TEXT_LEN = 256,
    MC_COMPLAINT_LEN = 2048,

    /* Each thread that calls MPI has its own set of tables, a lane. The first lanes are large. When a table is full,
       its row 0 counts all further entries. */
    MC_N_LANES = 2,
    MC_N_SITES = 2048,
    MC_N_CYCLES = 1024,
    MC_N_PEERS = 4096,
    MC_N_COLLECTIVES = 512,
    MC_N_PARTS = 4096,
    MC_N_SMALL_LANES = 22,
    MC_N_SMALL_SITES = 256,
    MC_N_SMALL_CYCLES = 128,
    MC_N_SMALL_PEERS = 512,
    MC_N_SMALL_COLLECTIVES = 64,
    MC_N_SMALL_PARTS = 256,

    MC_N_MEMBERS = 256, /* number of groups of ranks that have called collectives */
    MC_N_RUNS = 2048,   /* number of runs of ranks that make up the groups */

    MC_ONE_SIDED = 128, /* flag in a size class, above all size classes */

    MC_N_REGIONS = 32,      /* number of named regions of a thread; row 0 counts regions without a row of their own */
    MC_N_OPEN_REGIONS = 16, /* depth of nested regions */
    MC_REGION_LEN = 48,
    MC_UNIT_SITE = 0xfff, /* takes the place of a call site for units of work */

    MC_N_GROUPS = 16,      /* number of groups of shutters; the spread between groups gives the confidence interval */
    MC_N_PENDING = 256,    /* number of entries for cycles in shutters whose verdict is pending */
    MC_N_WINDOWS = 64,     /* number of shutters that a segment holds */
    MC_N_PMU = 16,         /* number of events that a rank counts over its whole run */
    MC_N_PROBE_LEVELS = 9, /* number of levels of bubbles: 0 to 8 */
    MC_N_MODULES = 128,    /* number of loaded objects; call sites are offsets in loaded objects */

    MC_N_SLOTS = 64, /* jobs on a node */
    MC_N_SHARE_WORDS = MC_N_SLOTS / 8,
    MC_N_NODE_RANKS = 1024, /* largest number of ranks of one job on one node */
    MC_N_CPU_WORDS = 16,    /* number of words of a processor mask */
    MC_N_SHUTTERS = 8192,   /* shutters that a node file holds */
    MC_N_CORUNNERS = 64,    /* number of co-runners that a node file holds */
};

/* Status of every C function of the project: 0 or one of these. */
enum {
    MC_OK = 0,
    MC_E_SHM = -1,      /* shared memory cannot be created, opened or mapped */
    MC_E_ABI = -2,      /* the segment or board has another version, or the file is not ours */
    MC_E_FULL = -3,     /* no free slot or lane */
    MC_E_GONE = -4,     /* the process or file no longer exists */
    MC_E_MPI = -5,      /* the MPI library refused */
    MC_E_SIGNAL = -6,   /* the kernel refuses a handler for the gate's signal */
    MC_E_PERF = -7,     /* no hardware counters */
    MC_E_ARG = -8,      /* a bad argument or option */
    MC_E_VERSION = -9,  /* jobs of another version of mpicoloc are on the node */
    MC_E_LIMIT = -10,   /* the limit of file sizes (ulimit -f) is too low */
    MC_E_STRANGER = -11 /* the file belongs to another user, who is not root */
};

enum { MC_KEEPER_ONLY = 5 }; /* exit code: the keeper runs, but a rank that uses hardware counters could be killed */

/* Life of a rank. */
enum {
    MC_RANK_INIT = 1, /* inside MPI_Init */
    MC_RANK_RUNNING = 2,
    MC_RANK_FINALIZING = 3, /* tables are final; the rank waits in MPI_Finalize */
    MC_RANK_ABORTED = 4,    /* the rank called MPI_Abort */
    MC_RANK_EXITED = 5,     /* the rank left without MPI_Finalize */
};

/* Verdict on a shutter. */
enum {
    MC_VERDICT_UNKNOWN = 0,
    MC_VERDICT_VALID = 1,
    MC_VERDICT_MOVED = 2,     /* a co-runner used its processors inside the shutter */
    MC_VERDICT_LATE = 3,      /* a co-runner was paused too late */
    MC_VERDICT_SILENT = 4,    /* a co-runner did not acknowledge: it has ended, is new, or has reached its duty limit */
    MC_VERDICT_ELSEWHERE = 5, /* the shutter is not valid on another node of the job */
    MC_VERDICT_BUBBLED = 6,   /* valid, but one of our bubbles ran beside the job in the shutter */
    MC_VERDICT_PARTIAL = 7,   /* valid, but the shutter spared some co-runners, which kept running */
};

/* State of the coordinators' agreement on shutters common to all nodes. */
enum { MC_COMMON_NONE = 0, MC_COMMON_ON = 1, MC_COMMON_OFF = 2 };

/* The profile's state; the meters, in order of preference; the ways to instrument. */
enum { MC_PROFILE_NONE = 0, MC_PROFILE_WRITTEN = 1, MC_PROFILE_FAILED = 2 };
enum { MC_METER_NONE = 0, MC_METER_IPC = 1, MC_METER_BURST = 2, MC_METER_COUNT = 3 };
enum { MC_MODE_PRELOAD = 1, MC_MODE_WRAP = 2 };

/* Levels of MPI_Pcontrol that mpicoloc handles. mpicoloc_app.h defines the same numbers. */
enum { MC_PCONTROL_UNIT = 0x6d630001, MC_PCONTROL_UNITS, MC_PCONTROL_BEGIN, MC_PCONTROL_END };

enum { MC_PHASE_CORUN = 0, MC_PHASE_SOLO = 1, MC_PHASE_ALONE = 2 }; /* the state in which a cycle ran */

/* The counter table: name, unit, meaning. One 64-bit counter each. A rank's value is the sum of the segment's counter,
   which several threads write, and of its lanes' counters. mc_segment_settle adds the values that it derives from the
   lanes' tables. */
#define MC_COUNTERS(X) \
    X(n_calls, "1", "MPI calls made by the application") \
    X(mpi_ns, "ns", "time inside those calls, in part estimated by sampling") \
    X(sampled_ns, "ns", "estimated part of mpi_ns, of calls that were counted but not timed") \
    X(comp_ns, "ns", "time outside MPI calls since MPI_Init, without pauses") \
    X(sent_bytes, "bytes", "bytes given to sends and collectives") \
    X(recv_bytes, "bytes", "bytes taken from receives (as they came) and collectives") \
    X(read_bytes, "bytes", "bytes read from files by MPI-IO") \
    X(written_bytes, "bytes", "bytes written to files by MPI-IO") \
    X(n_sent, "1", "messages sent: point-to-point and one-sided") \
    X(n_recv, "1", "messages received: point-to-point and one-sided") \
    X(n_pauses, "1", "pauses of a thread of this rank by the gate") \
    X(paused_ns, "ns", "time the rank's first thread stood still in the gate") \
    X(n_site_overflow, "1", "calls counted in the call-site overflow row") \
    X(n_cycle_overflow, "1", "cycles counted in the cycle overflow row") \
    X(n_peer_overflow, "1", "messages counted in the message overflow row") \
    X(n_collective_overflow, "1", "collectives without a row: no room, or with ranks outside the job") \
    X(n_request_overflow, "1", "requests beyond the table's room, counted when posted or not at all") \
    X(n_pending_overflow, "1", "cycles in shutters beyond the table's room; such shutters are void") \
    X(n_lane_overflow, "1", "calls by threads that found no lane, not recorded") \
    X(n_events, "1", "events offered to the trace") \
    X(n_events_dropped, "1", "events overwritten in the ring, refused or not written") \
    X(n_units, "1", "units of work that the application marked")

#define MC_COUNTER_FIELD(name, unit, meaning) uint64_t name;
typedef struct mc_counters {
    MC_COUNTERS(MC_COUNTER_FIELD)
} mc_counters;

/* One call site and function. key 0: a free row. */
typedef struct mc_site_row {
    uint64_t key;
    uint32_t call;     /* index into the shim's table of calls */
    uint32_t i_module; /* loaded object that holds the call site */
    uint64_t offset;   /* offset of the return address in that object */
    uint64_t n;
    uint64_t n_timed; /* number of calls that were timed; less than n if the function is timed by sampling */
    uint64_t sent_bytes, recv_bytes;
    uint64_t time_ns; /* time of all n calls: each timed call stands for all calls since the last timed call */
    uint64_t max_ns;  /* longest timed call */
} mc_site_row;

/* Messages sent to and received from one peer in one size class (class c > 0: 2^(c-1) <= bytes < 2^c; class 0: empty).
   Puts and gets have separate rows, with MC_ONE_SIDED added to the class, because the peer does not count them. */
typedef struct mc_peer_row {
    uint64_t key;
    int32_t peer; /* rank in the application's world, -1: unknown */
    uint32_t size_class;
    uint64_t n, bytes; /* sent */
    uint64_t n_recv, recv_bytes;
} mc_peer_row;

/* Collectives of one function, group, root and size class. All ranks of the group make the same call, so only the
   group's first rank counts it. If the parts differ in size (own_bytes), every rank counts the call. */
typedef struct mc_collective_row {
    uint64_t key;
    uint64_t group;    /* hash of the world ranks of the members, in the group's order */
    uint64_t to_group; /* on an intercommunicator: the other group, which contains the root; otherwise 0 */
    uint32_t call;     /* index into the shim's table of calls */
    int32_t root;      /* root's rank in the group, -1: none */
    int32_t own_rank;
    uint32_t size_class;
    uint64_t item_bytes; /* size of the datatype in the last call */
    uint64_t n, bytes;   /* calls; bytes of the buffer, of one rank's part, or of all parts if their sizes differ */
    uint64_t own_bytes;
} mc_collective_row;

/* Bytes that this rank sent to one other rank in collectives whose parts differ in size. */
typedef struct mc_part_row {
    uint64_t key;
    int64_t peer; /* rank in the application's world */
    uint64_t n, bytes;
} mc_part_row;

/* A group of ranks, written by its first rank as runs of world ranks (first, first + stride, ...). n_runs is 0 if the
   runs did not fit. */
typedef struct mc_members {
    uint64_t group;
    uint32_t first_run, n_runs;
} mc_members;

typedef struct mc_run {
    int32_t first, stride, n;
} mc_run;

/* Cycles of one kind in one phase and one group of shutters. A cycle consists of a computation burst and the MPI call
   that ends the burst. It lasts from the end of one call to the end of the next call. */
typedef struct mc_cell {
    uint64_t comp_ns; /* time in the bursts; cycles at the edges of the phase count in proportion */
    uint64_t mpi_ns;  /* time in the calls, counted in the same way */
    uint64_t n;       /* number of cycles that ended in the phase */
} mc_cell;

/* Cycles inside shutters of the job. */
typedef struct mc_sample {
    mc_cell cell;
    uint64_t cut_ns;  /* cycles that ended in [t0, t1): their time outside the job's shutters */
    uint64_t done_ns; /* the same cycles: their time inside shutters, from `begin` on */
} mc_sample;

typedef struct mc_cycle_row {
    uint64_t key;
    uint32_t from;       /* site row of the previous call */
    uint32_t to;         /* site row of the call that ends the cycle */
    uint32_t size_class; /* bytes of the call that ends the cycle, in half octaves */
    uint32_t i_pending;  /* hint: index of this row in the lane's pending list */
    mc_cell corun[MC_N_GROUPS];
    mc_sample solo[MC_N_GROUPS];
    mc_cell alone;
    uint64_t n_cut, cut_ns; /* co-run cycles cut by shutters: number that ended outside; time outside */
} mc_cycle_row;

typedef struct mc_pending {
    uint64_t i_window;
    uint64_t i_row;
    mc_sample sample;
} mc_pending;

/* A named region of the application; its time includes regions inside it. name "": a free row. */
typedef struct mc_region_row {
    char name[MC_REGION_LEN];
    uint64_t n;
    uint64_t time_ns; /* pauses excluded */
    uint64_t mpi_ns;  /* the part of time_ns inside MPI calls */
} mc_region_row;

/* A thread's position in a sequence of marks: the ends of its MPI calls, or of its units of work. */
typedef struct mc_stream {
    uint64_t t_last;    /* the last mark; for calls: end of the last timed call */
    uint64_t paused_ns; /* time for which this thread had been paused until t_last */
    uint64_t i_site;    /* site row of the last mark */
    uint64_t i_window;  /* number of the first shutter that had not ended before the last mark */
} mc_stream;

/* Hardware counts of user code. */
typedef struct mc_ipc {
    uint64_t instructions, cycles;
} mc_ipc;

enum { MC_TALLY_OUTSIDE = 0, MC_TALLY_INSIDE = 1, MC_TALLY_NONE = 2 /* the thread cannot count itself */ };

/* A thread's own hardware counts at the start or end of its last MPI call, kept while the agent counts
   (mc_sampling.counts_until). */
typedef struct mc_tally {
    uint64_t seq;   /* odd while the other fields are being written */
    uint64_t span;  /* value of counts_until at that start or end */
    uint64_t began; /* MC_TALLY_INSIDE or _OUTSIDE when the span began */
    uint64_t state; /* MC_TALLY_..., since the start or end of that call */
    mc_ipc outside; /* counts outside MPI in this span, and those before it if it began outside MPI */
    mc_ipc total;
} mc_tally;

/* The tables of one thread. Only this thread writes them, so there is no lock. While the job runs, readers can see a
   half-written row. When a thread ends, the next thread takes over its lane with the contents. */
typedef struct mc_lane_head {
    uint64_t owner_tid; /* 0: free */
    uint64_t n_owners;  /* number of threads that have owned the lane */
    mc_stream calls, units;
    uint64_t t_enter; /* start of the last timed call; if later than calls.t_last, that call has not ended */
    mc_tally tally;
    uint64_t gap_ns;      /* time between timed calls, pauses excluded */
    uint64_t void_window; /* 1 + number of the window whose pending list overflowed */
    uint64_t n_pending;
    mc_counters counters; /* of this thread */
    mc_region_row regions[MC_N_REGIONS];
    mc_pending pending[MC_N_PENDING];
} mc_lane_head;

typedef struct mc_lane {
    mc_lane_head head;
    mc_site_row sites[MC_N_SITES];
    mc_peer_row peers[MC_N_PEERS];
    mc_collective_row collectives[MC_N_COLLECTIVES];
    mc_part_row parts[MC_N_PARTS];
    mc_cycle_row cycles[MC_N_CYCLES];
} mc_lane;

typedef struct mc_small_lane {
    mc_lane_head head;
    mc_site_row sites[MC_N_SMALL_SITES];
    mc_peer_row peers[MC_N_SMALL_PEERS];
    mc_collective_row collectives[MC_N_SMALL_COLLECTIVES];
    mc_part_row parts[MC_N_SMALL_PARTS];
    mc_cycle_row cycles[MC_N_SMALL_CYCLES];
} mc_small_lane;

typedef struct mc_module {
    uint64_t is_complete; /* stored last; until it is set, do not read the other fields */
    uint64_t base;
    char path[MC_TEXT_LEN];
} mc_module;

/* The value sent with the gate's signal. It consists of a magic number, because other software may use the same signal,
   and of the number of times that the thread had gone to sleep when the agent saw it running. */
#define MC_GATE_VALUE(n_sleeps) ((uint64_t)MC_MAGIC << 32 | (uint32_t)(n_sleeps))

/* Pause requests to a rank. The agent of the rank's own job writes them; the rank writes the acknowledgements. */
typedef struct mc_gate {
    int32_t signal; /* the signal whose handler is the gate; 0: no gate */
    int32_t _pad;
    uint64_t max_ns;      /* longest pause; it ends a pause even before deadline_ns */
    uint64_t deadline_ns; /* pauses end here */
    uint64_t epoch;       /* number of the shutter for which ranks pause */
    uint64_t n_acks;      /* number of threads that entered the handler for this epoch */
    uint64_t t_first_enter, t_first_resume;
} mc_gate;

/* A shutter in which this rank's job is the target: [begin, end), of which [t0, t1) is sampled. Before t0 the
   co-runners stop, caches refill, and ranks that others had delayed catch up. The parts of the shutter outside [t0, t1)
   count towards no phase. */
typedef struct mc_window {
    uint64_t begin, t0, t1, end;
    uint64_t epoch;
    uint64_t verdict;
} mc_window;

/* Written by the agent: window number i lies in windows[i % MC_N_WINDOWS]; n_windows is stored last. */
typedef struct mc_sampling {
    uint64_t alone; /* 1: there is no other job on the node */
    uint64_t n_windows;
    uint64_t counts_until; /* time until which the meter ipc counts and threads update their tallies; 0: no counting */
    mc_window windows[MC_N_WINDOWS];
} mc_sampling;

#include "common/counting.h"
#include "common/events.h"

/* One rank: file <shm dir>/mpicoloc.<key>.<world rank>.seg. The file is sparse: only touched pages cost memory.
   With --trace the ring of n_events_max events follows the struct. */
typedef struct mc_segment {
    uint32_t magic, abi_version;
    uint64_t size_bytes;
    char key[MC_NAME_LEN];    /* names the job's files on this node */
    char job_id[MC_NAME_LEN]; /* the job's name as shown to users */
    char hostname[MC_NAME_LEN];
    char mpi_library[MC_TEXT_LEN];
    char command[MC_PATH_LEN];      /* arguments joined by blanks */
    char out_path[MC_PATH_LEN];     /* absolute path of the profile on rank 0's node */
    int32_t world_rank, world_size; /* the application's world */
    int32_t local_rank, local_size;
    int32_t n_nodes, n_cores; /* number of nodes of the job; number of cores on which this rank may run */
    int32_t pid;
    int32_t mode;
    uint64_t pid_start_ticks; /* field 22 of /proc/pid/stat, which reveals whether the pid was reused */
    uint64_t state;
    uint64_t profile; /* MC_PROFILE_...; rank 0 waits for this value here, because the node file may be deleted */
    char complaint[MC_COMPLAINT_LEN]; /* why the profile is missing or is not at out_path; written before `profile` */
    int64_t start_realtime_ns;        /* wall clock at MPI_Init */
    uint64_t t_init, t_finalize, t_last;
    uint64_t cpu_mask[MC_N_CPU_WORDS]; /* processors on which this rank may run */
    mc_gate gate;
    mc_sampling sampling;
    mc_counting counting;
    mc_counters counters;
    uint64_t pmu_cpu_ns; /* processor time of process and children while the events of `pmu` were counted */
    mc_pmu_row pmu[MC_N_PMU];
    mc_usage used_at_init, used_at_finalize; /* at the end of MPI_Init; when MPI_Finalize begins or the rank ends */
    uint64_t n_modules;
    mc_module modules[MC_N_MODULES];
    uint64_t n_members, n_runs;
    mc_members members[MC_N_MEMBERS];
    mc_run runs[MC_N_RUNS];
    uint64_t n_events_max;
    mc_ring ring;
    uint64_t n_lanes; /* number of lanes that are allocated in the file; reading a later lane can be fatal (SIGBUS) */
    mc_lane lanes[MC_N_LANES];
    mc_small_lane small_lanes[MC_N_SMALL_LANES];
} mc_segment;

#include "common/node.h"
#include "common/functions.h"

#endif
