/* What the generated wrappers, the world swap and the gate call. Knows no MPI: one object for every ABI. */
#ifndef MPICOLOC_HOOKS_H
#define MPICOLOC_HOOKS_H

#include "common/table.h"
#include "guest/clock.h"

typedef struct mc_frame {
    uint64_t t_enter, paused_ns; /* at the call's begin: clock, and time this thread had stood still by then */
    void *site;
    mc_site_row *row; /* of a call that is only counted */
    uint32_t call;
    uint32_t weight; /* calls that this one's time stands for; 0: only counted */
    int32_t peer;    /* at the other end of its first message, -1 none or unknown */
    uint16_t is_recorded;
    uint16_t message; /* what that message is: 0, MC_EVENT_SENT or MC_EVENT_RECEIVED */
} mc_frame;

/* A call site met lately, so that its row is found without a search. */
typedef struct mc_site_hit {
    void *site;
    mc_site_row *row;
    uint32_t call; /* with MC_COUNTABLE where a call of it may be counted without being timed */
} mc_site_hit;

enum {
    MC_N_HITS = 64,
    MC_COUNTABLE = 1 << 30,
    MC_SAMPLE_EVERY = 16, /* calls at least that are counted for one that is timed; less than three times so many */
};

typedef struct mc_thread {
    const char *outer; /* stack frame of the outermost MPI call that this thread is in */
    uint32_t credit;   /* calls of sampled functions to be counted before one is timed */
    uint32_t interval; /* calls that the timed one stands for, itself included */
    uint32_t random;
    uint32_t every;    /* at least so many are counted for one that is timed, a power of 2 */
    uint32_t n_timed;  /* since `every` was chosen last, */
    uint64_t t_choice; /* then */
    int32_t is_ended;  /* its lane is given back */
    int32_t has_key;   /* its lane is given back when it ends */
    int32_t n_patient; /* calls before it asks for a lane again */
    int32_t i_lane;
    mc_tables tables;
    mc_clock clock;
    mc_site_hit hits[MC_N_HITS];
} mc_thread;

extern __thread mc_thread mc_self;
extern int mc_recording;
extern mc_segment *mc_the_segment; /* stays mapped for good: another thread may be inside a hook */

typedef struct mc_identity {
    const char *key, *job_id, *mpi_library;
    int world_rank, world_size, local_rank, local_size, n_nodes, mode;
} mc_identity;

/* 1 for the outermost call of this thread (then one mc_leave... must follow), 0 for a call that the MPI library makes
   itself: the wrapper passes that through untouched. */
static inline int mc_enter(mc_frame *frame, uint32_t call, void *site);

/* Another tool stands between this library and MPI; it too must see every call, and its own must not count. */
extern int mc_is_chained;
/* Inside the library's MPI_Finalize, which is recorded no more. */
extern __thread int mc_is_ending;

/* 1 in what the application's MPI call calls itself. stack: address in the caller's own stack frame. */
static inline int mc_is_inside(const char *stack)
{
    return (mc_self.outer != NULL && stack < mc_self.outer) || mc_is_ending;
}

/* A call ended. sent, received: bytes it moved for this rank. */
void mc_leave(mc_frame *frame, uint64_t sent_bytes, uint64_t recv_bytes);

/* The same for functions that return at once and are called millions of times a second: every call is counted, with its
   bytes, but only some, at random, are timed; each stands for those since the one before. Their slow path: */
int mc_enter_sampled(mc_frame *frame, uint32_t call, void *site, const char *stack);

/* A sampled function found that something had happened (a message has come): this ends a cycle, timed or not. */
void mc_leave_done(mc_frame *frame, uint64_t sent_bytes, uint64_t recv_bytes);

/* stack: address in the wrapper's own stack frame. */
int mc_enter_timed(mc_frame *frame, uint32_t call, void *site, const char *stack);

static inline __attribute__((always_inline)) int mc_enter(mc_frame *frame, uint32_t call, void *site)
{
    return mc_enter_timed(frame, call, site, __builtin_frame_address(0));
}

static inline unsigned mc_hit_index(const void *site)
{
    return (unsigned)(((uint64_t)(uintptr_t)site * 0x9e3779b97f4a7c15ULL) >> 58);
}

static inline __attribute__((always_inline)) mc_site_hit *mc_hit(const void *site)
{
    return &mc_self.hits[mc_hit_index(site)];
}

/* Count a call that only looks up something and calls nothing back; 0: it must be recorded in full. */
static inline __attribute__((always_inline)) int mc_count(uint32_t call, void *site)
{
    mc_thread *self = &mc_self;
    const mc_site_hit *hit = mc_hit(site);
    if (__builtin_expect(self->credit == 0 || self->outer || hit->site != site || hit->call != (call | MC_COUNTABLE),
                         0))
        return 0;
    self->credit--;
    hit->row->n++;
    return 1;
}

/* The same for one that may call back; then mc_leave_... must follow. A program that waits for memory between such
   calls pays for all that is written to memory here many times what others pay: fewer of its own accesses are under way
   at a time. */
static inline __attribute__((always_inline)) int mc_enter_quick(uint32_t call, void *site, const char *stack)
{
    if (!mc_count(call, site))
        return 0;
    mc_self.outer = stack;
    return 1;
}

static inline void mc_leave_quick(void)
{
    mc_self.outer = NULL;
}

/* The frame of a call that was entered quickly, and in which something happened. */
static inline mc_frame mc_quick_frame(const void *site)
{
    mc_site_row *row = mc_hit(site)->row;
    int is_lost = row == NULL; /* in a child that a callback of MPI forked */
    return (mc_frame){.row = row, .weight = (uint32_t)is_lost, .is_recorded = !is_lost, .peer = -1};
}

/* stack: address in the frame of the function that the program called, whichever way it goes: after a jump out of MPI
   the next call is known by lying no deeper. */
static inline __attribute__((always_inline)) int mc_enter_light(mc_frame *frame, uint32_t call, void *site,
                                                                const char *stack)
{
    if (!mc_enter_quick(call, site, stack))
        return mc_enter_sampled(frame, call, site, stack);
    frame->row = mc_hit(site)->row;
    frame->weight = 0;
    frame->is_recorded = 1;
    return 1;
}

static inline void mc_leave_light(mc_frame *frame, uint64_t sent_bytes, uint64_t recv_bytes)
{
    if (__builtin_expect(frame->weight != 0, 0)) {
        mc_leave(frame, sent_bytes, recv_bytes);
        return;
    }
    mc_leave_quick();
    frame->row->sent_bytes += sent_bytes;
    frame->row->recv_bytes += recv_bytes;
}

/* Messages come in rows to the same peer and of the same size. */
typedef struct mc_last_message {
    const mc_peer_row *rows;
    mc_peer_row *row;
    int peer;
    uint32_t size_class;
} mc_last_message;

extern __thread mc_last_message mc_message_used;
mc_peer_row *mc_find_message_row(int peer, uint32_t size_class);

static inline mc_peer_row *mc_message_row(int peer, uint32_t size_class)
{
    const mc_last_message *last = &mc_message_used;
    if (__builtin_expect(last->peer == peer && last->size_class == size_class && last->rows == mc_self.tables.peers, 1))
        return last->row;
    return mc_find_message_row(peer, size_class);
}

/* A call's second message and those after it are events of their own, in a trace of everything. */
void mc_trace_message(const mc_frame *frame, int peer, uint64_t bytes, uint16_t message);

static inline void mc_note_message(mc_frame *frame, int peer, uint64_t bytes, uint16_t message)
{
    if (!frame->message) {
        frame->peer = peer;
        frame->message = message;
    } else if (mc_the_segment->ring.is_kept) {
        mc_trace_message(frame, peer, bytes, message);
    }
}

/* The call of `frame` sends one message to `peer` (world rank of the application, -1 unknown). Before mc_leave.
   one_sided: MC_ONE_SIDED if the peer does not receive it, else 0. */
static inline void mc_message(mc_frame *frame, int peer, uint64_t bytes, uint32_t one_sided)
{
    if (!frame->is_recorded)
        return;
    mc_note_message(frame, peer, bytes, one_sided ? MC_EVENT_SENT | MC_EVENT_ONE_SIDED : MC_EVENT_SENT);
    mc_peer_row *row = mc_message_row(peer, mc_octave(bytes) + one_sided);
    row->n++;
    row->bytes += bytes;
}

/* The call of `frame` ended the receive of one message from `peer`, or took it from there. Before mc_leave. */
static inline void mc_received(mc_frame *frame, int peer, uint64_t bytes, uint32_t one_sided)
{
    if (!frame->is_recorded)
        return;
    mc_note_message(frame, peer, bytes, one_sided ? MC_EVENT_RECEIVED | MC_EVENT_ONE_SIDED : MC_EVENT_RECEIVED);
    mc_peer_row *row = mc_message_row(peer, mc_octave(bytes) + one_sided);
    row->n_recv++;
    row->recv_bytes += bytes;
}

/* Of the bytes that the call of `frame` moves, these came from files and went to files. Before mc_leave. */
void mc_file_access(mc_frame *frame, uint64_t read_bytes, uint64_t written_bytes);

/* What the call of `frame` began could not be remembered: it counts as what was asked for. */
void mc_request_overflow(mc_frame *frame);

/* In a call that is recorded: the application finished n units of work. */
void mc_units(const mc_frame *frame, uint64_t n);

/* Give the calling thread a lane; 0: there is none. */
int mc_lane_claim(void);

/* In a forked child: the lane is the parent's. */
void mc_lane_forget(void);

/* Make room for a lane in the rank's file. */
int mc_lane_reserve(int i_lane);

/* Make this rank's segment and record from here on; called once, inside MPI_Init. */
int mc_start(const mc_identity *identity);

/* Record no more: tables are final and the segment's state is `state`. */
void mc_stop(uint64_t state);

/* usage.c: what this process used so far. Migrations and run delays, of each of its threads, take some 12 KiB of stack. */
void mc_usage_read(mc_usage *out, int with_threads);

/* Take back what mc_start made: nobody is left to read it, or to remove it later. */
void mc_forget(void);

/* One line on stderr, once per process, then pass-through from there on. */
void mc_disable(const char *reason, int status);
/* To `mpicoloc run`, which then gives no reason of its own for a missing profile. */
void mc_reason_given(void);
int mc_is_node_first(void); /* of all ranks of the node, by what the launcher says */

mc_segment *mc_own_segment(void); /* NULL before mc_start and after mc_disable */

/* Time this thread has stood still in the gate, ever. Written by the gate's handler. */
extern __thread uint64_t mc_thread_paused_ns;

/* gate.c: install the handler, tell the signal in segment->gate.signal. */
int mc_gate_install(mc_segment *segment);

/* start_keeper.c: start the keeper of this node, once, by the node's first rank. n_filters: of system calls, with so
   many or fewer a rank counts without harm. */
int mc_keeper_start(const char *key, uint64_t *n_filters);

/* start_keeper.c: who the keeper is, for ranks that have not started it themselves. */
typedef struct mc_keeper_id {
    uint64_t pid, start_ticks; /* pid 0: not known */
} mc_keeper_id;
mc_keeper_id mc_keeper_get(void);
void mc_keeper_set(mc_keeper_id id);

/* start_keeper.c: after mc_stop: sleep until the profile is written, or this node's part of it, or nobody is left to write
   it. is_node_first: tells the keeper that all ranks of the node wait; is_first: of the job, tells the user what failed. */
void mc_keeper_wait_profile(const char *key, int is_node_first, int is_first);

#endif
