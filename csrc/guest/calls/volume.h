/* Bytes that a call moves for this rank. They are computed from the send and receive buffers in the call's arguments,
   so they do not depend on the library's algorithm. Arguments that MPI defines as not significant are never read. */
#ifndef MPICOLOC_VOLUME_H
#define MPICOLOC_VOLUME_H

#include "guest/calls/peers.h"
#include "guest/calls/requests.h"
#include "guest/hooks.h"
#include "guest/mpi/real.h"

#include <stdatomic.h>

struct mc_volume {
    uint64_t sent_bytes, recv_bytes;
    uint64_t read_bytes, written_bytes; /* from files, to files */
    uint64_t message_bytes;             /* size of the one message to `peer` */
    int is_message;
    uint32_t one_sided; /* MC_ONE_SIDED: the peer does not count the bytes that this call sends or receives */
    int peer;
    uint32_t pending_kind; /* kind of operation that completes later (MC_OP_...), when its size becomes known */
    int pending_peer;
    uint64_t pending_bytes; /* upper limit */
    mc_ranks *pending_ranks;
    mc_frame *frame;
    mc_ranks *collective; /* ranks of a collective; NULL for other calls */
    int root;             /* root's rank in `collective` (on an intercommunicator: in the remote group), -1: none */
    uint64_t whole_bytes, own_bytes; /* of the buffer or of one rank's part; of this rank if the parts differ in size */
    uint64_t item_bytes;             /* size of the datatype */
    int is_kept;                     /* 1: persistent operation, which moves no data until it is started */
    struct mc_kept *kept;            /* persistent collectives: data that each start counts */
};

enum { /* kinds of mc_op */
       MC_OP_NONE,
       MC_OP_RECV,
       MC_OP_WHOLE_RECV, /* receive without a usable status: the posted bytes from the named peer count */
       MC_OP_READ,
       MC_OP_WRITE,
       MC_OP_SEND,  /* persistent */
       MC_OP_OTHER, /* persistent: collectives */
       MC_OP_CANCELLED = 16,
};

/* Consecutive calls mostly use the same type, and this cache is cheaper than asking the library. Whenever a type is
   freed, a new generation begins and the caches become invalid, because MPI may reuse the handle for a type of another
   size. */
typedef struct mc_last_type {
    MPI_Datatype type;
    uint64_t generation;
    uint64_t size_bytes;
} mc_last_type;

extern _Atomic uint64_t mc_type_generation;
extern __thread mc_last_type mc_type_used;
uint64_t mc_find_bytes(long long count, MPI_Datatype type);

static inline uint64_t mc_bytes(long long count, MPI_Datatype type)
{
    const mc_last_type *last = &mc_type_used;
    if (count <= 0)
        return 0;
    if (last->type == type && last->generation == atomic_load_explicit(&mc_type_generation, memory_order_relaxed))
        return (uint64_t)count * last->size_bytes;
    return mc_find_bytes(count, type);
}

void mc_record_moved(mc_frame *frame, mc_volume *v);

/* Record a collective in the tables from which the traffic between ranks is computed (matrix.c). Call this before
   mc_leave. */
void mc_record_collective(const mc_volume *v);
/* Record the bytes that this rank sends to rank i of a communicator in a collective whose parts differ. */
void mc_record_part(mc_volume *v, const mc_ranks *ranks, int i, uint64_t bytes);
/* Keep the data of a persistent collective, which is recorded at each start. Returns NULL if the collective moves
   nothing. */
struct mc_kept *mc_keep_collective(mc_volume *v);
void mc_kept_start(const struct mc_kept *kept, mc_volume *v);
void mc_kept_free(struct mc_kept *kept);

/* Record that this call completed a receive of `bytes` bytes from rank `source` of a communicator. */
void mc_volume_received(mc_volume *v, const mc_ranks *ranks, int source, uint64_t bytes);

/* Item i of an array argument as a C handle. */
MPI_Datatype mc_type_at(mc_handles types, int i);
MPI_Request mc_request_at(mc_handles requests, int i);

/* Keep a persistent request when it is created. Sends and collectives are counted when they are started, receives when
   they complete. */
void mc_persistent_keep(MPI_Request request, mc_volume *v);

/* Record that the call posted a receive or file access, which `request` completes. */
void mc_request_began(mc_volume *v, MPI_Request request);
void mc_volume_done(mc_volume *v);

/* calls_gen.h declares the functions that calls.toml names. If a receive completes later, its function only fills in
   the pending fields, and mc_request_began or mc_persistent_keep reads these fields. in_place: this buffer is
   MPI_IN_PLACE. wide: the counts are MPI_Count, not int. */

#endif
