/* Hooks that the generated wrappers, the world swap and the gate call. They use no MPI types, so one object serves
   every ABI. */
#ifndef MPICOLOC_HOOKS_H
#define MPICOLOC_HOOKS_H

#include "common/table.h"
#include "guest/clock.h"

typedef struct mc_frame {
    uint64_t t_enter, paused_ns; /* at entry: clock, and time paused so far */
    void *site;
    mc_site_row *row; /* set if the call is counted but not timed */
    uint32_t call;
    uint32_t weight; /* number of calls for which this call's time stands; 0: not timed */
    int32_t peer;    /* the other end of the call's first message, -1: none or unknown */
    uint16_t is_recorded;
    uint16_t message; /* kind of the first message: 0, MC_EVENT_SENT or MC_EVENT_RECEIVED */
} mc_frame;

/* A recently used call site, cached so that its row is found without a search. */
typedef struct mc_site_hit {
    void *site;
    mc_site_row *row;
    uint32_t call; /* with MC_COUNTABLE if calls may be counted without being timed */
} mc_site_hit;

enum {
    MC_N_HITS = 64,
    MC_COUNTABLE = 1 << 30,
    MC_SAMPLE_EVERY = 16, /* least value of mc_thread.every */
};

typedef struct mc_thread {
    const char *outer;          /* stack frame of the outermost MPI call that this thread is in */
    uint32_t calls_until_timed; /* calls that are only counted before the next one is timed */
    uint32_t interval;          /* number of calls that the next timed call stands for, itself included */
    uint32_t random;
    uint32_t every;        /* a power of 2: one call in `every` to 3 * `every` is timed */
    uint32_t n_timed;      /* calls timed since `every` was last chosen */
    uint64_t t_choice;     /* when `every` was last chosen */
    int32_t is_ended;      /* the thread has released its lane */
    int32_t has_key;       /* a destructor will release the lane when the thread ends */
    int32_t claim_backoff; /* calls to skip before the thread tries to claim a lane again */
    int32_t i_lane;
    mc_tables tables;
    mc_clock clock;
    mc_site_hit hits[MC_N_HITS];
} mc_thread;

extern __thread mc_thread mc_self;
extern int mc_recording;
extern mc_segment *mc_the_segment; /* never unmapped, because another thread may be inside a hook */

typedef struct mc_identity {
    const char *key, *job_id, *mpi_library;
    int world_rank, world_size, local_rank, local_size, n_nodes, mode;
} mc_identity;

/* An address in the stack frame of the function that uses this macro. Its distance from the caller's frame does not
   depend on the function's local variables. On x86-64 the frame pointer is such an address. Elsewhere (aarch64 with
   gcc) the frame pointer can be at the frame's other end: of two wrappers called by one function, the one with more
   variables would then seem to be called by the other. Clang offers nothing better. */
#if defined __x86_64__ || defined __clang__
#define MC_STACK() __builtin_frame_address(0)
#else
#define MC_STACK() __builtin_dwarf_cfa()
#endif

/* Another tool is between this library and MPI. The tool must see every call too, but calls made by the tool itself
   must not count. */
extern int mc_is_chained;
/* 1: the thread is inside the library's MPI_Finalize, and recording has stopped. */
extern __thread int mc_is_ending;

/* Returns 1 if MPI called the caller from inside an MPI call of the application. stack: an address in the caller's
   stack frame. */
static inline int mc_is_inside(const char *stack)
{
    return (mc_self.outer != NULL && stack < mc_self.outer) || mc_is_ending;
}

/* Record the end of a call. sent_bytes, recv_bytes: bytes that the call moved for this rank. */
void mc_leave(mc_frame *frame, uint64_t sent_bytes, uint64_t recv_bytes);

/* mc_enter for functions that return at once and are called millions of times a second. Every call is counted, with its
   bytes. Only some calls, chosen at random, are timed. A timed call stands for all calls since the last timed call.
   This is the slow path of mc_enter_light. */
int mc_enter_sampled(mc_frame *frame, uint32_t call, void *site, const char *stack);

/* Call this after a sampled call that had a result, such as a message that arrived. It ends a cycle, whether or not the
   call was timed. */
void mc_leave_done(mc_frame *frame, uint64_t sent_bytes, uint64_t recv_bytes);

/* stack: address in the wrapper's own stack frame. */
int mc_enter_timed(mc_frame *frame, uint32_t call, void *site, const char *stack);

/* Returns 1 for the outermost call of this thread, after which one mc_leave... must follow. Returns 0 for a call that
   the MPI library makes itself, which the wrapper passes through. */
static inline __attribute__((always_inline)) int mc_enter(mc_frame *frame, uint32_t call, void *site)
{
    return mc_enter_timed(frame, call, site, MC_STACK());
}

static inline unsigned mc_hit_index(const void *site)
{
    return (unsigned)(((uint64_t)(uintptr_t)site * 0x9e3779b97f4a7c15ULL) >> 58);
}

static inline __attribute__((always_inline)) mc_site_hit *mc_hit(const void *site)
{
    return &mc_self.hits[mc_hit_index(site)];
}

/* Count a call of a function that only looks up a value and makes no callbacks. Returns 0 if the call must be recorded
   in full. */
static inline __attribute__((always_inline)) int mc_count(uint32_t call, void *site)
{
    mc_thread *self = &mc_self;
    const mc_site_hit *hit = mc_hit(site);
    if (__builtin_expect(
            self->calls_until_timed == 0 || self->outer || hit->site != site || hit->call != (call | MC_COUNTABLE), 0))
        return 0;
    self->calls_until_timed--;
    hit->row->n++;
    return 1;
}

/* mc_count for a call that may make callbacks; mc_leave_... must follow. Every store here is expensive for a
   memory-bound program, because it delays the program's own accesses. */
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

/* Frame of a call that was entered by mc_enter_quick and has completed a request or a message. */
static inline mc_frame mc_quick_frame(const void *site)
{
    mc_site_row *row = mc_hit(site)->row;
    int is_lost = row == NULL; /* the process is a child that was forked inside an MPI callback */
    return (mc_frame){.row = row, .weight = (uint32_t)is_lost, .is_recorded = !is_lost, .peer = -1};
}

/* stack: an address in the frame of the function that the program called. After a jump out of MPI (longjmp), the next
   call is recognised as outermost because its frame is not deeper. */
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

/* Cache of the last row: consecutive messages mostly have the same peer and size. */
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

/* In a full trace, the second and later messages of a call are separate events. */
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

/* Record that the call of `frame` sends one message to `peer` (world rank of the application, -1: unknown). Call this
   before mc_leave. one_sided: MC_ONE_SIDED if the peer makes no call to receive the message, otherwise 0. */
static inline void mc_message(mc_frame *frame, int peer, uint64_t bytes, uint32_t one_sided)
{
    if (!frame->is_recorded)
        return;
    mc_note_message(frame, peer, bytes, one_sided ? MC_EVENT_SENT | MC_EVENT_ONE_SIDED : MC_EVENT_SENT);
    mc_peer_row *row = mc_message_row(peer, mc_octave(bytes) + one_sided);
    row->n++;
    row->bytes += bytes;
}

/* Record that the call of `frame` completed the receive of one message from `peer`, or fetched data from its memory.
   Call this before mc_leave. */
static inline void mc_received(mc_frame *frame, int peer, uint64_t bytes, uint32_t one_sided)
{
    if (!frame->is_recorded)
        return;
    mc_note_message(frame, peer, bytes, one_sided ? MC_EVENT_RECEIVED | MC_EVENT_ONE_SIDED : MC_EVENT_RECEIVED);
    mc_peer_row *row = mc_message_row(peer, mc_octave(bytes) + one_sided);
    row->n_recv++;
    row->recv_bytes += bytes;
}

/* Record the bytes that the call of `frame` read from files and wrote to files. Call this before mc_leave. */
void mc_file_access(mc_frame *frame, uint64_t read_bytes, uint64_t written_bytes);

/* Record that the request table was full, so that the operation that the call of `frame` began counts with its posted
   bytes. */
void mc_request_overflow(mc_frame *frame);

/* Record n finished units of work. The call of `frame` must be recorded. */
void mc_units(const mc_frame *frame, uint64_t n);

/* Give the calling thread a lane. Returns 0 if none is free. */
int mc_lane_claim(void);

/* In a forked child: drop the lane, which belongs to the parent. */
void mc_lane_forget(void);

/* Allocate a lane in the rank's file. */
int mc_lane_reserve(int i_lane);

/* Make this rank's segment and start recording; called once, inside MPI_Init. */
int mc_start(const mc_identity *identity);

/* Stop recording. The tables are then final, and the segment's state becomes `state`. */
void mc_stop(uint64_t state);

/* usage.c: get the resources that this process has used so far. If with_threads is 1, the migrations and run delays of
   each thread are read too, which takes 12 KiB of stack. */
void mc_usage_read(mc_usage *out, int with_threads);

/* Undo mc_start. Call this if there is no other process that would read or remove the segment. */
void mc_forget(void);

/* Print one line on stderr, once per process; from then on calls pass through unrecorded. */
void mc_disable(const char *reason, int status);
/* Tell `mpicoloc run` that the reason for a missing profile has been printed, so that it prints none itself. */
void mc_reason_given(void);
int mc_is_node_first(void); /* 1: this is the first rank of its node, according to the launcher's environment */

mc_segment *mc_own_segment(void); /* NULL before mc_start and after mc_disable */

/* Time that this thread has been paused in the gate so far. Written by the gate's handler. */
extern __thread uint64_t mc_thread_paused_ns;

/* gate.c: install the handler, and write the signal into segment->gate.signal. */
int mc_gate_install(mc_segment *segment);

/* start_keeper.c: start the keeper of this node; called once, by the node's first rank. *n_filters: largest number of
   system-call filters with which a rank can use hardware counters without being killed. */
int mc_keeper_start(const char *key, uint64_t *n_filters);

/* start_keeper.c: the keeper's identity, known even to ranks that did not start it. */
typedef struct mc_keeper_id {
    int64_t pid; /* 0: unknown */
    uint64_t start_ticks;
} mc_keeper_id;
extern mc_keeper_id mc_the_keeper;

/* start_keeper.c: after mc_stop, sleep until the profile (or this node's part of it) is written, or no process is left
   to write it. is_node_first: this rank signals to the keeper that all ranks of the node wait, and restarts the keeper
   if it was killed. is_first: this is the job's first rank, which reports failures to the user. */
void mc_keeper_wait_profile(const char *key, int is_node_first, int is_first);

#endif
