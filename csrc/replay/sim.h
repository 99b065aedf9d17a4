/* State of a simulation. Entities are identified by their indices in pools, so that the arrays can move when they
   grow. */
#ifndef RP_SIM_H
#define RP_SIM_H

#include <setjmp.h>
#include <stddef.h>

#include "replay/replay.h"

#define RP_NIL UINT32_MAX
#define RP_NEVER INT64_MAX

/* Event queue, ordered by time, then kind, then id: a ring of buckets, and a heap for events beyond the ring's
   horizon. */
enum {
    RP_ID_BITS = 32,
    RP_KIND_BITS = 4,
    RP_MAX_SHIFT = 64 - RP_ID_BITS - RP_KIND_BITS, /* the key's remaining bits hold the time within a bucket */
    RP_MIN_BUCKETS = 128,
    RP_MAX_BUCKETS = 65536
};

typedef struct rp_event {
    uint64_t key; /* time within the bucket, kind, id */
    uint32_t payload;
    uint32_t next; /* next event of the bucket */
} rp_event;

typedef struct rp_far_event {
    int64_t t_ps;
    rp_event event;
} rp_far_event;

typedef struct rp_queue {
    uint32_t shift; /* a bucket is 2^shift ps long */
    uint32_t n_buckets;
    int64_t bucket; /* the current bucket, counted from time 0 */
    rp_event *now;  /* events of the current bucket, sorted */
    uint32_t i_now, n_now, now_room;
    uint32_t *heads;  /* of the buckets' lists in `pool` */
    uint64_t *filled; /* a bit for each bucket */
    rp_event *pool;
    uint32_t pool_room, free, n_in_ring;
    rp_far_event *far; /* heap */
    uint32_t n_far, far_room;
    uint64_t shuffle;
} rp_queue;

/* Kinds of events, in the order in which events of the same time are handled. Within a kind, the event with the lower
   id comes first. Arbitration comes after all events. */
enum rp_event_kind {
    RP_EV_CREDIT,  /* id: lane, payload: bytes */
    RP_EV_FREE,    /* id: link, whose last byte has left */
    RP_EV_ARRIVE,  /* id: lane, payload: packet, whose first flit can leave the node; at hosts: last byte has arrived */
    RP_EV_READY,   /* the same for a packet that had to wait because its next link is faster than its last link */
    RP_EV_WAKE,    /* id: link that had no credits until now */
    RP_EV_INJECT,  /* id: number of the send, payload: message that reaches the adapter */
    RP_EV_LOCAL,   /* id: number of the send, payload: message within a host, which has arrived */
    RP_EV_RANK,    /* id: rank that has finished computing */
    RP_EV_JOB,     /* id: job that starts */
    RP_EV_CROSSED, /* id: switch with an input port that is free again */
    RP_EV_ROW      /* id: row of a graph whose processor time is over, payload: rank */
};

typedef struct rp_packet {
    int64_t ready_ps; /* earliest time at which the packet could leave this node */
    int64_t tail_ps;  /* arrival of the packet's last byte at this node */
    uint32_t next;    /* next packet of the output lane */
    uint32_t next_in; /* next packet in the FIFO of the input lane */
    uint32_t message;
    uint32_t in_lane, out_lane;
    uint32_t path;
    int32_t dst_host, n_bytes;
    uint16_t job;
    uint8_t vl, n_hops;
    int64_t head_ps; /* time of the head so far: cables, switches and first flits; last field of a cache line */
} rp_packet;

/* A link fills two cache lines. Its fields are in the order in which they are used. */
typedef struct rp_link {
    int64_t ps_per_byte_q20, latency_ps, busy_until_ps, busy_ps;
    int32_t to, level;
    uint32_t message; /* hosts: message of the packet that is leaving */
    int32_t n_bytes;  /* of the packet that is leaving */
    uint16_t job;
    uint16_t lanes; /* a bit for each lane with a packet in its output buffer */
    uint8_t vl, is_busy, is_dirty, from_host, to_host;
    uint8_t i_high, i_low;
    int16_t left_high, left_low;
    int64_t forward_ps, flit_ps; /* latency of cable and switch; time of a whole flit */
    int64_t wake_ps;
    int32_t high_bytes;
    uint16_t starved;    /* lanes that had no credits for their packet when the link last chose */
    uint16_t stuck;      /* lanes that have been starved since the last search for circles */
    int64_t in_until_ps; /* until then the port at the link's end is passing a packet */
    int32_t unused[6];
} rp_link;

/* A lane at the beginning of a link: packets in the output buffer, followed by the packets that wait for this lane in
   input buffers. At hosts it has messages instead. */
typedef struct rp_out_lane {
    uint32_t head, tail, first_waiting;
    int32_t used_bytes;
    int64_t queued_bytes, sent_bytes;
} rp_out_lane;

enum { RP_N_RETURNS = 3 };

/* A lane at the end of a link, with the credits that the link has for it. Credits that travel back are not events: the
   link checks for them before it sends. Only credits that do not fit into the arrays here become events. */
typedef struct rp_in_lane {
    int32_t free_bytes;
    int32_t n_returns;
    uint32_t head, tail; /* FIFO */
    int64_t return_ps[RP_N_RETURNS];
    int32_t return_bytes[RP_N_RETURNS];
    int32_t held_bytes; /* used in the search for circles */
    uint64_t i_look; /* last scan of waiting packets that found a packet of this lane; see best_for_lane in links.c */
    int64_t received_bytes;
} rp_in_lane;

enum rp_phase { RP_EAGER, RP_REQUEST, RP_CLEARANCE, RP_DATA };

typedef struct rp_message {
    int64_t n_bytes, wire_bytes;       /* the user's bytes; the bytes sent, at least the smallest packet */
    int64_t left_bytes, missing_bytes; /* bytes of the present phase: not yet in packets; not yet arrived */
    int64_t ready_ps, injected_ps, posted_ps, i_op;
    uint64_t draw;                       /* random number for the message's routes */
    uint32_t next;                       /* next in the adapter's lane, or in the pool */
    uint32_t follower;                   /* next message of the same two ranks whose envelope has not arrived */
    uint32_t next_pair, next_key;        /* chains of hash tables: latest message of each pair of ranks; unexpected */
    uint32_t next_arrived, prev_arrived; /* unexpected messages of this rank, in order of arrival */
    uint32_t receive, path;
    int32_t src, dst, tag, comm, slot; /* ranks are numbered across all jobs; slot -1: no rank waits */
    uint16_t job;
    uint8_t phase, kind, has_leader, has_come;
    uint32_t number; /* sequence number of the send among all messages, modulo 2^32 */
} rp_message;

typedef struct rp_receive {
    uint64_t serial;
    int64_t posted_ps, i_op, n_bytes;
    uint32_t next_key, next_any; /* next in the hash table or the pool; next in the rank's list of wildcard receives */
    int32_t rank, src, tag, comm, slot;
    uint8_t kind;
} rp_receive;

enum rp_slot_state { RP_EMPTY, RP_PENDING, RP_SENT, RP_RECEIVED };

typedef struct rp_loop {
    int64_t start; /* operation after RP_LOOP */
    int32_t n, i;
} rp_loop;

typedef struct rp_rank {
    const rp_op *program;
    int64_t n_ops, i_op;
    double factor;
    uint32_t slots;                     /* index of the rank's first request */
    int32_t n_slots;                    /* number of requests; the last is for blocking calls */
    int32_t wait_first, wait_n, n_open; /* requests that the rank waits for; number of them that are pending */
    int32_t host, job, number;
    uint32_t any_head, any_tail;         /* receives with wildcards */
    uint32_t arrived_head, arrived_tail; /* unexpected messages */
    uint8_t depth, is_blocked, is_ended;
    uint64_t draw, n_sent; /* seed of the rank's random numbers; messages sent in this run */
    rp_loop loops[RP_MAX_DEPTH];
    int32_t n_processors; /* of a graph; 0: the program is a sequence */
    uint32_t first_processor, first_row;
    uint32_t line_head, line_tail; /* queue of processors with ready operations */
    uint8_t is_serving;
    int64_t n_left; /* operations of a graph that have not ended */
} rp_rank;

/* A processor of a graph, with a queue of ready operations. */
typedef struct rp_processor {
    uint32_t head, tail;
    uint32_t next; /* next in the rank's queue of processors */
    uint8_t is_busy;
} rp_processor;

typedef struct rp_job_state {
    int32_t first_rank, n_ranks, n_running;
    int32_t n_active; /* ranks that run or compute, plus messages in flight; 0: the job makes no further progress */
    int64_t n_unexpected, n_receives, started_ps;
    uint64_t draw; /* depends on the job's hosts, not on other jobs, so that routes are the same without other jobs */
    uint8_t vl;
} rp_job_state;

typedef struct rp_table {
    uint32_t *heads, *tails;
    uint32_t mask;
    int64_t n;
} rp_table;

enum { RP_N_KEPT = 128 };

/* Arrays of the result: type, name, number of entries. */
#define RP_RESULT_ARRAYS(X) \
    X(int64_t, job_end_ps, n_jobs) \
    X(int32_t, job_n_runs, n_jobs) \
    X(int64_t, rank_end_ps, n_ranks) \
    X(int64_t, rank_compute_ps, n_ranks) \
    X(int64_t, wait_ps, n_cells) \
    X(int64_t, wait_packets, n_cells) \
    X(int64_t, blocked_ps, n_jobs *(n_jobs + 1)) \
    X(int64_t, transfer_ps, n_jobs *n_jobs) \
    X(int64_t, message_ps, n_jobs) \
    X(int64_t, head_ps, n_jobs) \
    X(int64_t, serial_ps, n_jobs) \
    X(int64_t, sent_bytes, n_links *n_vl) \
    X(int64_t, received_bytes, n_links *n_vl) \
    X(int64_t, busy_ps, n_links) \
    X(int32_t, cycle, n_links)
#define RP_ARRAY_FIELD(type, name, n) type *name;

struct rp_sim {
    rp_network net;
    rp_settings set;
    const rp_job *jobs;
    int64_t now;
    int status;
    rp_queue queue;
    rp_link *links;
    rp_out_lane *out;
    rp_in_lane *in;
    uint32_t vl_shift;
    uint16_t high_lanes, low_lanes;
    uint32_t *dirty; /* links to be arbitrated after all events of the present time */
    int64_t n_dirty;
    int32_t *switch_start; /* for limited crossbars: links out of each switch, and switches that must choose packets */
    uint32_t *switch_links, *dirty_switches;
    uint8_t *is_switch_dirty;
    int64_t n_dirty_switches;
    uint64_t n_looks;
    uint32_t *n_waiting; /* [link * n_jobs + job] packets of first runs that wait for the link */
    rp_packet *packets;
    uint32_t n_packet_room, free_packet;
    rp_message *messages;
    uint32_t n_message_room, free_message;
    rp_receive *receives;
    uint32_t n_receive_room, free_receive;
    rp_table pairs, unexpected, posted;
    uint64_t n_receives; /* receives posted so far: the serial number of the next one */
    rp_rank *ranks;
    int32_t n_ranks, n_jobs, n_done;
    uint8_t *slots;
    rp_processor *processors;
    uint32_t n_processors, n_rows;
    uint32_t *needs; /* rows of all graphs: number of unmet dependencies; once ready: next row in the ready queue */
    rp_job_state *job_states;
    int64_t n_live_packets;
    int64_t window_end_ps, *window; /* row of the present window */
    rp_result result;
    int64_t *window_bytes;
    RP_RESULT_ARRAYS(RP_ARRAY_FIELD)
    rp_mark *marks;
    uint32_t n_mark_room;
    rp_report reports[RP_N_REPORTS];
    size_t bytes_now, bytes_peak;
    void *kept[RP_N_KEPT];
    int n_kept;
    jmp_buf no_memory;
};

/* simulation.c: these functions leave by longjmp if memory runs out. Memory from rp_zeroed exists until rp_close and
   cannot grow. */
void *rp_zeroed(rp_sim *sim, size_t n, size_t size);
void *rp_grown(rp_sim *sim, void *old, size_t n_old, size_t n_new, size_t size);
/* Double the room of an array, or allocate its first room. */
void *rp_doubled(rp_sim *sim, void *old, uint32_t *n_room, size_t size);
uint32_t rp_new_packet(rp_sim *sim);
uint32_t rp_new_message(rp_sim *sim);
uint32_t rp_new_receive(rp_sim *sim);
void rp_free_packet(rp_sim *sim, uint32_t packet);
void rp_free_message(rp_sim *sim, uint32_t message);
void rp_free_receive(rp_sim *sim, uint32_t receive);

/* queue.c. horizon_ps: most events are scheduled less than this time ahead. */
void rp_queue_open(rp_sim *sim, int64_t horizon_ps, int64_t n_expected);
void rp_push_later(rp_sim *sim, int64_t t_ps, rp_event event);
/* Move to the next bucket that has events. Returns 0 if there is none. */
int rp_queue_advance(rp_sim *sim);

/* links.c */
void rp_on_arrive(rp_sim *sim, uint32_t lane, uint32_t packet);
void rp_enter_switch(rp_sim *sim, uint32_t packet);
void rp_on_free(rp_sim *sim, uint32_t link);
void rp_on_wake(rp_sim *sim, uint32_t link);
void rp_on_credit(rp_sim *sim, uint32_t lane, uint32_t n_bytes);
void rp_mark_dirty(rp_sim *sim, uint32_t link);
void rp_mark_switch(rp_sim *sim, uint32_t number);
void rp_open_crossbars(rp_sim *sim);
int64_t rp_wire_ps(const rp_link *link, int32_t n_bytes);
/* Record that, from now on, a packet or message of the job waits for the link. */
void rp_begin_wait(rp_sim *sim, uint32_t job, uint32_t link);
/* Let crossbars and links choose packets after all events of the present time. Returns 0 if none of them had to
   choose. */
int rp_settle(rp_sim *sim);

/* adapter.c */
uint64_t rp_mix(uint64_t number);
uint32_t rp_choose_link(const rp_sim *sim, int32_t entry, uint32_t path, uint32_t vl);
void rp_inject(rp_sim *sim, uint32_t message);
void rp_send_at(rp_sim *sim, uint32_t message, int64_t t_ps);
uint32_t rp_next_packet(rp_sim *sim, uint32_t link, uint32_t vl);
int32_t rp_next_bytes(const rp_sim *sim, uint32_t message);
void rp_packet_left(rp_sim *sim, uint32_t link);
void rp_packet_came(rp_sim *sim, uint32_t packet);
void rp_on_local(rp_sim *sim, uint32_t message);

/* matching.c */
void rp_open_tables(rp_sim *sim);
void rp_follow(rp_sim *sim, uint32_t message);
void rp_envelope(rp_sim *sim, uint32_t message);
void rp_post_receive(rp_sim *sim, uint32_t receive);

/* ranks.c */
void rp_start_job(rp_sim *sim, uint32_t job);
void rp_job_idle(rp_sim *sim, uint32_t job);
void rp_on_rank(rp_sim *sim, uint32_t rank);
void rp_complete(rp_sim *sim, int32_t rank, int32_t slot, uint8_t state);
void rp_rank_ended(rp_sim *sim, rp_rank *rank);
void rp_record_mark(rp_sim *sim, const rp_rank *rank, int64_t value);
int rp_do_message(rp_sim *sim, rp_rank *rank, const rp_op *op);
int64_t rp_compute_ps(rp_sim *sim, rp_rank *rank, const rp_op *op);
int rp_impossible(rp_sim *sim, rp_rank *rank, const rp_op *op);

/* graph.c */
void rp_run_graph(rp_sim *sim, rp_rank *rank);
void rp_on_row(rp_sim *sim, uint32_t rank, uint32_t row);
void rp_complete_row(rp_sim *sim, rp_rank *rank, uint32_t row);

/* deadlock.c: whether lanes are stuck. The search covers the lanes that have been starved since the last call or, with
   is_last, all starved lanes. If lanes are stuck, result.cycle lists the links of a circle. */
int rp_find_cycle(rp_sim *sim, int is_last);

static inline int rp_has_room(const rp_sim *sim, const rp_out_lane *out, const rp_packet *packet)
{
    return out->used_bytes + packet->n_bytes <= sim->net.output_bytes[packet->vl];
}

/* Put an event into the queue. The function is inline, because it is called twice per hop. */
static inline void rp_push(rp_sim *sim, int64_t t_ps, enum rp_event_kind kind, uint32_t id, uint32_t payload)
{
    rp_queue *q = &sim->queue;
    uint64_t within = (uint64_t)t_ps & ((UINT64_C(1) << q->shift) - 1);
    uint64_t key = within << (RP_ID_BITS + RP_KIND_BITS) | (uint64_t)kind << RP_ID_BITS | id;
    rp_push_later(sim, t_ps, (rp_event){key, payload, RP_NIL});
}

static inline int rp_is_first_run(const rp_sim *sim, uint32_t job)
{
    return sim->job_n_runs[job] == 0;
}

static inline void rp_deactivate(rp_sim *sim, uint32_t job)
{
    if (--sim->job_states[job].n_active == 0)
        rp_job_idle(sim, job);
}

#endif
