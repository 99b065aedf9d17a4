/* State of a simulation. Entities are numbers into pools, so that arrays may move when they grow. */
#ifndef RP_SIM_H
#define RP_SIM_H

#include <setjmp.h>
#include <stddef.h>

#include "replay/replay.h"

#define RP_NIL UINT32_MAX
#define RP_NEVER INT64_MAX

/* Events in the order of time, then kind, then id: a ring of buckets, and a heap for those beyond the ring's horizon. */
enum {
    RP_ID_BITS = 32,
    RP_KIND_BITS = 4,
    RP_MAX_SHIFT = 64 - RP_ID_BITS - RP_KIND_BITS, /* time within a bucket has the rest of a key's bits */
    RP_MIN_BUCKETS = 128,
    RP_MAX_BUCKETS = 65536
};

typedef struct rp_event {
    uint64_t key; /* time within the bucket, kind, id */
    uint32_t payload;
    uint32_t next; /* in the bucket */
} rp_event;

typedef struct rp_far_event {
    int64_t t_ps;
    rp_event event;
} rp_far_event;

typedef struct rp_queue {
    uint32_t shift; /* a bucket is 2^shift ps long */
    uint32_t n_buckets;
    int64_t bucket; /* the current one, counted from time 0 */
    rp_event *now;  /* its events, sorted */
    uint32_t i_now, n_now, now_room;
    uint32_t *heads;  /* of the buckets' lists in `pool` */
    uint64_t *filled; /* a bit for each bucket */
    rp_event *pool;
    uint32_t pool_room, free, n_in_ring;
    rp_far_event *far; /* heap */
    uint32_t n_far, far_room;
    uint64_t shuffle;
} rp_queue;

/* The order of events at equal times; within a kind the lower id is first. Arbitration comes after all of them. */
enum rp_event_kind {
    RP_EV_CREDIT,  /* id: lane, payload: bytes */
    RP_EV_FREE,    /* id: link: the last byte has left */
    RP_EV_ARRIVE,  /* id: lane, payload: packet: its first flit can leave the node, at hosts: the last byte is there */
    RP_EV_READY,   /* likewise, of a packet that waited as its next link is faster than its last one */
    RP_EV_WAKE,    /* id: link without credits until now */
    RP_EV_INJECT,  /* id: number of the send, payload: message that reaches the adapter */
    RP_EV_LOCAL,   /* id: number of the send, payload: message within a host that is there */
    RP_EV_RANK,    /* id: rank that computed */
    RP_EV_JOB,     /* id: job that starts */
    RP_EV_CROSSED, /* id: switch that has an input port free again */
    RP_EV_ROW      /* id: row of a graph whose processor's time is over, payload: rank */
};

typedef struct rp_packet {
    int64_t ready_ps; /* since when it could leave this node */
    int64_t tail_ps;  /* arrival of its last byte at this node */
    uint32_t next;    /* in its output lane */
    uint32_t next_in; /* in the FIFO of its input lane */
    uint32_t message;
    uint32_t in_lane, out_lane;
    uint32_t path;
    int32_t dst_host, n_bytes;
    uint16_t job;
    uint8_t vl, n_hops;
    int64_t head_ps; /* of its way until now: cables, switches and first flits; ends a cache line */
} rp_packet;

/* Two cache lines, in the order of use. */
typedef struct rp_link {
    int64_t ps_per_byte_q20, latency_ps, busy_until_ps, busy_ps;
    int32_t to, level;
    uint32_t message; /* hosts: whose packet is leaving */
    int32_t n_bytes;  /* leaving */
    uint16_t job;
    uint16_t lanes; /* a bit for each lane that has a packet in its output buffer */
    uint8_t vl, is_busy, is_dirty, from_host, to_host;
    uint8_t i_high, i_low;
    int16_t left_high, left_low;
    int64_t forward_ps, flit_ps; /* latency of cable and switch; time of a whole flit */
    int64_t wake_ps;
    int32_t high_bytes;
    uint16_t starved;    /* lanes that had no credits for their packet when the link last chose */
    uint16_t stuck;      /* those of them that have been starved since circles were last looked for */
    int64_t in_until_ps; /* the port at its end passes a packet */
    int32_t unused[6];
} rp_link;

/* Lane of a link where it begins: packets in the output buffer, then those that wait in input buffers. At hosts: messages. */
typedef struct rp_out_lane {
    uint32_t head, tail, first_waiting;
    int32_t used_bytes;
    int64_t queued_bytes, sent_bytes;
} rp_out_lane;

enum { RP_N_RETURNS = 3 };

/* Lane of a link where it ends, with what the link knows of it. Credits on their way back are not events: the link looks
   for them before it sends. Only what finds no room here becomes an event. */
typedef struct rp_in_lane {
    int32_t free_bytes;
    int32_t n_returns;
    uint32_t head, tail; /* FIFO */
    int64_t return_ps[RP_N_RETURNS];
    int32_t return_bytes[RP_N_RETURNS];
    int32_t held_bytes; /* while circles are looked for */
    uint64_t i_look;    /* the last look at a lane's waiting packets that found one of these, see crossbar.c */
    int64_t received_bytes;
} rp_in_lane;

enum rp_phase { RP_EAGER, RP_REQUEST, RP_CLEARANCE, RP_DATA };

typedef struct rp_message {
    int64_t n_bytes, wire_bytes;       /* of the user; with what a packet has at least */
    int64_t left_bytes, missing_bytes; /* of the present phase: not yet in packets; not yet arrived */
    int64_t ready_ps, injected_ps, posted_ps, i_op;
    uint64_t draw;                       /* of its routes */
    uint32_t next;                       /* in the adapter's lane, or in the pool */
    uint32_t follower;                   /* next one of the same two ranks whose envelope has not come */
    uint32_t next_pair, next_key;        /* in hash tables: latest of a pair of ranks, unexpected ones */
    uint32_t next_arrived, prev_arrived; /* unexpected at this rank, in order */
    uint32_t receive, path;
    int32_t src, dst, tag, comm, slot; /* ranks of all jobs are numbered through; slot -1: nobody waits */
    uint16_t job;
    uint8_t phase, kind, has_leader, has_come;
    uint32_t number; /* of all messages in the order of their sends, from 0 again after 2^32 */
} rp_message;

typedef struct rp_receive {
    uint64_t serial;
    int64_t posted_ps, i_op, n_bytes;
    uint32_t next_key, next_any; /* in the hash table, or in the rank's list of those with wildcards; or in the pool */
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
    uint32_t slots;                     /* where its requests begin */
    int32_t n_slots;                    /* the last one is that of blocking calls */
    int32_t wait_first, wait_n, n_open; /* requests it waits for, and how many of them are pending */
    int32_t host, job, number;
    uint32_t any_head, any_tail;         /* receives with wildcards */
    uint32_t arrived_head, arrived_tail; /* unexpected messages */
    uint8_t depth, is_blocked, is_ended;
    uint64_t draw, n_sent; /* its random numbers; messages in this run */
    rp_loop loops[RP_MAX_DEPTH];
    int32_t n_processors; /* of a graph; 0: the program is a sequence */
    uint32_t first_processor, first_row;
    uint32_t line_head, line_tail; /* processors that have something to do */
    uint8_t is_serving;
    int64_t n_left; /* operations of a graph that have not ended */
} rp_rank;

/* A processor of a graph: the operations that are ready. */
typedef struct rp_processor {
    uint32_t head, tail;
    uint32_t next; /* in the line of its rank */
    uint8_t is_busy;
} rp_processor;

typedef struct rp_job_state {
    int32_t first_rank, n_ranks, n_running;
    int32_t n_active; /* ranks that run or compute, and messages under way; 0: nothing will happen by itself */
    int64_t n_unexpected, n_receives, started_ps;
    uint64_t draw; /* of the hosts, not of the other jobs: it draws the same routes with and without them */
    uint8_t vl;
} rp_job_state;

typedef struct rp_table {
    uint32_t *heads, *tails;
    uint32_t mask;
    int64_t n;
} rp_table;

enum { RP_N_KEPT = 128 };

/* Arrays that the result shows: type, name, number of entries. */
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
    uint32_t *dirty; /* links to be arbitrated when all events of now are done */
    int64_t n_dirty;
    int32_t *switch_start; /* where crossbars are limited: links out of each switch, and switches that have to look */
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
    uint64_t n_receives; /* posted until now: their serial numbers */
    rp_rank *ranks;
    int32_t n_ranks, n_jobs, n_done;
    uint8_t *slots;
    rp_processor *processors;
    uint32_t n_processors, n_rows;
    uint32_t *needs; /* rows of all graphs: what an operation needs yet, and the next one that is ready */
    rp_job_state *job_states;
    int64_t n_live_packets;
    int64_t window_end_ps, *window; /* row of now */
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

/* simulation.c: without memory all leave by longjmp. What is zeroed lives until rp_close and does not grow. */
void *rp_zeroed(rp_sim *sim, size_t n, size_t size);
void *rp_grown(rp_sim *sim, void *old, size_t n_old, size_t n_new, size_t size);
/* With twice the room, or some at first. */
void *rp_doubled(rp_sim *sim, void *old, uint32_t *n_room, size_t size);
uint32_t rp_new_packet(rp_sim *sim);
uint32_t rp_new_message(rp_sim *sim);
uint32_t rp_new_receive(rp_sim *sim);
void rp_free_packet(rp_sim *sim, uint32_t packet);
void rp_free_message(rp_sim *sim, uint32_t message);
void rp_free_receive(rp_sim *sim, uint32_t receive);

/* queue.c. horizon_ps: most events come sooner than this. */
void rp_queue_open(rp_sim *sim, int64_t horizon_ps, int64_t n_expected);
void rp_push_later(rp_sim *sim, int64_t t_ps, rp_event event);
/* Make the next bucket that has events the current one; 0: there is none. */
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
/* Something of the job waits for the link from now on. */
void rp_begin_wait(rp_sim *sim, uint32_t job, uint32_t link);
/* Crossbars and links choose with what has happened up to now. 0: none had to. */
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

/* deadlock.c: whether lanes are stuck, which is looked for among those that were starved at the last call; with is_last among
   all that are starved. Fills result.cycle. */
int rp_find_cycle(rp_sim *sim, int is_last);

static inline int rp_has_room(const rp_sim *sim, const rp_out_lane *out, const rp_packet *packet)
{
    return out->used_bytes + packet->n_bytes <= sim->net.output_bytes[packet->vl];
}

/* Put an event into the queue: inline, as it happens twice a hop. */
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
