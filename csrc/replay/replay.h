/* The packet simulator. It simulates jobs, each of which is a set of rank programs, on a lossless network with virtual
   lanes. This file is the contract between csrc/replay and mpicoloc/replay: `cc -E -P` on it feeds cffi. Times are
   whole picoseconds, so that results are exact and the same on every machine. The simulator uses no threads, files or
   global state: all state is in one `rp_sim`. */
#ifndef RP_REPLAY_H
#define RP_REPLAY_H

#ifndef MC_CDEF
#include <stdint.h>
#endif

enum {
    RP_MAX_VL = 16,   /* lanes of a link, as in InfiniBand */
    RP_MAX_SL = 16,   /* service levels */
    RP_MAX_DEPTH = 8, /* nesting depth of a program's loops */
    RP_ANY = -1       /* any source, any tag */
};

/* Operations, each with the meaning of its fields `value`, `request` and `n`. */
enum rp_kind {
    RP_END_PROGRAM, /* optional at the end of a program */
    RP_COMPUTE,     /* value: ns, multiplied by the rank's factor */
    RP_SEND,        /* value: bytes; n: step of RP_SHIFT */
    RP_ISEND,       /* as RP_SEND; request: slot in the rank's table of requests */
    RP_RECV,        /* value: bytes (not compared); peer or tag RP_ANY: any */
    RP_IRECV,
    RP_WAIT,    /* request */
    RP_WAITALL, /* requests request .. request + n - 1; empty slots count as complete */
    RP_LOOP,    /* n: iterations, which may be 0; the body ends at the RP_END of the same depth */
    RP_END,
    RP_MARK, /* value: a number chosen by the user, recorded with the simulated time */
    /* A program that begins with RP_GRAPH otherwise contains only RP_COMPUTE, RP_SEND and RP_RECV, in any order, and
       RP_THEN. In the first three of these, `request` is a processor. */
    RP_GRAPH, /* n: processors of the rank */
    RP_THEN   /* request: row of an operation that depends on the end (n: 0) or the start (n: 1) of the previous one */
};

/* Meaning of `peer`: a formula for the number of the other rank. i is the iteration of the innermost loop, counted from
   0, and 0 outside loops. */
enum rp_peer_mode {
    RP_ABSOLUTE, /* peer */
    RP_SHIFT,    /* (rank + peer + n * i) mod ranks of the job */
    RP_XOR,      /* rank ^ (peer << i) */
    RP_XOR_STEP  /* rank ^ (peer + n * i) */
};

/* Flags of sends, and of operations in graphs. The caller may use the bits from 8 on. */
enum {
    RP_SYNCHRONOUS = 1, /* use rendezvous even for short messages, as MPI_Ssend does */
    RP_UNBUFFERED = 2,  /* an eager send completes when its last packet has left the adapter, not at once */
    RP_MARKED = 4       /* in graphs: record marks 2 row and 2 row + 1 at the operation's start and end */
};

typedef struct rp_op {
    uint8_t kind;
    uint8_t peer_mode;
    uint16_t flags;
    int32_t peer;
    int32_t tag;
    int32_t comm;
    int32_t request;
    int32_t n;
    int64_t value;
} rp_op;

/* Choice of a packet's up-link if the table offers several links. Path p chooses link p / divisor mod n. */
enum rp_routing {
    RP_BY_DESTINATION,    /* path: number of the destination host */
    RP_BY_SOURCE,         /* path: number of the source host */
    RP_RANDOM_PER_FLOW,   /* path: drawn for each pair of hosts */
    RP_RANDOM_PER_PACKET, /* path: drawn for each packet */
    RP_ADAPTIVE           /* the link with the fewest bytes in or waiting for the output buffer of the packet's lane */
};

typedef struct rp_arbitration {
    int32_t vl;
    int32_t weight; /* in units of the network's weight_unit_bytes; 0: the entry is skipped */
} rp_arbitration;

/* Nodes are the hosts 0 .. n_hosts - 1, then the switches. Links are directed, and listed in any order. In `first` and
   `next`, a number >= 0 is a link. A number s < 0 is the set of links with the index -1 - s; the routing chooses a link
   from this set. */
typedef struct rp_network {
    int32_t n_hosts, n_switches, n_links, n_levels, n_sets, n_vl;
    const int32_t *from, *to, *level; /* [n_links] */
    const int64_t *ps_per_byte_q20;   /* [n_links] picoseconds per byte, times 2^20 */
    const int64_t *latency_ps;        /* [n_links] cable latency */
    const int32_t *first;             /* [n_hosts] link from a host */
    const int32_t *next;              /* [n_switches * n_hosts] link from a switch towards a destination */
    const int32_t *set_start;         /* [n_sets + 1] into set_links */
    const int32_t *set_links;
    const int32_t *set_divisor; /* [n_sets] */
    int32_t routing, n_paths;   /* rp_routing; random paths are 0 .. n_paths - 1 */
    int64_t switch_latency_ps;  /* from the first flit's arrival until the packet may leave */
    int32_t flit_bytes;         /* bytes that must arrive before a switch forwards; >= the MTU: store and forward */
    int32_t crossing_q20;       /* time of a packet in an input port / time on its link, times 2^20; 0: no limit */
    int32_t is_voq;             /* 0: an input buffer is a FIFO for each lane; 1: a packet waits only for its output */
    int32_t input_bytes[16];    /* size of each lane's buffer at the end of a link */
    int32_t output_bytes[16];   /* size of each lane's buffer at the beginning of a link, in switches */
    int32_t vl_of_sl[16];
    int32_t n_high, n_low;
    const rp_arbitration *high, *low;
    int32_t high_limit;        /* units of 4096 bytes sent before one packet of low priority may go; 255: no limit */
    int32_t weight_unit_bytes; /* 0: weights count packets */
} rp_network;

typedef struct rp_settings {
    int32_t mtu_bytes, control_bytes; /* control_bytes: size of a request and of a clearance to send */
    int64_t eager_bytes;              /* messages longer than this use rendezvous */
    int64_t mpi_latency_ps; /* from a send until the adapter has the message; the processor is free meanwhile */
    int64_t send_overhead_ps,
        recv_overhead_ps;     /* processor time of a send, and of a receive once the data has arrived */
    int64_t local_latency_ps; /* messages between ranks of one host */
    int64_t local_ps_per_byte_q20;
    uint64_t seed;
    int64_t window_ps;     /* length of the windows of link_bytes; 0: none */
    int32_t n_windows_max; /* if more windows are needed, their length doubles */
    int32_t
        is_fifo_adapter; /* 0: an adapter takes a packet from each message of a lane in turn; 1: a message at a time */
    uint64_t shuffle;    /* for tests: if not 0, seed that shuffles every order that must not affect results */
} rp_settings;

typedef struct rp_job {
    int32_t n_ranks, n_programs;
    const rp_op *const *programs;   /* must not change while the simulation exists */
    const int64_t *program_lengths; /* [n_programs] */
    const int32_t *program_of_rank; /* [n_ranks] */
    const int32_t *host_of_rank;    /* [n_ranks] */
    const double *factor_of_rank;   /* [n_ranks] multiplies computation times */
    int64_t start_ps;
    int32_t service_level;
    int32_t is_restarted; /* 1: the job runs again until all jobs have run once */
} rp_job;

typedef struct rp_mark {
    int64_t value, t_ps;
    int32_t job, rank;
} rp_mark;

enum rp_status {
    RP_RUNNING,
    RP_DONE,
    RP_E_MEMORY,
    RP_E_UNMATCHED,        /* a job ended with sends that were not received, or receives that were not waited for */
    RP_E_PROGRAM_DEADLOCK, /* ranks of a job wait for each other */
    RP_E_NETWORK_DEADLOCK, /* packets wait for each other's buffers; see `cycle` */
    RP_E_PROGRAM,          /* an invalid operation: unknown, peer out of range, request in use */
    RP_E_ROUTE             /* a table leads to a link that does not begin at the node, or in a circle */
};

/* An operation for which one rank waits, or a send that was never received. */
typedef struct rp_report {
    int32_t job, rank, peer, tag, comm, kind;
    int64_t i_op, n_bytes, t_ps;
} rp_report;

enum {
    RP_N_REPORTS = 64 /* number of reports stored; rp_result.n_reports may be larger */
};

/* The arrays exist until rp_close. rp_run updates the values. */
typedef struct rp_result {
    int32_t status, n_jobs, n_levels, n_vl, n_links, n_windows;
    int64_t now_ps, n_events, n_packet_hops, n_packets, n_messages;
    int64_t window_ps;          /* length of windows, after doublings */
    int64_t peak_bytes;         /* largest heap use of the simulation so far */
    const int64_t *job_end_ps;  /* [n_jobs] end of the first run; -1: not yet */
    const int32_t *job_n_runs;  /* [n_jobs] complete runs */
    const int64_t *rank_end_ps; /* [sum of n_ranks] end in the first run, job after job */
    const int64_t *rank_compute_ps;
    const int64_t *wait_ps;      /* [n_levels * n_jobs * n_vl] waits; only waits of first runs count, in all arrays */
    const int64_t *wait_packets; /* [n_levels * n_jobs * n_vl] number of hops that waited */
    const int64_t *blocked_ps;   /* [n_jobs * (n_jobs + 1)] waits by waiting job and by job on the link; last: no job */
    const int64_t *transfer_ps; /* [n_jobs * n_jobs] part of blocked_ps until the packet already on the link had left */
    const int64_t *message_ps;  /* [n_jobs] first run: sum of times from injection to the last byte's arrival */
    const int64_t *head_ps;     /* [n_jobs] part of message_ps: time of the messages' heads on an empty network */
    const int64_t *serial_ps;   /* [n_jobs] part of message_ps: time of the messages' bytes on the host's link */
    const int64_t *sent_bytes, *received_bytes; /* [n_links * n_vl] */
    const int64_t *busy_ps;                     /* [n_links] */
    const int64_t *window_bytes;                /* [n_windows * n_links] */
    int64_t n_marks;
    const rp_mark *marks;
    int32_t n_cycle; /* number of links in a network deadlock */
    const int32_t *cycle;
    int64_t n_reports;
    const rp_report *reports; /* the first RP_N_REPORTS */
} rp_result;

typedef struct rp_sim rp_sim;

/* Create a simulation at time 0. NULL: out of memory. The arrays that the structs point to must exist until rp_close,
   and the caller must have checked their values. */
rp_sim *rp_open(const rp_network *network, const rp_settings *settings, int32_t n_jobs, const rp_job *jobs);

/* Simulate at most n_events further events. Returns an rp_status. */
int rp_run(rp_sim *sim, int64_t n_events);

const rp_result *rp_get(rp_sim *sim);
void rp_close(rp_sim *sim);

#endif
