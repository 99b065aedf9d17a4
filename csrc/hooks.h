/* What the generated wrappers, the world swap and the gate call. Knows no MPI: one object for every ABI. */
#ifndef MPICOLOC_HOOKS_H
#define MPICOLOC_HOOKS_H

#include "mpicoloc.h"

typedef struct mc_frame {
    uint64_t t_enter, paused_ns; /* at the call's begin: clock, and time this thread had stood still by then */
    void *site;
    mc_lane *lane; /* NULL: not recorded */
    uint32_t call;
    int32_t peer; /* of the message it sent, -1 none or unknown */
} mc_frame;

typedef struct mc_identity {
    const char *key, *job_id, *mpi_library;
    int world_rank, world_size, local_rank, local_size, n_nodes, mode;
} mc_identity;

/* 1 for the outermost call of this thread (then mc_leave must follow), 0 for a call that the MPI library makes
   itself: the wrapper passes that through untouched. */
int mc_enter(mc_frame *frame, uint32_t call, void *site);

/* A call ended. sent, received: bytes it moved for this rank. */
void mc_leave(mc_frame *frame, uint64_t sent_bytes, uint64_t recv_bytes);

/* The call of `frame` sends one message to `peer` (world rank of the application, -1 unknown). Before mc_leave. */
void mc_message(mc_frame *frame, int peer, uint64_t bytes);

/* Make this rank's segment and record from here on; called once, inside MPI_Init. */
int mc_start(const mc_identity *identity);

/* Record no more: tables are final and the segment's state is `state`. */
void mc_stop(uint64_t state);

/* Take back what mc_start made: nobody is left to read it, or to remove it later. */
void mc_forget(void);

/* One line on stderr, once per process, then pass-through from there on. */
void mc_disable(const char *reason, int status);

mc_segment *mc_own_segment(void); /* NULL before mc_start and after mc_disable */

uint64_t mc_now_ns(void);

/* Time this thread has stood still in the gate, ever. Written by the gate's handler. */
extern __thread uint64_t mc_thread_paused_ns;

/* gate.c: install the handler, tell the signal in segment->gate.signal. */
int mc_gate_install(mc_segment *segment);

/* agent_thread.c: the node agent as a thread of the keeper. */
int mc_agent_thread_start(const char *key, const char *job_id);
void mc_agent_thread_stop(void);

/* keeper_start.c: start the keeper of this node, once, by the node's first rank. */
int mc_keeper_start(const char *key);

/* keeper_start.c: after mc_stop in the first rank: wait until the profile is written or nobody is left to write it. */
void mc_keeper_wait_profile(const char *key);

#endif
